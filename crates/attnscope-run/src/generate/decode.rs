//! The decoder as a search sees it: tokens go in, the scores of the next token come out.

use attnscope_graph::{Model, NodeId, Role};

use crate::error::RunError;
use crate::input::{Input, Rows};
use crate::native::{Decoding, Native};
use crate::sink::{Sink, Values};
use crate::weights::Weights;

/// A decoder under way, one row a sentence. What it refuses leaves it as it was before.
pub trait Decode {
    /// Reads more tokens, each row's own and as many in each, and gives the logits after the last: [batch, vocabulary].
    ///
    /// # Errors
    /// When a token is not in the vocabulary, or there is no position left for it. A decoder may also look for values that
    /// are no numbers; there is no going on from those.
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError>;

    /// Goes on with these rows, in this order: a row may be taken several times or not at all.
    ///
    /// # Errors
    /// When there is no such row, or none at all.
    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError>;
}

impl Decode for Decoding<'_> {
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        Decoding::advance(self, tokens)
    }

    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        Decoding::reorder(self, rows)
    }
}

/// A decoder that has read the first tokens of its only row already, and is told of them once more.
pub(crate) struct Ahead<'d> {
    pub(crate) inner: &'d mut dyn Decode,
    /// How many it has read.
    pub(crate) read: usize,
    /// The logits after them.
    pub(crate) logits: Vec<f32>,
}

impl Decode for Ahead<'_> {
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        let known = self.read;
        if known > 0 && tokens.iter().all(|row| row.len() == known) {
            self.read = 0;
            return Ok(&self.logits);
        }
        let new: Vec<Vec<u32>> =
            tokens.iter().map(|row| row.get(known..).unwrap_or_default().to_vec()).collect();
        let logits = self.inner.advance(&new)?;
        self.read = 0;
        Ok(logits)
    }

    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        self.inner.reorder(rows)
    }
}

/// Decodes by running the whole model again for every token: slow, and obviously right.
#[derive(Debug)]
pub struct Uncached<'a> {
    model: &'a Model,
    weights: &'a Weights,
    native: Native,
    given: Input,
    /// What each row has read.
    read: Vec<Vec<u32>>,
    logits: Vec<f32>,
}

impl<'a> Uncached<'a> {
    /// A decoder that has read nothing.
    pub fn new(model: &'a Model, weights: &'a Weights, given: Input) -> Self {
        let read = vec![Vec::new(); given.batch()];
        Self { model, weights, native: Native::new(), given, read, logits: Vec::new() }
    }
}

impl Decode for Uncached<'_> {
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        same_batch(self.read.len(), tokens)?;
        let longer = |(read, new): (&Vec<u32>, &Vec<u32>)| [read.as_slice(), new].concat();
        let read: Vec<Vec<u32>> = self.read.iter().zip(tokens).map(longer).collect();
        // Rows are of one length: there is no padding.
        let input = self.given.clone().with_target(Rows::new(&read, 0));
        let mut last = LastRow { node: logits_of(self.model)?, logits: Vec::new() };
        self.native.run(self.model, self.weights, &input, &mut last)?;
        (self.read, self.logits) = (read, last.logits);
        Ok(&self.logits)
    }

    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        known_rows(self.read.len(), rows)?;
        self.read = rows.iter().map(|&row| self.read[row].clone()).collect();
        self.given = self.given.select(rows);
        Ok(())
    }
}

/// The node whose values choose the next token.
pub(crate) fn logits_of(model: &Model) -> Result<NodeId, RunError> {
    model.graph.at(Role::Logits).ok_or_else(|| RunError::Obstacle("the graph has no logits".into()))
}

fn same_batch(batch: usize, tokens: &[Vec<u32>]) -> Result<(), RunError> {
    let length = tokens.first().map_or(0, Vec::len);
    if tokens.len() == batch && length > 0 && tokens.iter().all(|row| row.len() == length) {
        return Ok(());
    }
    Err(RunError::Input {
        place: "the decoder's tokens".into(),
        found: format!("rows of {:?}", tokens.iter().map(Vec::len).collect::<Vec<_>>()),
        expected: format!("{batch} rows of one length are decoded"),
        help: "give every sentence as many tokens".into(),
    })
}

fn known_rows(batch: usize, rows: &[usize]) -> Result<(), RunError> {
    if !rows.is_empty() && rows.iter().all(|&row| row < batch) {
        return Ok(());
    }
    Err(RunError::Input {
        place: "the rows to go on with".into(),
        found: format!("{rows:?}"),
        expected: format!("{batch} rows are decoded"),
        help: "name rows that are being decoded, from 0".into(),
    })
}

/// Takes the logits of the last position of each row.
struct LastRow {
    node: NodeId,
    logits: Vec<f32>,
}

impl Sink for LastRow {
    fn wants(&self, node: NodeId) -> bool {
        node == self.node
    }

    fn held(&self, _: NodeId) -> u64 {
        0
    }

    fn put(&mut self, _: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        let [_, length, vocabulary] = *shape else { return Ok(()) };
        // [batch, target, vocabulary]
        let all = values.to_f32();
        let rows = all.chunks((length * vocabulary).max(1));
        rows.for_each(|row| self.logits.extend(&row[row.len().saturating_sub(vocabulary)..]));
        Ok(())
    }
}
