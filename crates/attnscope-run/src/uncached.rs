//! Decoding without a cache: the whole model is run again for every token. Slow, and obviously right: cached decoding is tested
//! against it, and executors without a cache use it.

use attnscope_graph::{Model, NodeId, Role};

use crate::checked::CheckedInput;
use crate::error::RunError;
use crate::executor::{Decode, Request, Session};
use crate::input::{Input, Rows};
use crate::sink::Sink;
use crate::tensor::Tensor;

/// Decodes by running the whole model again for every token.
pub struct Uncached<'a> {
    session: &'a mut dyn Session,
    given: Input,
    /// What each row has read.
    read: Vec<Vec<u32>>,
    logits: Vec<f32>,
}

impl<'a> Uncached<'a> {
    /// A decoder that has read nothing.
    pub fn new(session: &'a mut dyn Session, given: &CheckedInput) -> Self {
        let given = given.input().clone();
        let read = vec![Vec::new(); given.batch()];
        Self { session, given, read, logits: Vec::new() }
    }
}

impl Decode for Uncached<'_> {
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        same_batch(self.read.len(), tokens)?;
        let longer = |(read, new): (&Vec<u32>, &Vec<u32>)| [read.as_slice(), new].concat();
        let read: Vec<Vec<u32>> = self.read.iter().zip(tokens).map(longer).collect();
        let prepared = self.session.prepared();
        // Rows are of one length: there is no padding.
        let input = self.given.clone().with_target(Rows::new(&read, 0));
        let input = CheckedInput::new(prepared.model(), input)?;
        let mut last = LastRow { node: logits_of(prepared.model())?, logits: Vec::new() };
        self.session.run(&Request::new(&input), &mut last)?;
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
fn logits_of(model: &Model) -> Result<NodeId, RunError> {
    model.graph.at(Role::Logits).ok_or(RunError::NoOutput { what: "logits" })
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
        remedy: "give every sentence as many tokens".into(),
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
        remedy: "name rows that are being decoded, from 0".into(),
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

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, _: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        let &[_, length, vocabulary] = tensor.shape() else { return Ok(()) };
        // [batch, target, vocabulary]
        let all = tensor.values().as_f32();
        let rows = all.chunks((length * vocabulary).max(1));
        rows.for_each(|row| self.logits.extend(&row[row.len().saturating_sub(vocabulary)..]));
        Ok(())
    }
}
