//! An input that was checked against a model: every id has a row in its table, and every token has a position.

use attnscope_graph::{AddedPositions, Dim, MaskKind, Model, Node, Op, Side, Sizes};

use crate::error::RunError;
use crate::input::{Input, Rows, Sequence, SideLimits, check_padded};
use crate::mask::{masked_by, padding_without_keys};

/// An input that a model can read, and the sizes that follow. It is checked once, when it is made.
#[derive(Debug, Clone)]
pub struct CheckedInput {
    input: Input,
    sizes: Sizes,
    limits: InputLimits,
}

impl CheckedInput {
    /// Checks an input against a model: every sequence that the model reads.
    ///
    /// # Errors
    /// When the input does not fit the model.
    pub fn new(model: &Model, input: Input) -> Result<Self, RunError> {
        let sizes = checked_sizes(model, &input, model.architecture.sides())?;
        Ok(Self { input, sizes, limits: InputLimits::of(model) })
    }

    /// The same for an input whose target is decoded token by token: every sequence but that.
    ///
    /// # Errors
    /// When the input does not fit the model.
    pub fn to_decode(model: &Model, input: Input) -> Result<Self, RunError> {
        // A target that was not checked is dropped.
        let input = input.without(Side::Target);
        let sizes = checked_sizes(model, &input, before_target(model))?;
        Ok(Self { input, sizes, limits: InputLimits::of(model) })
    }

    /// What was checked.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// The input that was checked, by value.
    pub fn into_input(self) -> Input {
        self.input
    }

    /// The sizes of the model with the lengths of this input: what every node's shape follows from.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The sizes for a model that runs on this input. If that model has other limits than the one that the input was checked
    /// for, it is checked again.
    pub(crate) fn sizes_for(&self, model: &Model, limits: &InputLimits) -> Result<Sizes, RunError> {
        self.sizes_of(model, limits, model.architecture.sides())
    }

    /// The same for a model that decodes after this input.
    pub(crate) fn sizes_to_decode(&self, model: &Model, limits: &InputLimits) -> Result<Sizes, RunError> {
        self.sizes_of(model, limits, before_target(model))
    }

    fn sizes_of(
        &self,
        model: &Model,
        limits: &InputLimits,
        sides: impl Iterator<Item = Side> + Clone,
    ) -> Result<Sizes, RunError> {
        if self.limits != *limits || sides.clone().any(|side| self.input.sequence(side).is_none()) {
            return checked_sizes(model, &self.input, sides);
        }
        let mut sizes = model.sizes.clone();
        set_lengths(&mut sizes, model, &self.input);
        Ok(sizes)
    }
}

fn before_target(model: &Model) -> impl Iterator<Item = Side> + Clone {
    model.architecture.sides().filter(|&side| side != Side::Target)
}

/// Everything of a model that decides which inputs it can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputLimits {
    runs: bool,
    sides: Vec<(Side, SideLimits, Option<AddedPositions>)>,
    /// Mel bands, and frames at most.
    audio: Option<[Option<usize>; 2]>,
}

impl InputLimits {
    pub(crate) fn of(model: &Model) -> Self {
        let window = model.sizes.get(Dim::Positions(Side::Source));
        let frames = window.map(|window| model.graph.frames_of(window));
        Self {
            runs: model.obstacles.is_empty(),
            sides: model
                .architecture
                .sides()
                .map(|side| (side, SideLimits::of(model, side), model.graph.positions(side)))
                .collect(),
            audio: model.graph.reads_audio().then(|| [model.sizes.get(Dim::Mels), frames]),
        }
    }
}

/// An input and the sizes that follow from it, which formulas read in addition to tensors.
#[derive(Debug, Clone)]
pub(crate) struct SizedInput<'a> {
    pub(crate) input: &'a Input,
    pub(crate) sizes: Sizes,
}

impl SizedInput<'_> {
    /// The shape of a node's tensor for this input.
    pub(crate) fn shape(&self, node: &Node) -> Result<Vec<usize>, RunError> {
        shape_of(&self.sizes, node)
    }

    /// The token ids of a side.
    pub(crate) fn rows(&self, side: Side) -> Option<&Rows> {
        self.input.rows(side)
    }

    /// Whether a key is visible to a query of a row.
    pub(crate) fn is_visible(&self, kind: MaskKind, batch: usize, query: usize, key: usize) -> bool {
        let is_token = || match self.rows(kind.keys) {
            Some(rows) => rows.open()[batch * rows.length() + key],
            None => true,
        };
        masked_by(kind, query, key, is_token).is_none()
    }

    /// How many rows of scores, [batch, head, query, key], belong to padding whose window holds no token.
    pub(crate) fn padding_without_keys(&self, kind: MaskKind, shape: &[usize]) -> usize {
        let &[batch, heads, queries, keys] = shape else { return 0 };
        let rows = self.rows(kind.queries);
        let is_padding =
            |row: usize, query: usize| rows.is_some_and(|rows| !rows.open()[row * rows.length() + query]);
        heads
            * padding_without_keys(kind, [batch, queries, keys], is_padding, |row, query, key| {
                self.is_visible(kind, row, query, key)
            })
    }
}

