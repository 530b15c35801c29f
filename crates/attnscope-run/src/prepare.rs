//! What both executors need before the first node: the input checked against the model, sizes, masks, positions.

use attnscope_graph::{Dim, MaskKind, Model, Node, NodeId, Op, Positions, Side, Sizes};

use crate::error::RunError;
use crate::input::{Input, Rows, Source};

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

fn check(model: &Model, input: &Input, batch: usize, source: usize) -> Result<(), RunError> {
    let refuse = |place: &str, found: String, expected: String, help: &str| {
        Err(RunError::Input { place: place.into(), found, expected, help: help.into() })
    };
    if input.target.batch() != batch {
        let found = format!("{} rows", input.target.batch());
        return refuse("target", found, format!("the source has {batch}"), "give as many targets as sources");
    }
    for (side, length) in [(Side::Source, source), (Side::Target, input.target.length())] {
        if length == 0 || batch == 0 {
            let help = "give at least one token: the end token stands for an empty sentence";
            return refuse(
                side.word(),
                "nothing".into(),
                "the model needs at least one position".into(),
                help,
            );
        }
        // Sinusoids and relative biases have no end; a table has.
        if model.wiring.positions(side) == Positions::Table
            && let Some(rows) = model.sizes.get(Dim::Positions(side))
        {
            let offset = if rows > model.wiring.position_offset { model.wiring.position_offset } else { 0 };
            if length > rows - offset {
                let found = format!("{length} positions");
                let expected = format!("the position table has {}", rows - offset);
                return refuse(side.word(), found, expected, "give a shorter input");
            }
        }
    }
    check_ids(model, input, refuse)
}

fn check_ids(
    model: &Model,
    input: &Input,
    refuse: impl Fn(&str, String, String, &str) -> Result<(), RunError>,
) -> Result<(), RunError> {
    if let Source::Features(f) = &input.source {
        let mels = model.sizes.get(Dim::Mels).unwrap_or(f.mels);
        if f.mels != mels {
            let help = "compute the features with the model's own number of mel bands";
            return refuse(
                "features",
                format!("{} mel bands", f.mels),
                format!("the model takes {mels}"),
                help,
            );
        }
    }
    let takes_tokens = model.graph.nodes().iter().any(|n| n.op == Op::Ids(Side::Source));
    let gives_tokens = matches!(input.source, Source::Tokens(_));
    if takes_tokens != gives_tokens {
        let names = |tokens: bool| if tokens { "tokens" } else { "audio" };
        let help = "give text or ids to a text model, audio or features to an audio model";
        return refuse(
            "source",
            names(gives_tokens).into(),
            format!("the model takes {}", names(takes_tokens)),
            help,
        );
    }
    let sides = [(Side::Source, input.source_rows()), (Side::Target, Some(&input.target))];
    for (side, rows) in sides {
        let shared = if model.wiring.shared_embeddings { Side::Source } else { side };
        let vocab = model.sizes.get(Dim::Vocab(shared)).or_else(|| model.sizes.get(Dim::Vocab(side)));
        let (Some(rows), Some(vocab)) = (rows, vocab) else { continue };
        if let Some(&id) = rows.ids().iter().find(|&&id| id as usize >= vocab) {
            let expected = format!("the vocabulary has {vocab} entries, 0 to {}", vocab.saturating_sub(1));
            return refuse(
                side.word(),
                format!("token id {id}"),
                expected,
                "give ids of this model's tokenizer",
            );
        }
    }
    Ok(())
}
