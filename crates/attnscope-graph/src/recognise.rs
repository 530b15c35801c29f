//! From names, shapes and configs to a model: its family, sizes and wiring, with the source of each fact.

use serde_json::{Value, json};

use crate::architecture::{Architecture, Head};
use crate::bind::{Binding, Slot, bind, elements};
use crate::build::build;
use crate::contradiction::{note_absent, note_gate};
use crate::dim::{Dim, Sizes, Stack};
use crate::facts::{Config, Configs, Fact, FactError, TOKEN_KEYS, Topic};
use crate::family::Family;
use crate::graph::{Graph, WeightId};
use crate::identify::Identified;
use crate::measure::measure;
use crate::names::{Lookup, NameScheme, TensorSpec};
use crate::observe::{self, Sources};
use crate::other::{Other, OtherKind, adapter, classify, not_supported};
use crate::rotary::RotaryScaling;
use crate::wiring::{CrossMask, EmbeddingScale, PositionCount, Positions, Switch, Wiring};

/// A model: everything that is known without running it.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its family, or the closest one.
    pub family: &'static Family,
    /// What its config calls it, where that is no known family: it is drawn as the closest family.
    pub unknown_type: Option<String>,
    /// How its weights are named.
    pub scheme: &'static NameScheme,
    /// What stands before the names: `model.`.
    pub prefix: String,
    /// Its stacks and their layers.
    pub architecture: Architecture,
    /// How it is joined.
    pub wiring: Wiring,
    /// Its sizes, as far as they are known.
    pub sizes: Sizes,
    /// Its nodes: always what [`build`] makes of the architecture and the wiring.
    pub graph: Graph,
    /// Which tensors its weights are.
    pub binding: Binding,
    /// The tensors of the file.
    pub tensors: Vec<TensorSpec>,
    /// Everything above with its sources, for a reader.
    pub facts: Vec<Fact>,
    /// Why a run is not possible, if it is not.
    pub obstacles: Vec<String>,
}

/// What a file turned out to hold.
#[derive(Debug)]
pub enum Recognised {
    /// A model that this program draws and runs.
    Model(Box<Model>),
    /// Something else, described as far as possible.
    Other(Other),
}

