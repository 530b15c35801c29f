//! Listings of tensors for tests, as a family's own files have them.

use serde_json::{Map, Value, json};

use crate::architecture::Architecture;
use crate::dim::{Dim, Side, Sizes, Stack};
use crate::facts::Config;
use crate::family::{FAMILIES, Family};
use crate::names::TensorSpec;
use crate::plan::plan_tensors;
use crate::recognise::{Model, Recognised, recognise};

/// A family by its name.
pub(crate) fn family(id: &str) -> &'static Family {
    FAMILIES.iter().find(|family| family.id == id).unwrap()
}

/// Sizes that are all different, so that no two can be confused.
pub(crate) fn sizes() -> Sizes {
    let mut sizes = Sizes::default();
    for (stack, inner, heads, kv, wide) in [(Stack::Encoder, 24, 4, 12, 40), (Stack::Decoder, 24, 4, 12, 44)]
    {
        sizes.set(Dim::Inner(stack), inner);
        sizes.set(Dim::Heads(stack), heads);
        sizes.set(Dim::KvInner(stack), kv);
        sizes.set(Dim::FeedForward(stack), wide);
        sizes.set(Dim::Buckets(stack), 8);
    }
    for side in [Side::Source, Side::Target] {
        sizes.set(Dim::Vocab(side), 99);
        sizes.set(Dim::Positions(side), 34);
    }
    sizes.set(Dim::Model, 20);
    sizes.set(Dim::Embedding, 16);
    sizes.set(Dim::Mels, 10);
    sizes.set(Dim::Types, 2);
    sizes.set(Dim::RotaryPairs(Stack::Decoder), 3);
    sizes
}

/// The tensors of a family's model as its first naming scheme calls them, each stored once.
pub(crate) fn tensors(family: &Family, layers: usize) -> Vec<TensorSpec> {
    let architecture = Architecture::new(family.stacks, family.head.clone(), |_| layers);
    plan_tensors(family, &architecture, &family.wiring, &sizes(), "").unwrap()
}

/// The model that a listing is recognised as, with a config that names its family.
pub(crate) fn recognised(tensors: Vec<TensorSpec>, family: &Family, more: &[(&str, Value)]) -> Model {
    let mut facts = Map::new();
    facts.insert("model_type".into(), json!(family.model_types[0]));
    facts.insert("num_attention_heads".into(), json!(4));
    facts.insert("num_heads".into(), json!(4));
    for (key, value) in more {
        facts.insert((*key).to_owned(), value.clone());
    }
    let configs = [Config { source: "config.json", facts: &facts }];
    match recognise(tensors, &configs, None).unwrap() {
        Recognised::Model(model) => *model,
        Recognised::Other(other) => panic!("{}: {other:?}", family.id),
    }
}
