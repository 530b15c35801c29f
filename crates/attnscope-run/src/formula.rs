//! Computes single nodes from tensors of the caller.

use std::sync::Arc;

use attnscope_checkpoint::check_memory_assuming;
use attnscope_graph::{Dim, Graph, Node, Op, Sizes};

use crate::checked::SizedInput;
use crate::error::RunError;
use crate::input::{Input, Sequence};
use crate::limits::Cancel;
use crate::reference::Step;
use crate::tensor::Kept;

/// Bytes that one node may need where the system does not tell its memory, because the shape may come from an untrusted file.
const ASSUMED: u64 = 8 << 30;

/// The arithmetic of nodes for one input, in f64.
pub struct Formula<'a> {
    graph: &'a Graph,
    sized_input: SizedInput<'a>,
    /// The positions that are computed, where not all are.
    positions: Option<Vec<usize>>,
    cancel: Cancel,
}

impl<'a> Formula<'a> {
    /// For a graph whose sizes include the lengths of this input.
    ///
    /// # Errors
    /// When they differ: shapes and input may come from an untrusted file.
    pub fn new(graph: &'a Graph, sizes: Sizes, input: &'a Input) -> Result<Self, RunError> {
        check_lengths(graph, &sizes, input)?;
        Ok(Self {
            graph,
            sized_input: SizedInput { input, sizes },
            positions: None,
            cancel: Cancel::default(),
        })
    }

    /// The same, which ends with an error when the flag is raised.
    #[must_use]
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self }
    }

    /// The same for some positions only: of every tensor but the keys and values of an attention, the rows along the
    /// dimension before the last are those of these positions. A sample of a large tensor costs little.
    pub fn at_positions(&self, positions: Vec<usize>) -> Self {
        Self {
            graph: self.graph,
            sized_input: self.sized_input.clone(),
            positions: Some(positions),
            cancel: self.cancel.clone(),
        }
    }

    /// The positions that are computed, where not all are.
    pub fn positions(&self) -> Option<&[usize]> {
        self.positions.as_deref()
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
        &self.sized_input.sizes
    }

    /// A node's value. The node may be an edited copy of one of the graph's: another operation, fewer inputs, no bias.
    ///
    /// # Errors
    /// When an input or a weight has another shape than the graph gives it, an id is past the table, or it was cancelled.
    pub fn compute(&self, node: &Node, inputs: &[Arc<Kept>], weights: &[&[f32]]) -> Result<Kept, RunError> {
        let shape = self.sized_input.shape(node)?;
        // The values, and as much again while they are computed.
        let need = shape.iter().fold(16, |bytes: u64, &d| bytes.saturating_mul(d as u64));
        check_memory_assuming(need, ASSUMED).map_err(RunError::Memory)?;
        if shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d)).is_none() {
            return Err(refuse(node, "a shape that can be counted"));
        }
        self.check(node, inputs, weights)?;
        // A tensor that depends on positions alone, or on an input that is read whole, is computed whole, and the chosen
        // positions are taken from it.
        let whole =
            self.positions.is_none() || node.inputs.is_empty() || node.op.facets().reads_input_whole(0);
        let shape = if whole { shape } else { self.cut(shape) };
        let (sized_input, cancel) = (&self.sized_input, &self.cancel);
        let values = Step { sized_input, weights, op: node.op, shape: &shape, inputs, cancel }.compute();
        self.cancel.check()?;
        if values.len() != shape.iter().product::<usize>() {
            return Err(refuse(node, "its own shape"));
        }
        let kept = Kept { shape, values };
        Ok(if whole && self.positions.is_some() { self.picked(&kept) } else { kept })
    }

    /// The loops of the formulas index without checks, so everything is checked here.
    fn check(&self, node: &Node, inputs: &[Arc<Kept>], weights: &[&[f32]]) -> Result<(), RunError> {
        let sizes = &self.sized_input.sizes;
        let size = |shape: Option<Vec<usize>>| shape.map(|s| s.iter().product::<usize>());
        if inputs.len() != node.inputs.len() || weights.len() != node.weights.len() {
            return Err(refuse(node, "the inputs and weights of its operation"));
        }
        for (i, (kept, &id)) in inputs.iter().zip(&node.inputs).enumerate() {
            let expected = sizes.shape(&self.graph.node(id).dims);
            let expected = match node.op.facets().reads_input_whole(i) {
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
        let shape = self.sized_input.shape(node)?;
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
                    let expected = "as many values as their sizes say".to_owned();
                    return Err(RunError::Misfit { place: "the features".to_owned(), expected });
                }
            }
        }
    }
    match expected.into_iter().find(|&(dim, length)| sizes.get(dim) != Some(length)) {
        None => Ok(()),
        Some((dim, length)) => {
            let said = sizes.get(dim).map_or_else(|| "nothing".to_owned(), |n| n.to_string());
            let expected = format!("{length}, as the input has, and the shapes say {said}");
            Err(RunError::Misfit { place: dim.meaning().to_owned(), expected })
        }
    }
}

fn refuse(node: &Node, expected: &str) -> RunError {
    RunError::Misfit { place: node.path.to_string(), expected: expected.to_owned() }
}
