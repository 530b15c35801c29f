//! Typed edits of weights: each undoes one mistake that converters and ports make.

use attnscope_graph::{Dim, Graph, Model, Role, Stack, WeightId, WeightRole};
use attnscope_run::Weights;
use serde_json::{Map, Value, json};

use crate::kinds::kinds;

/// The order of a projection's rows, and how they are brought into the graph's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// Each head's rows come as 0, 2, 4, … 1, 3, 5, … and are brought to 0, 1, 2, …
    HalvesToPairs,
    /// Each head's rows come as 0, n/2, 1, n/2 + 1, … and are brought to 0, 1, 2, …
    PairsToHalves,
    /// Row 0 of every head comes first, then row 1 of every head; brought to head by head.
    RowsToHeads,
    /// Head by head, where the rows were meant to come first; brought to row by row.
    HeadsToRows,
}

impl RowOrder {
    /// Every order.
    pub(crate) const ALL: [Self; 4] =
        [Self::HalvesToPairs, Self::PairsToHalves, Self::RowsToHeads, Self::HeadsToRows];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::HalvesToPairs => "halves_to_pairs",
            Self::PairsToHalves => "pairs_to_halves",
            Self::RowsToHeads => "rows_to_heads",
            Self::HeadsToRows => "heads_to_rows",
        }
    }

    /// Whether it stays within each head: if q and k both have it, no score changes.
    pub(crate) fn is_within_head(self) -> bool {
        matches!(self, Self::HalvesToPairs | Self::PairsToHalves)
    }

    /// For each row of the result, the row that it is taken from.
    fn sources(self, heads: usize, size: usize) -> Vec<usize> {
        let half = size.div_ceil(2);
        let place = |head: usize, row: usize| match self {
            Self::HalvesToPairs => head * size + if row.is_multiple_of(2) { row / 2 } else { half + row / 2 },
            Self::PairsToHalves => head * size + if row < half { 2 * row } else { 2 * (row - half) + 1 },
            Self::RowsToHeads => row * heads + head,
            Self::HeadsToRows => {
                let at = head * size + row;
                (at % heads) * size + at / heads
            }
        };
        (0..heads * size).map(|at| place(at / size, at % size)).collect()
    }
}

/// One repair: what to do with the weights of the file, so that they are what was trained.
#[derive(Debug, Clone, PartialEq)]
pub enum WeightEdit {
    /// Two layers of a stack are exchanged.
    SwapLayers {
        /// Their stack.
        stack: Stack,
        /// Their numbers.
        layers: [usize; 2],
    },
    /// Square matrices are transposed.
    Transpose {
        /// The matrices.
        weights: Vec<WeightRole>,
    },
    /// Weights of the same shape are exchanged, two by two.
    Exchange {
        /// The pairs.
        pairs: Vec<[WeightRole; 2]>,
    },
    /// The heads of projections are put in another order.
    PermuteHeads {
        /// Matrices and biases of the projections.
        weights: Vec<WeightRole>,
        /// For each head of the result, the head that it is taken from.
        order: Vec<usize>,
    },
    /// The rows of projections are put in another order.
    Interleave {
        /// Matrices and biases of the projections.
        weights: Vec<WeightRole>,
        /// From which order to which.
        rows: RowOrder,
    },
    /// Every sign is inverted.
    Negate {
        /// The weights.
        weights: Vec<WeightRole>,
    },
    /// Multiplied by a number.
    Scale {
        /// The weights.
        weights: Vec<WeightRole>,
        /// The number.
        factor: f64,
    },
    /// The rows of tables are rolled down, the last ones to the top; up where the number is negative.
    Roll {
        /// The tables.
        weights: Vec<WeightRole>,
        /// By so many rows.
        rows: i64,
    },
}

kinds! {
    WeightEdit {
        Self::SwapLayers { .. } => "swap_layers",
        Self::Transpose { .. } => "transpose",
        Self::Exchange { .. } => "exchange",
        Self::PermuteHeads { .. } => "permute_heads",
        Self::Interleave { .. } => "interleave",
        Self::Negate { .. } => "negate",
        Self::Scale { .. } => "scale",
        Self::Roll { .. } => "roll",
    }
}

