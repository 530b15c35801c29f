//! Infers this model's wiring: the family's default, then what the config sets, then what the tensors show.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::architecture::{Architecture, Classifier, Head};
use crate::block::Block;
use crate::dim::{Side, Stack};
use crate::facts::{Configs, FactError};
use crate::family::{Family, KnownHead, Sets, Task};
use crate::layer_set::LayerSet;
use crate::names::{Found, Lookup};
use crate::role::{BlockStep, FeedForwardStep, HeadStep, LayerStep, Role};
use crate::rotary::RotaryScaling;
use crate::rotary_config;
use crate::wiring::{
    Activation, Biases, EmbeddingNorm, EmbeddingScale, Front, LogitScale, NormGain, NormPlace, Positions,
    ScoreScale, Wiring,
};

/// The source of each field of a wiring.
#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<&'static str, String>);

impl Sources {
    pub(crate) fn get(&self, field: &str) -> Option<&String> {
        self.0.get(field)
    }

    fn set(&mut self, field: &'static str, source: impl Into<String>) {
        self.0.insert(field, source.into());
    }
}

/// The family's wiring as its config sets it. `named`: a config names the family, so that a key that it leaves out has the
/// default of the family's own code. An unknown word becomes an obstacle.
pub(crate) fn configure(
    family: &Family,
    configs: &Configs<'_>,
    named: bool,
    sources: &mut Sources,
    obstacles: &mut Vec<String>,
) -> Result<Wiring, FactError> {
    let mut w = family.wiring;
    for setting in family.settings {
        // null says that there is none of what can be absent; elsewhere it is as good as no key.
        let said = match setting.sets.can_be_null() {
            true => configs.of_model_with_null(setting.keys),
            false => configs.of_model(setting.keys),
        };
        let absent = setting
            .absent
            .filter(|_| named)
            .map(|text| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())));
        let (value, source) = match (&said, absent) {
            (Some(said), _) => (said.value.clone(), said.source.clone()),
            (None, Some(value)) => (value, format!("no {} in the config", setting.keys[0])),
            (None, None) => continue,
        };
        match apply(&mut w, setting.sets, &value, configs) {
            Ok(fields) => fields.iter().for_each(|field| sources.set(field, source.clone())),
            Err(Wrong::Unknown(known)) => obstacles.push(format!("{source} is {value}: known are {known}")),
            Err(Wrong::Type(expected)) => {
                return Err(match said {
                    Some(said) => said.wrong(expected, value.to_string()),
                    None => configs.wrong_default(setting.keys[0], expected, value.to_string()),
                });
            }
        }
    }
    Ok(w)
}

/// How configs call a layer that has the window, and one that has not.
const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";

/// A window of layers that the model does not have is none, and one of all its layers needs no list of them.
pub(crate) fn settle_window(architecture: &Architecture, w: &mut Wiring) {
    let deepest = architecture.stacks().map(|stack| architecture.layers(stack)).max().unwrap_or(0);
    let Some(layers) = w.window_layers.filter(|_| w.window.is_some()) else {
        w.window_layers = None;
        return;
    };
    let own: Vec<usize> = layers.iter().take_while(|layer| *layer < deepest).collect();
    match own.len() {
        0 => (w.window, w.window_layers) = (None, None),
        n if n == deepest => w.window_layers = None,
        _ => w.window_layers = LayerSet::of(own),
    }
}

/// Why a value cannot be used.
pub(crate) enum Wrong {
    /// It has the wrong type.
    Type(&'static str),
    /// It is an unknown word.
    Unknown(String),
}

impl Sets {
    /// Whether null is a value of such a key.
    fn can_be_null(self) -> bool {
        matches!(
            self,
            Self::Window | Self::LayerTypes | Self::ScoreCap | Self::LogitCap | Self::RotaryScaling
        )
    }

