//! What both executors need before the first node: the input checked against the model, sizes, masks, positions.

use attnscope_graph::{Dim, MaskKind, Model, Node, NodeId, Side, Sizes};

use crate::error::RunError;
use crate::input::{Input, Rows, Sequence, check_padded};

/// An input that fits a model, and the sizes that follow.
pub(crate) struct Prepared<'a> {
    pub(crate) input: &'a Input,
    pub(crate) sizes: Sizes,
    /// For each node, the last node that reads it.
    pub(crate) last_use: Vec<usize>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(model: &Model, input: &'a Input) -> Result<Self, RunError> {
        let sizes = checked_sizes(model, input, model.architecture.sides())?;
        let nodes = model.graph.nodes();
        let mut last_use: Vec<usize> = (0..nodes.len()).collect();
        for (i, node) in nodes.iter().enumerate() {
            for input in &node.inputs {
                last_use[input.index()] = i;
            }
        }
        Ok(Self { input, sizes, last_use })
    }

    /// The shape of a node's tensor for this input.
    pub(crate) fn shape(&self, node: &Node) -> Result<Vec<usize>, RunError> {
        self.sizes
            .shape(&node.dims)
            .ok_or_else(|| RunError::Obstacle(format!("the shape of {} is not known", node.path)))
    }

    /// The nodes whose tensors are not needed after node `at`.
    pub(crate) fn dead_after<'n>(&'n self, node: &'n Node, at: usize) -> impl Iterator<Item = NodeId> + 'n {
        node.inputs.iter().copied().filter(move |input| self.last_use[input.index()] == at)
    }

    /// The token ids of a side.
    pub(crate) fn rows(&self, side: Side) -> Option<&Rows> {
        self.input.rows(side)
    }

    /// Whether a query of a row may see a key.
    pub(crate) fn is_open(&self, kind: MaskKind, batch: usize, query: usize, key: usize) -> bool {
        let is_token = || match self.rows(kind.keys) {
            Some(rows) => rows.open()[batch * rows.length() + key],
            None => true,
        };
        shut(kind, query, key, is_token).is_none()
    }
}

/// The sizes of a model with the lengths of an input that it can take: what every node's shape follows from.
///
/// # Errors
/// When the input does not fit the model.
pub fn sizes_of(model: &Model, input: &Input) -> Result<Sizes, RunError> {
    Ok(Prepared::new(model, input)?.sizes)
}

/// Why a query may not see a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shut {
    /// The key comes after the query.
    Future,
    /// The key is padding.
    Padding,
    /// Both.
    FuturePadding,
}

/// Why a mask shuts a cell, or nothing if it is open: the one rule behind every mask.
pub fn shut(kind: MaskKind, query: usize, key: usize, is_token: impl Fn() -> bool) -> Option<Shut> {
    let future = kind.causal && key > query;
    let padding = kind.padding && !is_token();
    match (future, padding) {
        (true, true) => Some(Shut::FuturePadding),
        (true, false) => Some(Shut::Future),
        (false, true) => Some(Shut::Padding),
        (false, false) => None,
    }
}

/// The sizes of a model with the lengths of these sequences of an input, if the model can read them.
pub(crate) fn checked_sizes(
    model: &Model,
    input: &Input,
    sides: impl Iterator<Item = Side>,
) -> Result<Sizes, RunError> {
    if let Some(obstacle) = model.obstacles.first() {
        return Err(RunError::Obstacle(obstacle.clone()));
    }
    let mut sizes = model.sizes.clone();
    sizes.set(Dim::Batch, input.batch());
    for side in sides {
        let Some(sequence) = input.sequence(side) else { return Err(absent(model, side)) };
        let length = match sequence {
            Sequence::Tokens(rows) => rows.length(),
            Sequence::Features(f) => model.graph.positions_of(f.frames),
        };
        if input.batch() == 0 || length == 0 {
            return Err(nothing());
        }
        check_batch(input, side, sequence)?;
        check_sequence(model, side, sequence, length)?;
        sizes.set(side.length(), length);
        if let Sequence::Features(f) = sequence {
            sizes.set(Dim::Frames, f.frames);
        }
    }
    Ok(sizes)
}

fn refuse(place: &str, found: String, expected: String, help: &str) -> RunError {
    RunError::Input { place: place.into(), found, expected, help: help.into() }
}

fn nothing() -> RunError {
    let help = "give at least one token: the end token stands for an empty sentence";
    refuse("input", "nothing".into(), "the model needs at least one position a side".into(), help)
}

/// A sequence that the model reads and the input does not have.
fn absent(model: &Model, side: Side) -> RunError {
    let expected = format!("{} reads one", model.architecture.kind());
    refuse(side.word(), format!("no {}", side.word()), expected, "give every sequence that the model reads")
}

/// Sequences go together row by row.
fn check_batch(input: &Input, side: Side, sequence: &Sequence) -> Result<(), RunError> {
    if sequence.batch() == input.batch() {
        return Ok(());
    }
    let found = format!("{} rows", sequence.batch());
    let expected = format!("the source has {}", input.batch());
    Err(refuse(side.word(), found, expected, "give as many targets as sources"))
}

/// Ids and lengths of rows are checked by the rule that the command line uses.
fn check_sequence(model: &Model, side: Side, sequence: &Sequence, length: usize) -> Result<(), RunError> {
    match (sequence, side == Side::Source && model.graph.reads_audio()) {
        (Sequence::Tokens(rows), false) => Ok(check_padded(model, side, rows)?),
        (Sequence::Features(f), true) => {
            let mels = model.sizes.get(Dim::Mels).unwrap_or(f.mels);
            let window = model.sizes.get(Dim::Positions(Side::Source)).unwrap_or(length);
            if f.mels != mels || length > window {
                let found = format!("{} mel bands, {} frames", f.mels, f.frames);
                let expected =
                    format!("the model takes {mels} and at most {}", model.graph.frames_of(window));
                let help = "compute the features with the model's own front end";
                return Err(refuse("features", found, expected, help));
            }
            let size = [f.batch, f.mels, f.frames].into_iter().try_fold(1usize, usize::checked_mul);
            if size != Some(f.values.len()) {
                let found = format!("{} values", f.values.len());
                let expected = format!("{} × {} × {} are to be there", f.batch, f.mels, f.frames);
                return Err(refuse("features", found, expected, "give every frame a value for each band"));
            }
            Ok(())
        }
        (Sequence::Tokens(_), true) => {
            Err(refuse("source", "tokens".into(), "the model takes audio".into(), "give audio or features"))
        }
        (Sequence::Features(_), false) => {
            Err(refuse("source", "audio".into(), "the model takes tokens".into(), "give text or token ids"))
        }
    }
}
