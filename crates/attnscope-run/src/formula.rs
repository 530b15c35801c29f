//! Single nodes computed from tensors that the caller holds: what a step gives, whoever made its inputs.

use std::sync::Arc;

use attnscope_graph::{Dim, Graph, Node, Op, Sizes};

use crate::error::RunError;
use crate::input::{Input, Source};
use crate::prepare::Prepared;
use crate::reference::Step;
use crate::sink::Kept;

/// The arithmetic of nodes for one input, in f64.
pub struct Formula<'a> {
    graph: &'a Graph,
    prepared: Prepared<'a>,
}

impl<'a> Formula<'a> {
    /// For a graph whose sizes hold the lengths of this input.
    ///
    /// # Errors
    /// When they hold others: shapes and input may come from a file that somebody else wrote.
    pub fn new(graph: &'a Graph, sizes: Sizes, input: &'a Input) -> Result<Self, RunError> {
        check_lengths(&sizes, input)?;
        Ok(Self { graph, prepared: Prepared { input, sizes, last_use: Vec::new() } })
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
        if shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d)).is_none_or(|n| n > MOST) {
            return Err(refuse(node, "a tensor that fits in memory"));
        }
        self.check(node, inputs, weights)?;
        let step = Step { prepared: &self.prepared, weights, op: node.op, shape: &shape, inputs };
        let values = step.compute();
        if values.len() != shape.iter().product::<usize>() {
            return Err(refuse(node, "its own shape"));
        }
        Ok(Kept { shape, values })
    }

    /// The loops of the formulas index without looking: everything is looked at here.
    fn check(&self, node: &Node, inputs: &[Arc<Kept>], weights: &[&[f32]]) -> Result<(), RunError> {
        let sizes = &self.prepared.sizes;
        let size = |shape: Option<Vec<usize>>| shape.map(|s| s.iter().product::<usize>());
        if inputs.len() != node.inputs.len() || weights.len() != node.weights.len() {
            return Err(refuse(node, "the inputs and weights of its operation"));
        }
        for (kept, &id) in inputs.iter().zip(&node.inputs) {
            let expected = sizes.shape(&self.graph.node(id).dims);
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
                shape.get(1).is_some_and(|length| length + offset <= rows(last))
            }
            _ => true,
        };
        if fits { Ok(()) } else { Err(refuse(node, "rows that its table has")) }
    }
}

/// No tensor that is computed again has more values than this: 8 GB in f64.
const MOST: usize = 1 << 30;

fn check_lengths(sizes: &Sizes, input: &Input) -> Result<(), RunError> {
    let (batch, source) = match &input.source {
        Source::Tokens(rows) => (rows.batch(), rows.length()),
        Source::Features(f) => (f.batch, f.frames.div_ceil(2)),
    };
    let mut expected = vec![
        (Dim::Batch, batch),
        (Dim::Batch, input.target.batch()),
        (Dim::Source, source),
        (Dim::Target, input.target.length()),
    ];
    if let Source::Features(f) = &input.source {
        expected.extend([(Dim::Mels, f.mels), (Dim::Frames, f.frames)]);
        if f.values.len() != f.batch * f.mels * f.frames {
            return Err(RunError::Obstacle("the features are not of the size they say".into()));
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