    /// Whether it is about the angles of rotary positions, or which features are a pair.
    fn is_about_rotary(self) -> bool {
        matches!(
            self,
            Self::RotaryBase
                | Self::RotaryShare
                | Self::RotaryFeatures
                | Self::RotaryScaling
                | Self::StoredLongrope
                | Self::NeighbouringPairs
                | Self::WindowRotaryBase
        )
    }
}

/// A number that something is divided by.
pub(crate) fn positive(value: &Value) -> Result<f64, Wrong> {
    value.as_f64().filter(|x| x.is_finite() && *x > 0.0).ok_or(Wrong::Type("a positive number"))
}

/// Applies a key, and returns the fields that it set.
fn apply(
    w: &mut Wiring,
    sets: Sets,
    value: &Value,
    configs: &Configs<'_>,
) -> Result<&'static [&'static str], Wrong> {
    if sets.is_about_rotary() {
        return rotary_config::apply(w, sets, value, configs);
    }
    let flag = || value.as_bool().ok_or(Wrong::Type("true or false"));
    Ok(match sets {
        Sets::EmbeddingScale | Sets::NoEmbeddingScale => {
            let on = flag()? != (sets == Sets::NoEmbeddingScale);
            w.embedding_scale = if on { EmbeddingScale::SqrtDModel } else { EmbeddingScale::None };
            &["embedding_scale"]
        }
        Sets::NormBefore => {
            w.norm_place = if flag()? { NormPlace::Pre } else { NormPlace::Post };
            &["norm_place"]
        }
        Sets::SinusoidalPositions if flag()? => {
            w.source_positions = Positions::SinusoidInterleaved;
            &["source_positions"]
        }
        Sets::LearnedPositions if flag()? => {
            (w.source_positions, w.target_positions) = (Positions::Table, Positions::Table);
            &["source_positions", "target_positions"]
        }
        Sets::TiedOutput if flag()? => {
            w.tied_output = true;
            &["tied_output"]
        }
        Sets::SinusoidalPositions | Sets::LearnedPositions | Sets::TiedOutput => &[],
        Sets::LogitScale => {
            w.logit_scale = if flag()? { LogitScale::RsqrtDModel } else { LogitScale::None };
            &["logit_scale"]
        }
        Sets::ScoreScale => {
            w.score_scale = if flag()? { ScoreScale::DHead } else { ScoreScale::None };
            &["score_scale"]
        }
        Sets::RotaryBase
        | Sets::RotaryShare
        | Sets::RotaryFeatures
        | Sets::RotaryScaling
        | Sets::StoredLongrope
        | Sets::NeighbouringPairs
        | Sets::WindowRotaryBase => &[],
        Sets::PlainGain => {
            w.norm_gain = Some(NormGain::Weight);
            &["norm_gain"]
        }
        Sets::ScoreWidth => {
            w.score_width = Some(positive(value)?);
            &["score_width"]
        }
        Sets::WholeScoreWidthAt(layers) if value.as_u64() != Some(layers) => &[],
        Sets::WholeScoreWidthAt(_) => {
            w.score_width = rotary_config::share_of_head(configs);
            &["score_width"]
        }
        Sets::ScoreCap => {
            w.score_cap = if value.is_null() { None } else { Some(positive(value)?) };
            &["score_cap"]
        }
        Sets::LogitCap => {
            w.logit_cap = if value.is_null() { None } else { Some(positive(value)?) };
            &["logit_cap"]
        }
        Sets::ParallelResidual => {
            w.parallel_residual = flag()?;
            &["parallel_residual"]
        }
        Sets::Reach => {
            let reach = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|reach| *reach > 0);
            w.window = Some(reach.ok_or(Wrong::Type("a number of positions"))?.saturating_mul(2));
            &["window"]
        }
        Sets::Window if value.is_null() => {
            w.window = None;
            &["window"]
        }
        Sets::Window => {
            // LED has a list with a window for each layer.
            let same =
                value.as_array().and_then(|all| all.first().filter(|first| all.iter().all(|n| n == *first)));
            if value.is_array() && same.is_none() {
                return Err(Wrong::Unknown("a number, or a list of equal numbers".into()));
            }
            let value = same.unwrap_or(value);
            let window = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|window| *window > 0);
            w.window = Some(window.ok_or(Wrong::Type("a number of positions, or null"))?);
            &["window"]
        }
        Sets::UsesWindow if flag()? => &[],
        Sets::UsesWindow => {
            w.window = None;
            &["window"]
        }
        Sets::FirstWindowLayer => {
            let first = value.as_u64().and_then(|n| usize::try_from(n).ok());
            let first = first.ok_or(Wrong::Type("the number of a layer"))?;
            w.window_layers = LayerSet::of(first..LayerSet::MOST);
            &["window_layers"]
        }
        Sets::FirstOfEvery | Sets::LastOfEvery => {
            let every = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
            let every = every.ok_or(Wrong::Type("a number of layers"))?;
            let whole = if sets == Sets::FirstOfEvery { 0 } else { every - 1 };
            w.window_layers = LayerSet::of((0..LayerSet::MOST).filter(|layer| layer % every != whole));
            &["window_layers"]
        }
        Sets::LayerTypes if value.is_null() => &[],
        Sets::LayerTypes => {
            let types = value.as_array().ok_or(Wrong::Type("a list with a word for each layer"))?;
            let known = |word: &Value| word == SLIDING || word == FULL;
            if !types.iter().all(known) {
                return Err(Wrong::Unknown(format!("{SLIDING}, {FULL}")));
            }
            let with = types.iter().enumerate().filter(|(_, word)| **word == SLIDING).map(|(layer, _)| layer);
            w.window_layers = Some(LayerSet::of(with).ok_or(Wrong::Type("fewer layers"))?);
            &["window_layers"]
        }
        Sets::AttentionBiases => {
            let on = flag()?;
            (w.biases.q, w.biases.k, w.biases.v, w.biases.attn_out) = (on, on, on, on);
            &["biases"]
        }
        Sets::FeedForwardBiases => {
            w.biases.ffn = flag()?;
            &["biases"]
        }
        Sets::NormBiases => {
            w.biases.norm = flag()?;
            &["biases"]
        }
        Sets::HeadBias => {
            w.biases.head = flag()?;
            &["biases"]
        }
        Sets::Unsupported(only) if serde_json::from_str(only).ok().as_ref() == Some(value) => &[],
        Sets::Unsupported(only) => return Err(Wrong::Unknown(only.to_owned())),
        Sets::NormEps => {
            let eps = value.as_f64().filter(|eps| *eps > 0.0 && *eps < 1.0);
            w.norm_eps = eps.ok_or(Wrong::Type("a small positive number"))?;
            &["norm_eps"]
        }
        Sets::PadPosition => {
            let pad = value.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or(Wrong::Type("a token id"))?;
            w.position_offset = (pad as usize).saturating_add(1);
            &["position_offset"]
        }
        Sets::RelativeMaxDistance => {
            let distance = value.as_u64().and_then(|n| usize::try_from(n).ok());
            w.relative_max_distance = distance.ok_or(Wrong::Type("a whole number"))?;
            &["relative_max_distance"]
        }
        Sets::Activation | Sets::TanhActivation => {
            let word = value.as_str().ok_or(Wrong::Type("the name of an activation"))?;
            let word =
                if word == "gelu" && sets == Sets::TanhActivation { "gelu_pytorch_tanh" } else { word };
            w.activation = Activation::from_config(word)
                .ok_or_else(|| Wrong::Unknown(Activation::ALL.map(Activation::name).join(", ")))?;
            &["activation"]
        }
    })
}

