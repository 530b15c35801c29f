//! Every size of a model, by majority of its tensors, and what other sources say.

use std::collections::BTreeMap;

use crate::architecture::Architecture;
use crate::dim::{Dim, Side, Sizes};
use crate::facts::{Configs, Fact, FactError, SIZE_KEYS};
use crate::graph::Graph;
use crate::names::Lookup;
use crate::wiring::{Front, Positions, Wiring};

/// Every size, from the shapes of the tensors by majority, then from configs.
pub(crate) fn measure(
    graph: &Graph,
    lookup: &Lookup<'_>,
    configs: &Configs<'_>,
    architecture: &Architecture,
    wiring: &Wiring,
    heads: Option<usize>,
    facts: &mut Vec<Fact>,
) -> Result<Sizes, FactError> {
    let mut sizes = Sizes::default();
    let votes = votes(graph, lookup);
    for (&dim, counts) in &votes {
        if let Some((&size, _)) = counts.iter().max_by_key(|(_, n)| **n) {
            sizes.set(dim, size);
        }
    }
    if let (true, Some(rows)) = (wiring.shared_embeddings, sizes.get(Dim::Vocab(Side::Source))) {
        sizes.set(Dim::Vocab(Side::Target), rows);
    }
    for row in SIZE_KEYS.iter().filter(|row| is_of(row.dim, architecture)) {
        let said = configs.sizes(row.keys)?;
        let given = heads.filter(|_| matches!(row.dim, Dim::Heads(_)));
        let stored_rows = votes.contains_key(&row.dim);
        let derived = sizes.get(row.dim);
        // A config's number of positions does not include the rows that an offset skips, but in RoBERTa's family.
        let includes_skipped = said.iter().any(|said| Some(said.value) == derived);
        let skipped = match row.dim {
            Dim::Positions(_) if stored_rows && !includes_skipped => wiring.position_offset,
            _ => 0,
        };
        let (size, source) = match (given, derived, said.first()) {
            (Some(n), ..) => (n, "--heads".to_owned()),
            (None, Some(n), _) if matches!(row.dim, Dim::Head(_)) => (n, "width of q ÷ heads".to_owned()),
            (None, Some(n), _) => (n - skipped.min(n), "tensor shapes".to_owned()),
            (None, None, Some(first)) if applies(row.dim, wiring) => (first.value, first.source.clone()),
            _ => continue,
        };
        if derived.is_none() || given.is_some() {
            sizes.set(row.dim, size);
        }
        facts.push(Fact::size(row.name, size, source, &said));
    }
    Ok(sizes)
}

/// Whether a dimension belongs to a stack or a sequence that the model has.
fn is_of(dim: Dim, architecture: &Architecture) -> bool {
    match dim {
        Dim::Heads(stack)
        | Dim::Head(stack)
        | Dim::Inner(stack)
        | Dim::KvHeads(stack)
        | Dim::KvInner(stack)
        | Dim::FeedForward(stack) => architecture.has(stack),
        Dim::Vocab(side) | Dim::Positions(side) => architecture.sides().any(|own| own == side),
        // One row of the report for all stacks.
        Dim::Buckets(_) => true,
        Dim::Batch
        | Dim::Source
        | Dim::Target
        | Dim::Model
        | Dim::Embedding
        | Dim::Mels
        | Dim::Frames
        | Dim::Types
        | Dim::RotaryPairs(_)
        | Dim::Convolved(_)
        | Dim::Fixed(_) => true,
    }
}

/// Whether a size that only a config gives applies to this model.
fn applies(dim: Dim, wiring: &Wiring) -> bool {
    match dim {
        Dim::Positions(side) => wiring.positions(side) != Positions::None,
        Dim::Mels => wiring.front == Front::Audio,
        Dim::Buckets(_) => wiring.relative_bias,
        // These come from the tensors or are unknown.
        Dim::Head(_) | Dim::KvHeads(_) => false,
        Dim::Types => wiring.token_types,
        Dim::Embedding => wiring.embedding_projection,
        Dim::Vocab(Side::Source) => wiring.front == Front::Tokens,
        _ => true,
    }
}

/// How many tensors give each size of a dimension. One odd tensor does not outvote the rest.
fn votes(graph: &Graph, lookup: &Lookup<'_>) -> BTreeMap<Dim, BTreeMap<usize, usize>> {
    let mut votes: BTreeMap<Dim, BTreeMap<usize, usize>> = BTreeMap::new();
    for weight in graph.weights() {
        let Some(found) = lookup.find(&weight.path) else { continue };
        let mut shape = found.shape(lookup.tensors);
        if shape.len() != weight.dims.len() {
            shape.retain(|&n| n != 1);
        }
        if shape.len() != weight.dims.len() {
            continue;
        }
        for (&dim, &size) in weight.dims.iter().zip(&shape) {
            if !matches!(dim, Dim::Fixed(_)) {
                *votes.entry(dim).or_default().entry(size).or_default() += 1;
            }
        }
    }
    votes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::Stack;
    use crate::listing::{family, recognised, tensors};

    #[test]
    fn one_odd_tensor_does_not_outvote_the_rest() {
        let bart = family("bart");
        let mut listed = tensors(bart, 2);
        let odd = listed.iter().position(|t| t.name.ends_with("encoder.layers.1.fc1.weight")).unwrap();
        listed[odd].shape = vec![41, 21];
        let model = recognised(listed, bart, &[]);
        assert_eq!(model.sizes.get(Dim::Model), Some(20));
        assert_eq!(model.sizes.get(Dim::FeedForward(Stack::Encoder)), Some(40));
    }

    #[test]
    fn heads_of_keys_follow_from_their_width() {
        let llama = family("llama");
        let model = recognised(tensors(llama, 1), llama, &[]);
        let heads = [Dim::Heads, Dim::Head, Dim::KvHeads].map(|dim| model.sizes.get(dim(Stack::Decoder)));
        assert_eq!(heads, [Some(4), Some(6), Some(2)]);
        // There is no encoder, so no fact mentions one.
        assert_eq!(model.sizes.get(Dim::Heads(Stack::Encoder)), None);
        assert!(
            model.facts.iter().all(|fact| !fact.name.contains("encoder") && !fact.name.contains("source"))
        );
    }
}