/// The shape of a node's tensor with these sizes.
pub(crate) fn shape_of(sizes: &Sizes, node: &Node) -> Result<Vec<usize>, RunError> {
    let shape = sizes.shape(&node.dims);
    shape.ok_or_else(|| RunError::NoShape { of: node.path.to_string() })
}

/// Puts the lengths of an input's sequences among the sizes.
fn set_lengths(sizes: &mut Sizes, model: &Model, input: &Input) {
    sizes.set(Dim::Batch, input.batch());
    for (side, sequence) in input.sequences() {
        sizes.set(side.length(), length_of(model, sequence));
        if let Sequence::Features(f) = sequence {
            sizes.set(Dim::Frames, f.frames);
        }
    }
}

/// How many positions a sequence has in a model.
fn length_of(model: &Model, sequence: &Sequence) -> usize {
    match sequence {
        Sequence::Tokens(rows) => rows.length(),
        Sequence::Features(f) => model.graph.positions_of(f.frames),
    }
}

/// The sizes of a model with the lengths of these sequences of an input, if the model can read them.
fn checked_sizes(model: &Model, input: &Input, sides: impl Iterator<Item = Side>) -> Result<Sizes, RunError> {
    if let Some(obstacle) = model.obstacles.first() {
        return Err(RunError::Obstacle(obstacle.clone()));
    }
    if input.batch() == 0 {
        return Err(nothing());
    }
    for side in sides {
        let Some(sequence) = input.sequence(side) else { return Err(absent(model, side)) };
        let length = length_of(model, sequence);
        if length == 0 {
            return Err(nothing());
        }
        check_batch(input, side, sequence)?;
        check_sequence(model, side, sequence, length)?;
    }
    let mut sizes = model.sizes.clone();
    set_lengths(&mut sizes, model, input);
    check_blocks(model, &sizes)?;
    Ok(sizes)
}

/// Convolutions need as many positions as a window covers, and what is flattened has a fixed length.
fn check_blocks(model: &Model, sizes: &Sizes) -> Result<(), RunError> {
    if !model.graph.has_classifier() {
        return Ok(());
    }
    let too = |found: usize, expected: String| {
        refuse("source", format!("{found} tokens"), expected, "give as many tokens, padding included")
    };
    let found = sizes.get(Dim::Source).unwrap_or(0);
    for node in model.graph.nodes() {
        let is_empty = |dim: &Dim| matches!(dim, Dim::Convolved(_)) && sizes.get(*dim) == Some(0);
        if node.dims.iter().any(is_empty) {
            return Err(too(found, format!("a window of {} covers more", node.path)));
        }
        if let (Op::Flatten { features }, Some(&input)) = (node.op, node.inputs.first()) {
            let shape = shape_of(sizes, model.graph.node(input))?;
            if shape.iter().skip(1).try_fold(1usize, |n, &d| n.checked_mul(d)) != Some(features) {
                let length = model.architecture.classifier().and_then(|classifier| classifier.length);
                let length = length.map_or_else(String::new, |length| format!(": {length} tokens"));
                return Err(too(found, format!("{} reads {features} values{length}", node.path)));
            }
        }
    }
    Ok(())
}

fn refuse(place: &str, found: String, expected: String, help: &str) -> RunError {
    RunError::Input { place: place.into(), found, expected, remedy: help.to_owned().into() }
}

fn nothing() -> RunError {
    let help = "give at least one token: an empty sentence has its end token";
    refuse("input", "nothing".into(), "the model needs at least one position per side".into(), help)
}

/// The error for a sequence that the model reads and the input lacks.
fn absent(model: &Model, side: Side) -> RunError {
    let expected = format!("{} reads one", model.architecture.kind());
    refuse(side.word(), format!("no {}", side.word()), expected, "give every sequence that the model reads")
}

/// Sequences have the same number of rows.
fn check_batch(input: &Input, side: Side, sequence: &Sequence) -> Result<(), RunError> {
    if sequence.batch() == input.batch() {
        return Ok(());
    }
    let found = format!("{} rows", sequence.batch());
    let expected = format!("the source has {}", input.batch());
    Err(refuse(side.word(), found, expected, "give as many targets as sources"))
}

/// Ids and lengths of rows are checked as [`check_rows`] does.
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
                let expected = format!("{} × {} × {} are expected", f.batch, f.mels, f.frames);
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