/// Two wide maps that are not the same tensor, in the first layer of some stack.
pub(crate) fn is_gated(lookup: &Lookup<'_>) -> bool {
    Stack::ALL.into_iter().any(|stack| {
        let map = |step| {
            let role = Role::Layer(stack, 0, LayerStep::FeedForward(step));
            lookup.find(&format!("{role}.weight"))
        };
        let gate = map(FeedForwardStep::Gate);
        gate.is_some() && gate != map(FeedForwardStep::Hidden)
    })
}

/// What the tensors show. It outranks the config.
pub(crate) fn observe(
    family: &Family,
    lookup: &Lookup<'_>,
    architecture: &Architecture,
    w: &mut Wiring,
    sources: &mut Sources,
) {
    const TENSORS: &str = "tensors";
    let has = |path: &str| lookup.find(path).is_some();
    let has_hidden = family.stacks.iter().any(|shape| {
        let role = Role::Layer(shape.stack, 0, LayerStep::FeedForward(FeedForwardStep::Hidden));
        has(&format!("{role}.weight"))
    });
    w.gated = is_gated(lookup) || (family.wiring.gated && !has_hidden);
    sources.set("gated", TENSORS);
    if has("src.embed_proj.weight") {
        w.embedding_projection = true;
        sources.set("embedding_projection", TENSORS);
    }
    for side in architecture.sides() {
        let stored = has(&format!("{}.positions.weight", side.name()));
        let (positions, field) = match side {
            Side::Source => (&mut w.source_positions, "source_positions"),
            Side::Target => (&mut w.target_positions, "target_positions"),
        };
        if stored && positions.is_sinusoid() {
            *positions = Positions::Table;
            sources.set(field, TENSORS);
        }
    }
    if w.front == Front::Tokens
        && let (Some(a), Some(b)) = (lookup.find("src.embed.weight"), lookup.find("tgt.embed.weight"))
    {
        w.shared_embeddings = one_tensor(lookup, a.tensor, b.tensor);
        sources.set("shared_embeddings", TENSORS);
    }
    observe_output(lookup, w, sources);
    observe_rotary(lookup, w, sources);
    // T5 scales the logits of a tied output only; where no config says so, the tensors do.
    if w.logit_scale != LogitScale::None && !w.tied_output && sources.get("logit_scale").is_none() {
        w.logit_scale = LogitScale::None;
        sources.set("logit_scale", "tensors: the output is not tied");
    }
    if family.flexible {
        observe_flexible(lookup, architecture, w, sources);
    }
}