impl WeightEdit {
    /// The weights that it changes.
    pub fn weights(&self, model: &Model) -> Vec<WeightRole> {
        match self {
            Self::SwapLayers { stack, layers } => {
                swapped(model, *stack, *layers).into_iter().flatten().collect()
            }
            Self::Exchange { pairs } => pairs.iter().flatten().copied().collect(),
            Self::Transpose { weights }
            | Self::PermuteHeads { weights, .. }
            | Self::Interleave { weights, .. }
            | Self::Negate { weights }
            | Self::Scale { weights, .. }
            | Self::Roll { weights, .. } => weights.clone(),
        }
    }

    /// As JSON: `kind`, `weights` and details.
    pub fn json(&self, model: &Model) -> Value {
        let mut fields = Map::new();
        fields.insert("kind".into(), json!(self.kind()));
        let weights: Vec<String> = self.weights(model).iter().map(ToString::to_string).collect();
        fields.insert("weights".into(), json!(weights));
        match self {
            Self::SwapLayers { stack, layers } => {
                fields.insert("stack".into(), json!(stack.name()));
                fields.insert("layers".into(), json!(layers));
            }
            Self::PermuteHeads { order, .. } => drop(fields.insert("order".into(), json!(order))),
            Self::Interleave { rows, .. } => drop(fields.insert("rows".into(), json!(rows.name()))),
            Self::Scale { factor, .. } => drop(fields.insert("factor".into(), json!(factor))),
            Self::Roll { rows, .. } => drop(fields.insert("rows".into(), json!(rows))),
            Self::Transpose { .. } | Self::Exchange { .. } | Self::Negate { .. } => {}
        }
        Value::Object(fields)
    }

    /// The weights after the edit. Only tensors that it changes are copied. `None` where it does not fit the model, or a weight
    /// cannot be read: then no run of the model succeeds, and each says why.
    pub(crate) fn apply(&self, model: &Model, weights: &Weights) -> Option<Weights> {
        let mut edited = weights.clone();
        match self {
            Self::SwapLayers { stack, layers } => {
                let pairs = swapped(model, *stack, *layers);
                exchange(model, &mut edited, &pairs)?;
            }
            Self::Exchange { pairs } => exchange(model, &mut edited, pairs)?,
            Self::Transpose { weights: roles } => {
                for &role in roles {
                    let (id, shape) = matrix(model, role)?;
                    let [rows, columns] = shape[..] else { return None };
                    if rows != columns {
                        return None;
                    }
                    edited = edited.with(id, transposed(&weights.get(id).ok()?, rows));
                }
            }
            Self::PermuteHeads { weights: roles, order } => {
                for &role in roles {
                    let (heads, size) = heads_of(model, role)?;
                    if order.len() != heads || order.iter().any(|&head| head >= heads) {
                        return None;
                    }
                    let sources: Vec<usize> =
                        order.iter().flat_map(|&head| head * size..(head + 1) * size).collect();
                    let (id, values) = reordered(model, weights, role, &sources)?;
                    edited = edited.with(id, values);
                }
            }
            Self::Interleave { weights: roles, rows } => {
                for &role in roles {
                    let (heads, size) = heads_of(model, role)?;
                    let (id, values) = reordered(model, weights, role, &rows.sources(heads, size))?;
                    edited = edited.with(id, values);
                }
            }
            Self::Negate { weights: roles } => {
                for &role in roles {
                    let id = model.graph.weight_at(role)?;
                    edited = edited.with(id, weights.get(id).ok()?.iter().map(|x| -x).collect());
                }
            }
            Self::Scale { weights: roles, factor } => {
                for &role in roles {
                    let id = model.graph.weight_at(role)?;
                    let scaled = |x: &f32| (f64::from(*x) * factor) as f32;
                    edited = edited.with(id, weights.get(id).ok()?.iter().map(scaled).collect());
                }
            }
            Self::Roll { weights: roles, rows } => {
                for &role in roles {
                    let (id, shape) = matrix(model, role)?;
                    let width: usize = shape.iter().skip(1).product();
                    let count = i64::try_from(*shape.first()?).ok()?;
                    let down = usize::try_from(rows.checked_rem_euclid(count)?).ok()?;
                    let mut values = weights.get(id).ok()?.into_owned();
                    let len = values.len();
                    values.rotate_right((down * width).min(len));
                    edited = edited.with(id, values);
                }
            }
        }
        Some(edited)
    }
}

