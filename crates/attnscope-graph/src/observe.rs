//! From a family's default wiring to this model's: what its config sets, then what its tensors show.

use std::collections::BTreeMap;

use crate::build::Layers;
use crate::dim::{Side, Stack};
use crate::facts::{Configs, FactError};
use crate::family::{Family, Sets};
use crate::names::Lookup;
use crate::wiring::{
    Activation, Biases, EmbeddingNorm, EmbeddingScale, Front, LogitScale, NormPlace, Positions, Wiring,
};

/// Who set which field of a wiring.
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

/// The family's wiring as its config sets it.
pub(crate) fn configure(
    family: &Family,
    configs: &Configs<'_>,
    sources: &mut Sources,
) -> Result<Wiring, FactError> {
    let mut w = family.wiring;
    for setting in family.settings {
        let keys = setting.keys;
        let on = |set: &mut dyn FnMut(bool), sources: &mut Sources, fields: &[&'static str]| {
            let said = configs.flag(keys)?;
            if let Some(said) = said {
                set(said.value);
                fields.iter().for_each(|f| sources.set(f, said.source.clone()));
            }
            Ok::<(), FactError>(())
        };
        match setting.sets {
            Sets::EmbeddingScale => on(&mut |b| w.embedding_scale = scale(b), sources, &["embedding_scale"])?,
            Sets::NoEmbeddingScale => {
                on(&mut |b| w.embedding_scale = scale(!b), sources, &["embedding_scale"])?;
            }
            Sets::NormBefore => on(
                &mut |b| w.norm_place = if b { NormPlace::Pre } else { NormPlace::Post },
                sources,
                &["norm_place"],
            )?,
            Sets::LearnedPositions => on(
                &mut |b| {
                    if b {
                        (w.source_positions, w.target_positions) = (Positions::Table, Positions::Table);
                    }
                },
                sources,
                &["source_positions", "target_positions"],
            )?,
            Sets::TiedOutput => on(&mut |b| w.tied_output = b, sources, &["tied_output"])?,
            Sets::LogitScale => on(
                &mut |b| w.logit_scale = if b { LogitScale::RsqrtDModel } else { LogitScale::None },
                sources,
                &["logit_scale"],
            )?,
            Sets::NormEps => {
                if let Some(said) = configs.number(keys)? {
                    if !(said.value > 0.0 && said.value < 1.0) {
                        return Err(said.wrong("a small positive number", said.value.to_string()));
                    }
                    w.norm_eps = said.value;
                    sources.set("norm_eps", said.source);
                }
            }
            Sets::RelativeBuckets | Sets::RelativeMaxDistance => {
                if let Some(said) = configs.sizes(keys)?.into_iter().next() {
                    let buckets = setting.sets == Sets::RelativeBuckets;
                    *(if buckets { &mut w.relative_buckets } else { &mut w.relative_max_distance }) =
                        said.value;
                    sources
                        .set(if buckets { "relative_buckets" } else { "relative_max_distance" }, said.source);
                }
            }
            Sets::Activation | Sets::FeedForward => {
                if let Some(said) = configs.word(keys)? {
                    let word = said.value.strip_prefix("gated-").unwrap_or(said.value);
                    // T5 calls the tanh form of its gate plain "gelu".
                    let word = if said.value == "gated-gelu" { "gelu_new" } else { word };
                    w.activation = Activation::from_config(word).ok_or_else(|| {
                        said.wrong("the name of an activation", format!("{:?}", said.value))
                    })?;
                    sources.set("activation", said.source);
                }
            }
        }
    }
    Ok(w)
}

fn scale(on: bool) -> EmbeddingScale {
    if on { EmbeddingScale::SqrtDModel } else { EmbeddingScale::None }
}

/// Two wide maps that are not the same tensor.
pub(crate) fn is_gated(lookup: &Lookup<'_>) -> bool {
    let gate = lookup.find("encoder.0.ffn.gate.weight");
    gate.is_some() && gate != lookup.find("encoder.0.ffn.hidden.weight")
}

/// What the tensors show, which outranks what a config says.
pub(crate) fn observe(
    family: &Family,
    lookup: &Lookup<'_>,
    layers: Layers,
    w: &mut Wiring,
    sources: &mut Sources,
) {
    const TENSORS: &str = "tensors";
    let has = |path: &str| lookup.find(path).is_some();
    w.gated = is_gated(lookup) || (family.wiring.gated && !has("encoder.0.ffn.hidden.weight"));
    sources.set("gated", TENSORS);
    for side in [Side::Source, Side::Target] {
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
    if family.flexible {
        observe_flexible(lookup, layers, w, sources);
    }
}

/// An output projection of its own is used, unless a config that can be believed says that it is a copy.
fn observe_output(lookup: &Lookup<'_>, w: &mut Wiring, sources: &mut Sources) {
    w.biases.logits = lookup.find("logits.bias").is_some();
    if w.tied_output && sources.get("tied_output").is_some() {
        return;
    }
    let table = lookup.find("tgt.embed.weight").or_else(|| lookup.find("src.embed.weight"));
    match (lookup.find("logits.weight"), table) {
        (Some(own), Some(table)) => w.tied_output = one_tensor(lookup, own.tensor, table.tensor),
        (Some(_), None) => w.tied_output = false,
        // Absent: tied, or missing where the family always has one.
        (None, _) => {}
    }
    sources.set("tied_output", "tensors");
}

/// For families without a fixed shape: what is in no layer does not exist.
fn observe_flexible(lookup: &Lookup<'_>, layers: Layers, w: &mut Wiring, sources: &mut Sources) {
    let any = |path: &str| {
        let stacks = [(Stack::Encoder, layers.encoder), (Stack::Decoder, layers.decoder)];
        let in_stack = |(stack, n): (Stack, usize)| {
            (0..n).any(|i| lookup.find(&format!("{}.{i}.{path}", stack.name())).is_some())
        };
        stacks.into_iter().any(in_stack)
    };
    let has = |path: &str| lookup.find(path).is_some();
    w.biases = Biases {
        q: any("self_attn.q.bias"),
        k: any("self_attn.k.bias"),
        v: any("self_attn.v.bias"),
        attn_out: any("self_attn.out.bias"),
        ffn: any("ffn.hidden.bias"),
        norm: any("self_attn.norm.bias"),
        logits: w.biases.logits,
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
    let storage = |i: usize| lookup.tensors[i].storage;
    a == b || (storage(a).is_some() && storage(a) == storage(b))
}