/// What a file's own conventions and tensors say of rotary positions.
fn observe_rotary(lookup: &Lookup<'_>, w: &mut Wiring, sources: &mut Sources) {
    if w.rotary_base.is_none() {
        return;
    }
    if let Some(pairs) = lookup.scheme.pairs {
        w.rotary_pairs = Some(pairs);
        sources.set("rotary_layout", format!("files with the names of {}", lookup.scheme.id));
    }
    let has_lists = matches!(w.rotary_scaling, Some(RotaryScaling::StoredLongrope { .. }));
    w.rotary_factors = !has_lists && lookup.find("decoder.0.self_attn.q_rot.weight").is_some();
    if w.rotary_factors {
        sources.set("rotary_factors", "tensors");
    }
}

/// A separate output projection is used, unless a reliable config says that it is a copy.
fn observe_output(lookup: &Lookup<'_>, w: &mut Wiring, sources: &mut Sources) {
    w.biases.logits = lookup.find("logits.bias").is_some();
    if w.tied_output && sources.get("tied_output").is_some() {
        return;
    }
    let table = lookup.find("tgt.embed.weight").or_else(|| lookup.find("src.embed.weight"));
    // Absent: tied, or missing where the family always has one.
    if let Some(own) = lookup.find("logits.weight") {
        w.tied_output = table.is_some_and(|table| one_tensor(lookup, own.tensor, table.tensor));
        sources.set("tied_output", "tensors");
    }
}

