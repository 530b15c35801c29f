//! The cost of a node: multiply-adds and the bytes of its output.

use crate::dim::{Dim, Sizes};
use crate::facets::Layout;
use crate::graph::{Graph, Node};
use crate::op::Op;
use crate::recognise::Model;

/// The multiply-adds of a node for one input, all positions and all attention products included. `None` while a
/// size is unknown.
pub fn multiply_adds(graph: &Graph, node: &Node, sizes: &Sizes) -> Option<u64> {
    let elements = |dims: &[Dim]| product(sizes, dims);
    let input = |i: usize| node.inputs.get(i).map(|&id| graph.node(id).dims.as_slice()).unwrap_or_default();
    let weight =
        |i: usize| node.weights.get(i).map(|&id| graph.weight(id).dims.as_slice()).unwrap_or_default();
    match node.op {
        // Each element of the output is a sum over the input's features.
        Op::Linear | Op::Logits { .. } | Op::Conv1d { .. } => {
            let terms = elements(weight(0).get(1..).unwrap_or_default())?;
            elements(&node.dims)?.checked_mul(terms)
        }
        // [batch, head, query, key], each a sum over the head's features.
        Op::Scores { .. } => elements(&node.dims)?.checked_mul(sizes.get(*input(0).get(3)?)? as u64),
        // [batch, head, query, head size], each a sum over keys.
        Op::Context { .. } => elements(&node.dims)?.checked_mul(sizes.get(*input(0).get(3)?)? as u64),
        // [batch, position, hidden], each gate a sum over the state before.
        Op::Recur { cell, .. } => {
            let state = elements(&node.dims)? / cell.carried() as u64;
            let terms = elements(weight(0).get(1..).unwrap_or_default())?;
            state.checked_mul(cell.gates() as u64)?.checked_mul(terms)
        }
        Op::Ids(_)
        | Op::Features
        | Op::Embed { .. }
        | Op::Positions { .. }
        | Op::AddPositions
        | Op::Transpose
        | Op::Same
        | Op::Norm { .. }
        | Op::SplitHeads(_)
        | Op::TypeIds(_)
        | Op::Rotate { .. }
        | Op::SoftCap { .. }
        | Op::RelativeBias { .. }
        | Op::Mask(_)
        | Op::AddMask { .. }
        | Op::Normalise(_)
        | Op::MergeHeads(_)
        | Op::Residual { .. }
        | Op::Activate(_)
        | Op::Hidden
        | Op::Beside
        | Op::LastState { .. }
        | Op::Pool { .. }
        | Op::Flatten { .. }
        | Op::Dropout { .. }
        | Op::Gate => Some(0),
    }
}

/// The multiply-adds that torchinfo prints for the module of a node: the module's parameters once for each row of
/// the batch, whatever the sequence length, and once for each output position of a convolution. Products between
/// activations are not counted by it, and neither are buffers.
pub fn torchinfo_multiply_adds(model: &Model, node: &Node, sizes: &Sizes) -> Option<u64> {
    let mut parameters = 0u64;
    for &id in node.weights.iter().filter(|&&id| !model.is_buffer(id)) {
        parameters = parameters.checked_add(product(sizes, &model.graph.weight(id).dims)?)?;
    }
    let times = match node.op {
        Op::Conv1d { .. } => product(sizes, &[*node.dims.first()?, *node.dims.get(2)?])?,
        // Looked up once per stack, without a batch: torchinfo takes its first dimension, the queries, for the batch.
        Op::RelativeBias { .. } if node.path.layer().is_some_and(|(_, n)| n > 0) => 0,
        Op::RelativeBias { .. } => product(sizes, &[*node.dims.get(2)?])?,
        Op::Positions { .. } => sizes.get(Dim::Batch)? as u64,
        _ => sizes.get(*node.dims.first()?)? as u64,
    };
    parameters.checked_mul(times)
}

/// The bytes of a node's output, in f32; 0 for a second name of the same value.
pub fn output_bytes(node: &Node, sizes: &Sizes) -> Option<u64> {
    match node.op.facets().layout {
        Layout::Name => Some(0),
        _ => product(sizes, &node.dims)?.checked_mul(4),
    }
}

fn product(sizes: &Sizes, dims: &[Dim]) -> Option<u64> {
    dims.iter().try_fold(1u64, |n, &dim| n.checked_mul(sizes.get(dim)? as u64))
}
