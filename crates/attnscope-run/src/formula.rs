//! Single nodes computed from tensors that the caller holds: what a step gives, whoever made its inputs.

use std::sync::Arc;

use attnscope_checkpoint::check_memory_assuming;
use attnscope_graph::{Dim, Graph, Node, Op, Sizes};

use crate::error::RunError;
use crate::input::{Input, Sequence};
use crate::prepare::Prepared;
use crate::reference::Step;
use crate::sink::Kept;

/// Bytes that one node may need where the system does not say what there is: its shape may come from a file alone.
const ASSUMED: u64 = 8 << 30;

/// The arithmetic of nodes for one input, in f64.
pub struct Formula<'a> {
    graph: &'a Graph,
    prepared: Prepared<'a>,
    /// The positions that are computed, where not all are.
    positions: Option<Vec<usize>>,
}

impl<'a> Formula<'a> {
    /// For a graph whose sizes hold the lengths of this input.
    ///
    /// # Errors
    /// When they hold others: shapes and input may come from a file that somebody else wrote.
    pub fn new(graph: &'a Graph, sizes: Sizes, input: &'a Input) -> Result<Self, RunError> {
        check_lengths(graph, &sizes, input)?;
        Ok(Self { graph, prepared: Prepared { input, sizes, last_use: Vec::new() }, positions: None })
    }

    /// The same for some positions only: of every tensor but the keys and values of an attention, the rows along the
    /// dimension before the last are those of these positions. A sample of a large tensor costs little.
    pub fn at_positions(&self, positions: Vec<usize>) -> Self {
        let prepared =
            Prepared { input: self.prepared.input, sizes: self.prepared.sizes.clone(), last_use: Vec::new() };
        Self { graph: self.graph, prepared, positions: Some(positions) }
    }

    /// The positions that are computed, where not all are.
    pub fn positions(&self) -> Option<&[usize]> {
        self.positions.as_deref()
    }

    /// Whether an operation reads an input whole although only some positions of its result are computed.
    pub fn reads_whole(op: Op, input: usize) -> bool {
        match op {
            Op::Scores { .. } | Op::Context => input == 1,
            Op::Embed { .. } | Op::Conv1d { .. } | Op::Transpose | Op::Rotate { .. } => true,
            Op::Ids(_)
            | Op::TypeIds(_)
            | Op::Features
            | Op::Positions { .. }
            | Op::AddPositions
            | Op::Same
            | Op::Norm { .. }
            | Op::Linear
            | Op::SplitHeads(_)
            | Op::RelativeBias { .. }
            | Op::Mask(_)
            | Op::AddMask { .. }
            | Op::Squash(_)
            | Op::MergeHeads(_)
            | Op::Residual { .. }
            | Op::Activate(_)
            | Op::Gate
            | Op::Logits { .. } => false,
        }
    }

    /// The rows of the chosen positions, of a tensor that has all.
    pub fn picked(&self, kept: &Kept) -> Kept {
        let (Some(positions), [.., length, width]) = (&self.positions, kept.shape.as_slice()) else {
            return kept.clone();
        };
        let (length, width) = (*length, *width);
        let blocks = kept.values.chunks((length * width).max(1));
        let rows = blocks.flat_map(|block| {
            positions.iter().filter_map(move |&at| block.get(at * width..(at + 1) * width))
        });
        let values: Vec<f64> = rows.flatten().copied().collect();
        let mut shape = kept.shape.clone();
        let axis = shape.len() - 2;
        shape[axis] = positions.len();
        Kept { shape, values }
    }

    /// A shape with the chosen positions only.
    fn cut(&self, mut shape: Vec<usize>) -> Vec<usize> {
        if let (Some(positions), Some(axis)) = (&self.positions, shape.len().checked_sub(2)) {
            shape[axis] = positions.len();
        }
        shape
    }

    /// The sizes that shapes follow from.
    pub fn sizes(&self) -> &Sizes {
        &self.prepared.sizes
    }