/// For families without a fixed shape: a part that no layer has does not exist.
fn observe_flexible(lookup: &Lookup<'_>, architecture: &Architecture, w: &mut Wiring, sources: &mut Sources) {
    let any = |path: &str| {
        architecture.stacks().any(|stack| {
            let layers = 0..architecture.layers(stack);
            layers.into_iter().any(|n| lookup.find(&format!("{}.{n}.{path}", stack.name())).is_some())
        })
    };
    let has = |path: &str| lookup.find(path).is_some();
    let attention = |leaf: &str| any(&format!("self_attn.{leaf}")) || any(&format!("cross_attn.{leaf}"));
    w.biases = Biases {
        q: attention("q.bias"),
        k: attention("k.bias"),
        v: attention("v.bias"),
        attn_out: attention("out.bias"),
        ffn: any("ffn.hidden.bias") || any("ffn.out.bias"),
        norm: any("self_attn.norm.bias"),
        logits: w.biases.logits,
        head: w.biases.head,
    };
    w.encoder_final_norm = has("encoder.out.weight");
    w.decoder_final_norm = has("decoder.out.weight");
    let embedding_norm =
        |present: bool| if present { EmbeddingNorm::AfterPositions } else { EmbeddingNorm::None };
    w.source_embedding_norm = embedding_norm(has("src.embed_pos.weight"));
    w.target_embedding_norm = embedding_norm(has("tgt.embed_pos.weight"));
    for field in [
        "biases",
        "encoder_final_norm",
        "decoder_final_norm",
        "source_embedding_norm",
        "target_embedding_norm",
    ] {
        sources.set(field, "tensors");
    }
}

fn one_tensor(lookup: &Lookup<'_>, a: usize, b: usize) -> bool {
    lookup.tensors[a].storage == lookup.tensors[b].storage
}

/// The head of a family for another task than predicting tokens, where the file holds its maps. Files that were trained for one
/// task may hold what another one needs: `said` is the task that a config names.
fn task_head(
    family: &Family,
    lookup: &Lookup<'_>,
    configs: &Configs<'_>,
    said: Option<Task>,
) -> Option<(Classifier, Task)> {
    let output = lookup.find(&format!("{}.weight", Role::Logits))?;
    let name = &lookup.tensors[output.tensor].name;
    let classes = output.shape(lookup.tensors).first().copied()?;
    let is_said = |&(key, value): &(&'static str, &str)| {
        configs.of_model(&[key]).is_some_and(|said| said.value.as_str() == Some(value))
    };
    let fits = |head: &&KnownHead| {
        let is_task = said.is_none_or(|said| said == head.task);
        name.ends_with(head.output) && is_task && head.only_with.as_ref().is_none_or(is_said)
    };
    // A file of BERT's first training has both a pooler and the head for masked words: it is for the words.
    let dense = lookup.find(&format!("{}.weight", Role::Head(HeadStep::Dense)));
    let map = |n: usize| lookup.find(&format!("{}.weight", Role::Block(n, BlockStep::Linear)));
    family.task_heads.iter().filter(fits).find_map(|head| {
        let uses = |dense: &Found| (0..head.blocks.len()).any(|n| map(n).as_ref() == Some(dense));
        let blocks = head.blocks.iter().enumerate().map(|(n, block)| found_block(lookup, n, block));
        let blocks = blocks.collect::<Option<Vec<Block>>>()?;
        let is_for_words = dense.as_ref().is_some_and(|dense| !uses(dense));
        (!is_for_words).then_some((Classifier { blocks, classes, length: None }, head.task))
    })
}

/// A block with the width that the file has; `None` where the file lacks its map.
fn found_block(lookup: &Lookup<'_>, n: usize, block: &Block) -> Option<Block> {
    let Block::Linear { .. } = block else { return Some(*block) };
    let found = lookup.find(&format!("{}.weight", Role::Block(n, BlockStep::Linear)))?;
    Some(Block::Linear { features: found.shape(lookup.tensors).first().copied()? })
}

/// The head after the last stack, as far as the file has it, and what it is for where that is not to predict tokens.
pub(crate) fn head(
    family: &Family,
    lookup: &Lookup<'_>,
    configs: &Configs<'_>,
    said: Option<Task>,
) -> (Head, Option<Task>) {
    if let Some((classifier, task)) = task_head(family, lookup, configs, said) {
        return (Head::Classifier(classifier), Some(task));
    }
    let head = match &family.head {
        Head::Transform if lookup.find(&format!("{}.weight", Role::Head(HeadStep::Dense))).is_none() => {
            Head::None
        }
        head => head.clone(),
    };
    (head, None)
}
