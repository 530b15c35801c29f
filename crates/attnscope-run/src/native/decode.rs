//! Decoding a few tokens at a time: what depends on the source is computed once, keys and values of the target are kept.

use std::collections::HashMap;

use attnscope_graph::{Model, NodeId, Side, Sizes};

use super::cache::Cache;
use super::pass::{Part, Pass};
use super::plan::Plan;
use super::pool::Shared;
use super::window::Window;
use super::{Native, Report};
use crate::change::Changes;
use crate::error::RunError;
use crate::input::{Input, Sequence, check_rows};
use crate::prepare::checked_sizes;
use crate::sink::{Sink, Values};
use crate::weights::Weights;

/// A decoder under way: some rows, each of which looks at a row of the source and has written as many tokens as the rest.
#[derive(Debug)]
pub struct Decoding<'a> {
    native: &'a mut Native,
    model: &'a Model,
    weights: &'a Weights,
    plan: Plan,
    sizes: Sizes,
    /// Which source positions are tokens, [source row, position]; all of them for audio.
    source_open: Option<Vec<bool>>,
    /// The row of the source that each row looks at.
    rows: Vec<usize>,
    /// What each row has read so far.
    tokens: Vec<Vec<u32>>,
    /// What the source gave, by node.
    values: Vec<Shared>,
    /// Keys and values of the target so far, by node.
    caches: Vec<Cache>,
    logits: Vec<f32>,
    report: Report,
    /// The part of the report that is about the source.
    of_source: Report,
}

/// Wants nothing.
struct Nothing;

impl Sink for Nothing {
    fn wants(&self, _: NodeId) -> bool {
        false
    }

    fn held(&self, _: NodeId) -> u64 {
        0
    }

    fn put(&mut self, _: NodeId, _: &[usize], _: Values<'_>) -> Result<(), RunError> {
        Ok(())
    }
}

impl Native {
    /// Runs everything that does not depend on the target, the encoder first, once for all the tokens that follow. What
    /// is given is the input without its target; a decoder alone is given nothing but the number of rows.
    ///
    /// # Errors
    /// When the source does not fit the model.
    pub fn start<'a>(
        &'a mut self,
        model: &'a Model,
        weights: &'a Weights,
        given: &Input,
    ) -> Result<Decoding<'a>, RunError> {
        let sizes = checked_sizes(model, given, model.architecture.sides().filter(|&s| s != Side::Target))?;
        let batch = given.batch();
        let nodes = model.graph.nodes().len();
        let source_open = given.rows(Side::Source).map(|rows| rows.open().to_vec());
        let mut decoding = Decoding {
            native: self,
            model,
            weights,
            plan: Plan::new(&model.graph, &Changes::default()),
            sizes,
            source_open,
            rows: (0..batch).collect(),
            tokens: vec![Vec::new(); batch],
            values: vec![Shared::default(); nodes],
            caches: (0..nodes).map(|_| Cache::default()).collect(),
            logits: Vec::new(),
            report: Report::default(),
            of_source: Report::default(),
        };
        decoding.pass(Part::Source, given.sequence(Side::Source), &[], 0, &mut Nothing)?;
        decoding.of_source = decoding.report.clone();
        Ok(decoding)
    }
}

impl Decoding<'_> {
    /// Reads the next tokens of every row, as many in each, and gives the logits at the last of them, [row, vocabulary].
    ///
    /// # Errors
    /// When the tokens do not fit the model or the rows. The decoding is then as it was before.
    pub fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        self.advance_into(tokens, &mut Nothing)
    }

    /// The same, and hands every wanted tensor that depends on the target to the sink. Along target positions a tensor has
    /// those of this step; along keys, all so far.
    ///
    /// # Errors
    /// When the tokens do not fit the model or the rows, or the sink refuses a tensor. The decoding is then as it was
    /// before.
    pub fn advance_into(&mut self, tokens: &[Vec<u32>], sink: &mut dyn Sink) -> Result<&[f32], RunError> {
        self.check_shape(tokens)?;
        let past = self.position();
        let before = self.report.clone();
        if !self.plan.is_causal {
            // Every position is computed, and counted, once more.
            self.report = self.of_source.clone();
        }
        for (row, tokens) in self.tokens.iter_mut().zip(tokens) {
            row.extend(tokens);
        }
        if let Err(error) = self.read(past, sink) {
            self.tokens.iter_mut().for_each(|row| row.truncate(past));
            self.report = before;
            return Err(error);
        }
        Ok(&self.logits)
    }

    /// Continues with these rows in this order, some perhaps more than once: the beams that are left, or the first ones.
    ///
    /// # Errors
    /// When there is no such row, or none at all.
    pub fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        let batch = self.rows.len();
        if rows.is_empty() || rows.iter().any(|&row| row >= batch) {
            return Err(RunError::Input {
                place: "rows".into(),
                found: format!("{rows:?}"),
                expected: format!("there are rows 0 to {}", batch.saturating_sub(1)),
                help: "name rows that are being decoded".into(),
            });
        }
        if rows.iter().copied().eq(0..batch) {
            return Ok(());
        }
        let past = self.position();
        for cache in &mut self.caches {
            cache.reorder(&self.native.pool, past, rows);
        }
        self.rows = rows.iter().map(|&row| self.rows[row]).collect();
        self.tokens = rows.iter().map(|&row| self.tokens[row].clone()).collect();
        Ok(())
    }

    /// How many tokens each row has read.
    pub fn position(&self) -> usize {
        self.tokens.first().map_or(0, Vec::len)
    }

    /// What there is to say about all steps so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn check_shape(&self, tokens: &[Vec<u32>]) -> Result<(), RunError> {
        let length = tokens.first().map_or(0, Vec::len);
        let refuse = |found: String, expected: String| RunError::Input {
            place: "target".into(),
            found,
            expected,
            help: "give every row the same number of tokens, at least one".into(),
        };
        if tokens.len() != self.rows.len() {
            let expected = format!("{} are being decoded", self.rows.len());
            return Err(refuse(format!("{} rows", tokens.len()), expected));
        }
        match tokens.iter().find(|row| row.len() != length || row.is_empty()) {
            Some(row) => Err(refuse(format!("a row of {}", row.len()), format!("the first has {length}"))),
            None => Ok(()),
        }
    }

    /// Computes the positions from `past` on.
    fn read(&mut self, past: usize, sink: &mut dyn Sink) -> Result<(), RunError> {
        check_rows(self.model, Side::Target, &self.tokens)?;
        // Where positions see those after them, nothing that was computed before still holds.
        let past = if self.plan.is_causal { past } else { 0 };
        let target: Vec<u32> = self.tokens.iter().flat_map(|row| &row[past..]).copied().collect();
        self.pass(Part::Target, None, &target, past, sink)
    }

    fn pass(
        &mut self,
        part: Part,
        source: Option<&Sequence>,
        target: &[u32],
        past: usize,
        sink: &mut dyn Sink,
    ) -> Result<(), RunError> {
        let changes = Changes::default();
        let pass = Pass {
            model: self.model,
            weights: self.weights,
            plan: &self.plan,
            changes: &changes,
            window: Window {
                source,
                source_open: self.source_open.as_deref(),
                target,
                target_open: None,
                past,
                length: target.len() / self.rows.len().max(1),
                rows: &self.rows,
                sizes: &self.sizes,
            },
            part,
            machine: self.native.machine(),
            values: &mut self.values,
            caches: Some(&mut self.caches),
            last_logits: &mut self.logits,
            masks: HashMap::new(),
            biases: HashMap::new(),
            report: &mut self.report,
        };
        pass.run(sink)
    }
}