    /// A node's value. The node may be an edited copy of one of the graph's: another operation, fewer inputs, no bias.
    ///
    /// # Errors
    /// When an input or a weight has another shape than the graph gives it, or an id is past the table.
    pub fn compute(&self, node: &Node, inputs: &[Arc<Kept>], weights: &[&[f32]]) -> Result<Kept, RunError> {
        let shape = self.prepared.shape(node)?;
        // The values, and as much while they are made.
        let need = shape.iter().fold(16, |bytes: u64, &d| bytes.saturating_mul(d as u64));
        check_memory_assuming(need, ASSUMED).map_err(RunError::Memory)?;
        if shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d)).is_none() {
            return Err(refuse(node, "a shape that can be counted"));
        }
        self.check(node, inputs, weights)?;
        // What is made of positions alone, or of an input that is read whole, is made whole and picked from.
        let whole = self.positions.is_none() || node.inputs.is_empty() || Self::reads_whole(node.op, 0);
        let shape = if whole { shape } else { self.cut(shape) };
        let step = Step { prepared: &self.prepared, weights, op: node.op, shape: &shape, inputs };
        let values = step.compute();
        if values.len() != shape.iter().product::<usize>() {
            return Err(refuse(node, "its own shape"));
        }
        let kept = Kept { shape, values };
        Ok(if whole && self.positions.is_some() { self.picked(&kept) } else { kept })
    }

    /// The loops of the formulas index without looking: everything is looked at here.
    fn check(&self, node: &Node, inputs: &[Arc<Kept>], weights: &[&[f32]]) -> Result<(), RunError> {
        let sizes = &self.prepared.sizes;
        let size = |shape: Option<Vec<usize>>| shape.map(|s| s.iter().product::<usize>());
        if inputs.len() != node.inputs.len() || weights.len() != node.weights.len() {
            return Err(refuse(node, "the inputs and weights of its operation"));
        }
        for (i, (kept, &id)) in inputs.iter().zip(&node.inputs).enumerate() {
            let expected = sizes.shape(&self.graph.node(id).dims);
            let expected = match Self::reads_whole(node.op, i) {
                true => expected,
                false => expected.map(|shape| self.cut(shape)),
            };
            if expected.as_ref() != Some(&kept.shape) || size(expected) != Some(kept.values.len()) {
                return Err(refuse(node, "the shapes of its inputs"));
            }
        }
        for (values, &id) in weights.iter().zip(&node.weights) {
            if size(sizes.shape(&self.graph.weight(id).dims)) != Some(values.len()) {
                return Err(refuse(node, "the shapes of its weights"));
            }
        }
        let rows = |width: usize| weights.first().map_or(0, |w| w.len() / width.max(1));
        let shape = self.prepared.shape(node)?;
        let last = shape.last().copied().unwrap_or(1);
        let fits = match node.op {
            Op::Embed { .. } => inputs.iter().all(|ids| {
                ids.values.iter().all(|id| id.fract() == 0.0 && (0.0..rows(last) as f64).contains(id))
            }),
            Op::Positions { kind: attnscope_graph::Positions::Table, offset, .. } => {
                shape.get(1).is_some_and(|length| length.saturating_add(offset) <= rows(last))
            }
            _ => true,
        };
        if fits { Ok(()) } else { Err(refuse(node, "rows that its table has")) }
    }
}

fn check_lengths(graph: &Graph, sizes: &Sizes, input: &Input) -> Result<(), RunError> {
    let mut expected = vec![(Dim::Batch, input.batch())];
    for (side, sequence) in input.sequences() {
        expected.push((Dim::Batch, sequence.batch()));
        match sequence {
            Sequence::Tokens(rows) => expected.push((side.length(), rows.length())),
            Sequence::Features(f) => {
                let positions = graph.positions_of(f.frames);
                expected.extend([(side.length(), positions), (Dim::Mels, f.mels), (Dim::Frames, f.frames)]);
                if f.values.len() != f.batch * f.mels * f.frames {
                    return Err(RunError::Obstacle("the features are not of the size they say".into()));
                }
            }
        }
    }
    match expected.into_iter().find(|&(dim, length)| sizes.get(dim) != Some(length)) {
        None => Ok(()),
        Some((dim, length)) => Err(RunError::Obstacle(format!(
            "{}: the shapes say {}, the input {length}",
            dim.meaning(),
            sizes.get(dim).map_or_else(|| "nothing".to_owned(), |n| n.to_string())
        ))),
    }
}

fn refuse(node: &Node, expected: &str) -> RunError {
    RunError::Obstacle(format!("{}: expected {expected}", node.path))
}