/// The weights of two layers, two by two.
fn swapped(model: &Model, stack: Stack, [a, b]: [usize; 2]) -> Vec<[WeightRole; 2]> {
    twins(&model.graph, |owner| owner.layer() == Some((stack, a)), b)
}

/// The weights of some nodes of a layer with those of another layer, two by two, where both exist: T5 keeps a stack's bias
/// table in its first layer, and the other layers have none.
pub(super) fn twins(graph: &Graph, is_here: impl Fn(Role) -> bool, there: usize) -> Vec<[WeightRole; 2]> {
    let here = graph.weight_roles().filter(|role| is_here(role.owner));
    let pairs = here.map(|role| [role, role.in_layer(there)]);
    pairs.filter(|&[_, other]| graph.weight_at(other).is_some()).collect()
}

fn exchange(model: &Model, weights: &mut Weights, pairs: &[[WeightRole; 2]]) -> Option<()> {
    for &[a, b] in pairs {
        let (a, b) = (matrix(model, a)?, matrix(model, b)?);
        if a.1 != b.1 {
            return None;
        }
        weights.exchange(a.0, b.0);
    }
    (!pairs.is_empty()).then_some(())
}

/// A weight's number and shape.
pub(super) fn matrix(model: &Model, role: WeightRole) -> Option<(WeightId, Vec<usize>)> {
    let id = model.graph.weight_at(role)?;
    Some((id, model.sizes.shape(&model.graph.weight(id).dims)?))
}

/// Heads, and rows of each, of the projection that a weight is of: keys and values may have fewer heads than queries.
pub(super) fn heads_of(model: &Model, role: WeightRole) -> Option<(usize, usize)> {
    let (stack, _) = role.owner.layer()?;
    let id = model.graph.weight_at(role)?;
    let is_shared = model.graph.weight(id).dims.iter().any(|dim| matches!(dim, Dim::KvInner(_)));
    let heads = if is_shared { Dim::KvHeads(stack) } else { Dim::Heads(stack) };
    Some((model.sizes.get(heads)?, model.sizes.get(Dim::Head(stack))?))
}

/// A weight with its heads' dimension in another order: the rows of q, k and v, the columns of the output projection.
fn reordered(
    model: &Model,
    weights: &Weights,
    role: WeightRole,
    sources: &[usize],
) -> Option<(WeightId, Vec<f32>)> {
    let (id, shape) = matrix(model, role)?;
    let is_heads = |dim: &Dim| matches!(dim, Dim::Inner(_) | Dim::KvInner(_));
    let axis = model.graph.weight(id).dims.iter().position(is_heads)?;
    if shape[axis] != sources.len() {
        return None;
    }
    let values = weights.get(id).ok()?;
    let inner: usize = shape[axis + 1..].iter().product();
    let block = sources.len() * inner;
    if block == 0 {
        return None;
    }
    let of_block = |chunk: &[f32]| -> Vec<f32> {
        sources.iter().flat_map(|&from| chunk[from * inner..(from + 1) * inner].to_vec()).collect()
    };
    Some((id, values.chunks_exact(block).flat_map(of_block).collect()))
}

fn transposed(values: &[f32], n: usize) -> Vec<f32> {
    (0..n * n).map(|at| values[(at % n) * n + at / n]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_orders_undo_each_other() {
        let after = |first: RowOrder, second: RowOrder| -> Vec<usize> {
            let (a, b) = (first.sources(3, 8), second.sources(3, 8));
            b.iter().map(|&at| a[at]).collect()
        };
        let plain: Vec<usize> = (0..24).collect();
        assert_eq!(after(RowOrder::HalvesToPairs, RowOrder::PairsToHalves), plain);
        assert_eq!(after(RowOrder::RowsToHeads, RowOrder::HeadsToRows), plain);
        for order in RowOrder::ALL {
            assert_ne!(order.sources(3, 8), plain, "{order:?}");
        }
    }

    #[test]
    fn rows_come_from_where_the_name_says() {
        assert_eq!(RowOrder::HalvesToPairs.sources(1, 6), [0, 3, 1, 4, 2, 5]);
        assert_eq!(RowOrder::PairsToHalves.sources(2, 4), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(RowOrder::RowsToHeads.sources(2, 3), [0, 2, 4, 1, 3, 5]);
    }

    #[test]
    fn a_transpose_is_one() {
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0], 2), [1.0, 3.0, 2.0, 4.0]);
    }
}
