//! What both executors need before the first node: the input checked against the model, sizes, masks, positions.

use attnscope_graph::{Dim, Front, MaskKind, Model, Node, NodeId, Side, Sizes};

use crate::error::RunError;
use crate::input::{Input, Rows, Source, check_rows};

/// An input that fits a model, and the sizes that follow.
pub(crate) struct Prepared<'a> {
    pub(crate) input: &'a Input,
    pub(crate) sizes: Sizes,
    /// For each node, the last node that reads it.
    pub(crate) last_use: Vec<usize>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(model: &Model, input: &'a Input) -> Result<Self, RunError> {
        if let Some(obstacle) = model.obstacles.first() {
            return Err(RunError::Obstacle(obstacle.clone()));
        }
        let (batch, source) = match &input.source {
            Source::Tokens(rows) => (rows.batch(), rows.length()),
            // The second convolution halves the frames, rounding up.
            Source::Features(f) => (f.batch, f.frames.div_ceil(2)),
        };
        check(model, input, batch, source)?;
        let mut sizes = model.sizes.with_lengths(batch, source, input.target.length());
        if let Source::Features(f) = &input.source {
            sizes.set(Dim::Frames, f.frames);
        }
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

    /// Whether a query may see a key: the one rule behind every mask.
    pub(crate) fn is_open(&self, kind: MaskKind, batch: usize, query: usize, key: usize) -> bool {
        let in_past = !kind.causal || key <= query;
        let is_token = match self.rows(kind.keys) {
            Some(rows) if kind.padding => rows.open()[batch * rows.length() + key],
            _ => true,
        };
        in_past && is_token
    }
}

/// The sizes of a model with the lengths of an input that it can take: what every node's shape follows from.
///
/// # Errors
/// When the input does not fit the model.
pub fn sizes_of(model: &Model, input: &Input) -> Result<Sizes, RunError> {
    Ok(Prepared::new(model, input)?.sizes)
}

/// What only the whole input can get wrong; ids and lengths of rows are checked by the rule that the command line uses.
fn check(model: &Model, input: &Input, batch: usize, source: usize) -> Result<(), RunError> {
    let refuse = |place: &str, found: String, expected: String, help: &str| {
        Err(RunError::Input { place: place.into(), found, expected, help: help.into() })
    };
    if input.target.batch() != batch {
        let found = format!("{} rows", input.target.batch());
        return refuse("target", found, format!("the source has {batch}"), "give as many targets as sources");
    }
    if batch == 0 || source == 0 || input.target.length() == 0 {
        let help = "give at least one token: the end token stands for an empty sentence";
        return refuse(
            "input",
            "nothing".into(),
            "the model needs at least one position a side".into(),
            help,
        );
    }
    check_rows(model, Side::Target, &input.target.tokens())?;
    match (&input.source, model.wiring.front) {
        (Source::Tokens(rows), Front::Tokens) => Ok(check_rows(model, Side::Source, &rows.tokens())?),
        (Source::Features(f), Front::Audio) => {
            let mels = model.sizes.get(Dim::Mels).unwrap_or(f.mels);
            let window = model.sizes.get(Dim::Positions(Side::Source)).unwrap_or(source);
            if f.mels != mels || source > window {
                let found = format!("{} mel bands, {} frames", f.mels, f.frames);
                let expected = format!("the model takes {mels} and at most {}", 2 * window);
                return refuse(
                    "features",
                    found,
                    expected,
                    "compute the features with the model's own front end",
                );
            }
            Ok(())
        }
        (Source::Tokens(_), Front::Audio) => {
            refuse("source", "tokens".into(), "the model takes audio".into(), "give audio or features")
        }
        (Source::Features(_), Front::Tokens) => {
            refuse("source", "audio".into(), "the model takes tokens".into(), "give text or token ids")
        }
    }
}
