//! Which tensor of a file is which weight of the graph: a report, not a crash.

use std::collections::HashSet;

use crate::dim::Sizes;
use crate::graph::{Graph, WeightId};
use crate::names::{Found, Lookup, TensorSpec};
use crate::op::Op;

/// Which tensor each weight of the graph is bound to, and which tensors are left over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    slots: Vec<Slot>,
    /// Tensors that no node uses.
    pub unused: Vec<usize>,
    /// Tensors that are a second name of a bound weight.
    pub aliases: Vec<(usize, WeightId)>,
}

/// The state of one weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// Found, with the shape that the graph expects.
    Bound(Found),
    /// Not in the file.
    Missing {
        /// What the file would call it.
        name: String,
    },
    /// In the file, with another shape.
    Mismatched {
        /// The tensor.
        found: Found,
        /// The shape that the rest of the model needs.
        expected: Vec<usize>,
        /// What the file has.
        shape: Vec<usize>,
    },
}

impl Binding {
    /// The state of a weight.
    pub fn slot(&self, weight: WeightId) -> &Slot {
        &self.slots[weight.index()]
    }

    /// Each weight with its state.
    pub fn iter(&self) -> impl Iterator<Item = (WeightId, &Slot)> {
        self.slots.iter().enumerate().map(|(i, s)| (WeightId(i), s))
    }

    /// How many weights are bound.
    pub fn bound(&self) -> usize {
        self.slots.iter().filter(|s| matches!(s, Slot::Bound(_))).count()
    }

    /// Weights that the file does not have.
    pub fn missing(&self) -> impl Iterator<Item = (WeightId, &str)> {
        self.iter().filter_map(|(id, s)| match s {
            Slot::Missing { name } => Some((id, name.as_str())),
            _ => None,
        })
    }

    /// Weights whose tensor has the wrong shape: tensor, expected, found.
    pub fn mismatched(&self) -> impl Iterator<Item = (WeightId, usize, &[usize], &[usize])> {
        self.iter().filter_map(|(id, s)| match s {
            Slot::Mismatched { found, expected, shape } => {
                Some((id, found.tensor, expected.as_slice(), shape.as_slice()))
            }
            _ => None,
        })
    }

    /// Every weight is there with the right shape.
    pub fn is_complete(&self) -> bool {
        self.bound() == self.slots.len()
    }
}

/// Binds the weights of a graph to the tensors of a file.
pub(crate) fn bind(graph: &Graph, sizes: &Sizes, lookup: &Lookup<'_>) -> Binding {
    let slots: Vec<Slot> = graph
        .weights()
        .iter()
        .map(|weight| match lookup.find(&weight.path) {
            None => Slot::Missing {
                name: lookup.expected_name(&weight.path).unwrap_or_else(|| weight.path.clone()),
            },
            Some(found) => {
                let shape = found.shape(lookup.tensors);
                match sizes.shape(&weight.dims) {
                    Some(expected) if !same_shape(&expected, &shape) => {
                        Slot::Mismatched { found, expected, shape }
                    }
                    _ => Slot::Bound(found),
                }
            }
        })
        .collect();
    let mut used: HashSet<usize> = HashSet::new();
    for slot in &slots {
        if let Slot::Bound(found) | Slot::Mismatched { found, .. } = slot {
            used.insert(found.tensor);
        }
    }
    let aliases = aliases(graph, lookup, &used);
    used.extend(aliases.iter().map(|(tensor, _)| *tensor));
    let unused = (0..lookup.tensors.len()).filter(|i| !used.contains(i)).collect();
    Binding { slots, unused, aliases }
}

/// Older files store a shared table several times, once under the name of each node that uses it.
fn aliases(graph: &Graph, lookup: &Lookup<'_>, used: &HashSet<usize>) -> Vec<(usize, WeightId)> {
    let mut names: Vec<Vec<String>> =
        graph.weights().iter().map(|weight| vec![weight.path.clone()]).collect();
    for node in graph.nodes() {
        let is_table = matches!(node.op, Op::Embed { .. } | Op::Logits { .. });
        if let (true, Some(table)) = (is_table, node.weights.first()) {
            names[table.index()].push(format!("{}.weight", node.role));
        }
    }
    let mut seen = used.clone();
    let mut aliases = Vec::new();
    for (i, names) in names.iter().enumerate() {
        for found in names.iter().flat_map(|name| lookup.find_all(name)) {
            if seen.insert(found.tensor) {
                aliases.push((found.tensor, WeightId(i)));
            }
        }
    }
    aliases
}

/// Equal but for dimensions of length one, which files add and drop: a bias of [1, V], a table of [P, 1, D].
pub(crate) fn same_shape(a: &[usize], b: &[usize]) -> bool {
    a == b || a.iter().filter(|&&n| n != 1).eq(b.iter().filter(|&&n| n != 1))
}

/// The elements of a tensor, or of the bound rows of it.
pub(crate) fn elements(found: &Found, tensors: &[TensorSpec]) -> u64 {
    // Readers refuse shapes whose product overflows.
    found.shape(tensors).iter().fold(1u64, |product, &n| product.saturating_mul(n as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::{family, recognised, tensors};

    #[test]
    fn what_a_file_lacks_has_wrong_or_has_twice_is_told_apart() {
        let marian = family("marian");
        let mut listed = tensors(marian, 1);
        let at =
            |listed: &[TensorSpec], end: &str| listed.iter().position(|t| t.name.ends_with(end)).unwrap();
        let gone = listed.remove(at(&listed, "decoder.layers.0.fc2.weight")).name;
        let wrong = at(&listed, "encoder.layers.0.self_attn.k_proj.weight");
        listed[wrong].shape = vec![7, 7];
        let table = listed[at(&listed, "shared.weight")].clone();
        let name = table.name.replace("shared", "encoder.embed_tokens");
        listed.push(TensorSpec { name, ..table });
        let extra = TensorSpec { name: "decoder.layers.0.fc3.weight".into(), ..listed[0].clone() };
        listed.push(extra);
        let model = recognised(listed, marian, &[]);
        let missing: Vec<&str> = model.binding.missing().map(|(_, name)| name).collect();
        assert_eq!(missing, [gone]);
        let mismatched: Vec<Vec<usize>> =
            model.binding.mismatched().map(|(_, _, expected, _)| expected.to_vec()).collect();
        assert_eq!(mismatched, [vec![24, 20]]);
        let alias = &model.binding.aliases[0];
        assert!(model.tensors[alias.0].name.ends_with("shared.weight"), "{:?}", model.binding.aliases);
        let unused: Vec<&str> =
            model.binding.unused.iter().map(|&i| model.tensors[i].name.as_str()).collect();
        assert_eq!(unused, ["decoder.layers.0.fc3.weight"]);
    }

    #[test]
    fn dimensions_of_length_one_do_not_count() {
        let cases = [
            (&[1, 5][..], &[5][..], true),
            (&[5, 1, 3], &[5, 3], true),
            (&[5, 3], &[3, 5], false),
            (&[5], &[5, 5], false),
        ];
        for (a, b, same) in cases {
            assert_eq!(same_shape(a, b), same, "{a:?} and {b:?}");
        }
    }
}