/// Finds out what a listing of tensors is. `heads` is given by the user and outranks every document.
pub fn recognise(
    tensors: Vec<TensorSpec>,
    configs: &[Config<'_>],
    heads: Option<usize>,
) -> Result<Recognised, FactError> {
    let configs = Configs(configs);
    if let Some(other) = adapter(&tensors, &configs).or_else(|| not_supported(&tensors, &configs)) {
        return Ok(Recognised::Other(other));
    }
    let Some(found) = Identified::find(&tensors, &configs)? else {
        return Ok(Recognised::Other(classify(&tensors, &configs)));
    };
    let lookup = Lookup::new(found.scheme, found.prefix.clone(), &tensors);
    let mut sources = Sources::default();
    let mut obstacles = Vec::new();
    let mut wiring = observe::configure(found.family, &configs, found.named, &mut sources, &mut obstacles)?;
    observe::observe(found.family, &lookup, &found.architecture, &mut wiring, &mut sources);
    observe::settle_window(&found.architecture, &mut wiring);
    wiring.layer_groups = found.layer_groups;
    let mut graph = build(&found.architecture, &wiring);
    let mut facts = found.facts.clone();
    let sizes = measure(&graph, &lookup, &configs, &found.architecture, &wiring, heads, &mut facts)?;
    if let Some(buckets) = relative_buckets(&found.architecture, &sizes) {
        // The number of rows comes from the table itself, and the graph is built with it.
        wiring.relative_buckets = buckets;
        graph = build(&found.architecture, &wiring);
    }
    settle_kv_heads(&found.architecture, &sizes, &mut wiring);
    let binding = bind(&graph, &sizes, &lookup);
    if let Some(word) = &found.unknown {
        // With less than half in common it is not similar.
        if binding.bound() * 2 < graph.weights().len() {
            let because = format!("config.json calls it {word:?}, and no known family is close to it");
            return Ok(Recognised::Other(Other { kind: OtherKind::EncoderDecoder, family: None, because }));
        }
        obstacles.push(format!(
            "{word:?} is not a known family; it is drawn as the closest, {}",
            found.family.title
        ));
    }
    facts.extend(wiring_facts(&found.architecture, &wiring, found.family, &sources));
    note_tie(&configs, &wiring, &mut facts)?;
    if found.named {
        note_absent(found.family, &configs, &mut facts);
        note_gate(found.family, &configs, &mut facts);
    }
    facts.extend(token_facts(&configs));
    let (family, scheme, prefix) = (found.family, found.scheme, found.prefix);
    let (unknown_type, architecture) = (found.unknown, found.architecture);
    obstacles.extend(obstacles_of(&architecture, &graph, &sizes, &binding, &facts));
    obstacles.extend(empty_weights(&graph, &binding, &tensors));
    obstacles.extend(near_distance(&wiring, &sizes, &facts));
    obstacles.extend(rotary_obstacle(&architecture, &wiring, &sizes));
    let model = Model {
        family,
        unknown_type,
        scheme,
        prefix,
        architecture,
        wiring,
        sizes,
        graph,
        binding,
        tensors,
        facts,
        obstacles,
    };
    Ok(Recognised::Model(Box::new(model)))
}

impl Model {
    /// The family's name to a reader, or the model's own where the family is only the closest.
    pub fn title(&self) -> String {
        match &self.unknown_type {
            Some(word) => format!("{word}, drawn as {}", self.family.title),
            None => self.family.title.to_owned(),
        }
    }

    /// Whether the decoder reads the target shifted right by one, after a start token. The graph begins after the shift.
    pub fn shifts_target(&self) -> bool {
        self.wiring.decoder_shift == Switch::On
    }

    /// Tensors among the model's own that no node uses: not an optimizer's, not a counter, not a head for another task.
    pub fn unused_of_model(&self) -> Vec<usize> {
        let head = self.task_head().map(|head| head.tensors).unwrap_or_default();
        let own = |&i: &usize| {
            let tensor = &self.tensors[i];
            let is_matrix = tensor.shape.iter().product::<usize>() > 1;
            tensor.name.starts_with(&self.prefix) && is_matrix && !head.contains(&i)
        };
        self.binding.unused.iter().copied().filter(own).collect()
    }

    /// The elements of a weight; 0 if the file does not have it.
    pub fn elements(&self, weight: WeightId) -> u64 {
        match self.binding.slot(weight) {
            Slot::Bound(found) => elements(found, &self.tensors),
            Slot::Missing { .. } | Slot::Mismatched { .. } => 0,
        }
    }

    /// Whether a weight is bound to a constant of the model, not to a parameter.
    pub fn is_buffer(&self, weight: WeightId) -> bool {
        match self.binding.slot(weight) {
            Slot::Bound(found) => self.scheme.is_buffer(&self.tensors[found.tensor].name),
            Slot::Missing { .. } | Slot::Mismatched { .. } => false,
        }
    }

    /// Distinct elements of the weights that the file has: (parameters, buffers).
    pub fn parameters(&self) -> (u64, u64) {
        let (mut parameters, mut buffers) = (0u64, 0u64);
        let mut seen = std::collections::HashSet::new();
        for (_, slot) in self.binding.iter() {
            let Slot::Bound(found) = slot else { continue };
            let tensor = &self.tensors[found.tensor];
            if !seen.insert((tensor.storage, found.rows.clone())) {
                continue;
            }
            let n = elements(found, &self.tensors);
            let sum = if self.scheme.is_buffer(&tensor.name) { &mut buffers } else { &mut parameters };
            *sum = n.saturating_add(*sum);
        }
        (parameters, buffers)
    }
}

/// The source of a fact that the file does not tell.
pub const ASSUMED: &str = "not known from the file, assumed";

/// A fact for each field of the wiring that applies, in the wiring's order.
fn wiring_facts(
    architecture: &Architecture,
    wiring: &Wiring,
    family: &Family,
    sources: &Sources,
) -> Vec<Fact> {
    let Ok(Value::Object(fields)) = serde_json::to_value(wiring) else { return Vec::new() };
    let default = format!("{}'s default", family.title);
    let positions = [wiring.source_positions, wiring.target_positions];
    let [encoder, decoder] = Stack::ALL.map(|stack| architecture.has(stack));
    // Fields of a stack that the model lacks, or of a feature that is off, do not apply.
    let idle = |name: &str| match name {
        // Blocks that read embeddings have no part of a Transformer.
        _ if !encoder && !decoder => !matches!(name, "source_positions" | "embedding_scale"),
        "source_positions" | "source_embedding_norm" | "encoder_final_norm" | "front" if !encoder => true,
        "target_positions" | "target_embedding_norm" | "decoder_final_norm" | "causal_mask" if !decoder => {
            true
        }
        "cross_mask" | "decoder_shift" | "shared_embeddings" | "scales_target" if !(encoder && decoder) => {
            true
        }
        "tied_output" | "logit_scale" if architecture.head == Head::None => true,
        "relative_buckets" | "relative_max_distance" => !wiring.relative_bias,
        "position_offset" => positions.iter().all(|p| *p == Positions::None),
        "position_count" => wiring.position_count == PositionCount::Places,
        "cross_mask" => wiring.padding_mask == Switch::Off && wiring.cross_mask == CrossMask::Padding,
        "residual_gain_at" => wiring.residual_gain == 1.0,
        "scales_target" => wiring.embedding_scale == EmbeddingScale::None,
        _ => false,
    };
    fields
        .into_iter()
        .filter(|(name, _)| !idle(name))
        .map(|(name, value)| {
            let usual = if family.unsaid.contains(&name.as_str()) { ASSUMED } else { &default };
            let source = sources.get(&name).cloned().unwrap_or_else(|| usual.to_owned());
            Fact { topic: Topic::Wiring, name, value, source, disagree: Vec::new() }
        })
        .collect()
}

/// Newer configs call an output tied although the file stores it separately.
fn note_tie(configs: &Configs<'_>, wiring: &Wiring, facts: &mut [Fact]) -> Result<(), FactError> {
    let said = configs.flag(&["tie_word_embeddings"])?.filter(|said| said.value != wiring.tied_output);
    let fact = facts.iter_mut().find(|f| f.name == "tied_output");
    if let (Some(said), Some(fact)) = (said, fact) {
        fact.disagree.push((said.source, json!(said.value)));
    }
    Ok(())
}

fn token_facts(configs: &Configs<'_>) -> Vec<Fact> {
    let token = |&(name, keys): &(&str, &[&str])| {
        let said = configs.first(keys)?;
        Some(Fact {
            topic: Topic::Tokens,
            name: name.into(),
            value: said.value.clone(),
            source: said.source,
            disagree: Vec::new(),
        })
    };
    TOKEN_KEYS.iter().filter_map(token).collect()
}

/// Keys and values have as many heads as their width has room for.
pub(crate) fn settle_kv_heads(architecture: &Architecture, sizes: &Sizes, wiring: &mut Wiring) {
    let shown = architecture.stacks().find_map(|stack| sizes.get(Dim::KvHeads(stack)));
    wiring.kv_heads = wiring.kv_heads.map(|said| shown.unwrap_or(said));
}

/// The rows of the first stack's relative position table, where it has one.
fn relative_buckets(architecture: &Architecture, sizes: &Sizes) -> Option<usize> {
    architecture.stacks().find_map(|stack| sizes.get(Dim::Buckets(stack)))
}

/// Everything that prevents a run, in words.
pub(crate) fn obstacles_of(
    architecture: &Architecture,
    graph: &Graph,
    sizes: &Sizes,
    binding: &Binding,
    facts: &[Fact],
) -> Vec<String> {
    let mut obstacles = Vec::new();
    for stack in architecture.stacks() {
        let (inner, heads) = (sizes.get(Dim::Inner(stack)), sizes.get(Dim::Heads(stack)));
        match (inner, heads) {
            (_, None) => obstacles.push(format!(
                "the number of {} heads is not in the file: give it with --heads",
                stack.name()
            )),
            (Some(inner), Some(heads)) if heads == 0 || !inner.is_multiple_of(heads) => {
                let name = format!("{} heads", stack.name());
                let source = facts.iter().find(|f| f.name == name).map_or("", |f| f.source.as_str());
                obstacles.push(format!(
                    "{heads} {} heads ({source}) do not divide the width {inner} of the q projection",
                    stack.name()
                ));
            }
            _ => {}
        }
        obstacles.extend(kv_obstacle(stack, sizes));
    }
    let missing = binding.missing().count();
    if missing > 0 {
        obstacles.push(format!("{missing} of {} weights are missing", graph.weights().len()));
    }
    let mismatched = binding.mismatched().count();
    if mismatched > 0 {
        obstacles.push(format!("{mismatched} of {} weights have the wrong shape", graph.weights().len()));
    }
    obstacles
}

/// Query heads share those of keys and values in equal groups.
fn kv_obstacle(stack: Stack, sizes: &Sizes) -> Option<String> {
    let width = sizes.get(Dim::KvInner(stack))?;
    let (heads, size) = (sizes.get(Dim::Heads(stack))?, sizes.get(Dim::Head(stack))?);
    match sizes.get(Dim::KvHeads(stack)) {
        Some(kv_heads) if kv_heads > 0 && heads.is_multiple_of(kv_heads) => None,
        Some(kv_heads) => {
            Some(format!("{kv_heads} heads of keys and values do not divide {heads} {} heads", stack.name()))
        }
        None => {
            Some(format!("the width {width} of the k projection is no multiple of the head width {size}"))
        }
    }
}

/// What prevents rotary positions from being computed.
fn rotary_obstacle(architecture: &Architecture, wiring: &Wiring, sizes: &Sizes) -> Option<String> {
    let stack = architecture.stacks().find(|stack| wiring.positions(stack.side()) == Positions::Rotary)?;
    let pairs = wiring.rotary_of(0).rotated(sizes.get(Dim::Head(stack))?) / 2;
    let Some(RotaryScaling::Longrope { short, long, .. }) = wiring.rotary_scaling else { return None };
    let counts = [short.count(), long.count()];
    (counts != [pairs; 2]).then(|| {
        let [short, long] = counts;
        format!("longrope has {short} and {long} factors for the {pairs} pairs of a head's rotated features")
    })
}

/// In a model of size 0, a tensor without elements has the right shape, but nothing can be computed.
fn empty_weights(graph: &Graph, binding: &Binding, tensors: &[TensorSpec]) -> Option<String> {
    let is_empty = |(_, slot): &(WeightId, &Slot)| match slot {
        Slot::Bound(found) => elements(found, tensors) == 0,
        Slot::Missing { .. } | Slot::Mismatched { .. } => false,
    };
    let (first, _) = binding.iter().find(is_empty)?;
    let count = binding.iter().filter(is_empty).count();
    let path = &graph.weight(first).path;
    Some(format!("{count} of {} weights have no elements, {path} first", graph.weights().len()))
}

/// Half of the decoder's buckets hold one distance each; the others share the distances beyond, up to the largest, which must
/// therefore be larger.
fn near_distance(wiring: &Wiring, sizes: &Sizes, facts: &[Fact]) -> Option<String> {
    let buckets = sizes.get(Dim::Buckets(Stack::Decoder)).filter(|_| wiring.relative_bias)?;
    let distance = wiring.relative_max_distance;
    let source = facts.iter().find(|f| f.name == "relative_max_distance").map_or("", |f| f.source.as_str());
    (distance <= buckets / 2).then(|| {
        format!(
            "the largest distance, {distance} ({source}), must be more than half of the {buckets} buckets"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::FAMILIES;
    use crate::listing::{family, recognised, tensors};

    /// The weights of a family's graph, under the names of its scheme, are recognised as that family with nothing missing.
    #[test]
    fn every_family_recognises_its_own_listing() {
        for family in FAMILIES {
            let model = recognised(tensors(family, 2), family, &[("num_hidden_layers", json!(2))]);
            assert_eq!(model.family.id, family.id);
            assert!(model.binding.is_complete(), "{}: {:?}", family.id, model.obstacles);
            assert_eq!(model.graph, build(&model.architecture, &model.wiring), "{}", family.id);
            for stack in model.architecture.stacks() {
                assert_eq!(model.graph.layers(stack), 2, "{}", family.id);
            }
            assert!(model.binding.unused.is_empty(), "{}: {:?}", family.id, model.binding.unused);
        }
    }

    #[test]
    fn the_target_is_shifted_unless_the_wiring_says_otherwise() {
        let marian = family("marian");
        let model = recognised(tensors(marian, 1), marian, &[]);
        let with = |value| model.with_wiring(&[("decoder_shift".to_owned(), json!(value))]).unwrap();
        assert_eq!([model.clone(), with("on"), with("off")].map(|m| m.shifts_target()), [true, true, false]);
    }

    #[test]
    fn a_setting_that_is_not_run_is_an_obstacle() {
        let cases = [
            ("gpt2", "scale_attn_by_inverse_layer_idx", json!(true)),
            ("llama", "rope_parameters", json!({ "rope_type": "spiral", "rope_theta": 10000.0 })),
            ("bert", "position_embedding_type", json!("relative_key")),
            ("marian", "activation_function", json!("mish")),
        ];
        for (id, key, value) in cases {
            let family = family(id);
            let model = recognised(tensors(family, 1), family, &[(key, value)]);
            assert_eq!(model.obstacles.len(), 1, "{id}: {:?}", model.obstacles);
            assert!(model.obstacles[0].contains(key), "{id}: {:?}", model.obstacles);
        }
    }

    #[test]
    fn a_key_within_another_sets_the_rotary_base() {
        let llama = family("llama");
        let nested = json!({ "rope_type": "default", "rope_theta": 5000.0 });
        for (key, value) in [("rope_parameters", nested), ("rope_theta", json!(5000.0))] {
            let model = recognised(tensors(llama, 1), llama, &[(key, value)]);
            assert_eq!(model.wiring.rotary_base, Some(5000.0), "{key}");
            assert!(model.obstacles.is_empty(), "{key}: {:?}", model.obstacles);
        }
    }
}
