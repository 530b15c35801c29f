//! What both executors need before the first node: the input checked against the model, sizes, masks, positions.

use attnscope_graph::{Dim, Front, MaskKind, Model, Node, NodeId, Side, Sizes};

use crate::error::RunError;
use crate::input::{Input, Rows, Source, check_padded};

/// An input that fits a model, and the sizes that follow.
pub(crate) struct Prepared<'a> {
    pub(crate) input: &'a Input,
    pub(crate) sizes: Sizes,
    /// For each node, the last node that reads it.
    pub(crate) last_use: Vec<usize>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(model: &Model, input: &'a Input) -> Result<Self, RunError> {
        let mut sizes = source_sizes(model, &input.source)?;
        check_target(model, &input.target, &sizes)?;
        sizes.set(Dim::Target, input.target.length());
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
        match (side, &self.input.source) {
            (Side::Source, Source::Tokens(rows)) => Some(rows),
            (Side::Source, Source::Features(_)) => None,
            (Side::Target, _) => Some(&self.input.target),
        }
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

/// The sizes of a model with the lengths of a source that it can read.
pub(crate) fn source_sizes(model: &Model, source: &Source) -> Result<Sizes, RunError> {
    if let Some(obstacle) = model.obstacles.first() {
        return Err(RunError::Obstacle(obstacle.clone()));
    }
    let (batch, length) = match source {
        Source::Tokens(rows) => (rows.batch(), rows.length()),
        // The second convolution halves the frames, rounding up.
        Source::Features(f) => (f.batch, f.frames.div_ceil(2)),
    };
    if batch == 0 || length == 0 {
        return Err(nothing());
    }
    check_source(model, source, length)?;
    let mut sizes = model.sizes.with_lengths(batch, length, 0);
    if let Source::Features(f) = source {
        sizes.set(Dim::Frames, f.frames);
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

/// What only the whole target can get wrong; ids and lengths of rows are checked by the rule that the command line uses.
fn check_target(model: &Model, target: &Rows, sizes: &Sizes) -> Result<(), RunError> {
    let batch = sizes.get(Dim::Batch).unwrap_or(0);
    if target.batch() != batch {
        let found = format!("{} rows", target.batch());
        let expected = format!("the source has {batch}");
        return Err(refuse("target", found, expected, "give as many targets as sources"));
    }
    if target.length() == 0 {
        return Err(nothing());
    }
    Ok(check_padded(model, Side::Target, target)?)
}

fn check_source(model: &Model, source: &Source, length: usize) -> Result<(), RunError> {
    match (source, model.wiring.front) {
        (Source::Tokens(rows), Front::Tokens) => Ok(check_padded(model, Side::Source, rows)?),
        (Source::Features(f), Front::Audio) => {
            let mels = model.sizes.get(Dim::Mels).unwrap_or(f.mels);
            let window = model.sizes.get(Dim::Positions(Side::Source)).unwrap_or(length);
            if f.mels != mels || length > window {
                let found = format!("{} mel bands, {} frames", f.mels, f.frames);
                let expected = format!("the model takes {mels} and at most {}", 2 * window);
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
        (Source::Tokens(_), Front::Audio) => {
            Err(refuse("source", "tokens".into(), "the model takes audio".into(), "give audio or features"))
        }
        (Source::Features(_), Front::Tokens) => {
            Err(refuse("source", "audio".into(), "the model takes tokens".into(), "give text or token ids"))
        }
    }
}
