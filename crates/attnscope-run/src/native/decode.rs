//! Decoding a few tokens at a time: what depends on the source is computed once, keys and values of the target are kept.

use std::borrow::Cow;
use std::collections::HashMap;

use attnscope_graph::{NodeId, Side, Sizes};

use super::cache::Cache;
use super::pass::{Part, Pass};
use super::window::Window;
use super::{NativeSession, Ready};
use crate::checked::CheckedInput;
use crate::error::RunError;
use crate::executor::{Decode, Report, check_known};
use crate::input::{Sequence, SideLimits};
use crate::intervention::Interventions;
use crate::pool::{Shared, catching};
use crate::sink::Nothing;
use crate::tensor::Tensor;

/// A running decoder: some rows, each of which reads a row of the source; all have read the same number of tokens.
#[derive(Debug)]
pub(super) struct Decoding<'a> {
    session: &'a NativeSession,
    ready: &'a Ready,
    sizes: Sizes,
    /// Which source positions are tokens, [source row, position]; all of them for audio.
    source_open: Option<Vec<bool>>,
    /// The source row of each row.
    rows: Vec<usize>,
    /// What each row has read so far.
    tokens: Vec<Vec<u32>>,
    /// The tensors of the source, by node.
    values: Vec<Shared>,
    /// Keys and values of the target so far, by node.
    caches: Vec<Cache>,
    logits: Vec<f32>,
}

impl<'a> Decoding<'a> {
    /// Runs what does not depend on the target.
    pub(super) fn start(
        session: &'a NativeSession,
        given: &CheckedInput,
        known: &[(NodeId, Tensor)],
    ) -> Result<Self, RunError> {
        let ready = &*session.of.ready;
        let sizes = given.sizes_to_decode(&ready.model, &ready.limits)?;
        let input = given.input();
        let (batch, nodes) = (input.batch(), ready.model.graph.nodes().len());
        let mut decoding = Decoding {
            session,
            ready,
            sizes,
            source_open: input.rows(Side::Source).map(|rows| rows.open().to_vec()),
            rows: (0..batch).collect(),
            tokens: vec![Vec::new(); batch],
            values: vec![Shared::default(); nodes],
            caches: (0..nodes).map(|_| Cache::default()).collect(),
            logits: Vec::new(),
        };
        check_known(&ready.model.graph, &decoding.sizes, known)?;
        for (at, tensor) in known {
            decoding.values[ready.plan.root[at.index()]] = tensor.shared();
        }
        if known.is_empty() {
            decoding.pass(Part::Source, input.sequence(Side::Source), &[], 0)?;
        }
        Ok(decoding)
    }
}

impl Decode for Decoding<'_> {
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        self.check_shape(tokens)?;
        let past = self.position();
        SideLimits::of(&self.ready.model, Side::Target).check_after(past, Side::Target, tokens)?;
        for (row, tokens) in self.tokens.iter_mut().zip(tokens) {
            row.extend(tokens);
        }
        if let Err(error) = self.read(past) {
            self.tokens.iter_mut().for_each(|row| row.truncate(past));
            return Err(error);
        }
        Ok(&self.logits)
    }

    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        let batch = self.rows.len();
        if rows.is_empty() || rows.iter().any(|&row| row >= batch) {
            return Err(RunError::Input {
                place: "rows".into(),
                found: format!("{rows:?}"),
                expected: format!("there are rows 0 to {}", batch.saturating_sub(1)),
                remedy: "name rows that are being decoded".into(),
            });
        }
        if rows.iter().copied().eq(0..batch) {
            return Ok(());
        }
        let past = self.position();
        // The new ones are made first, so that an error leaves the old ones unchanged.
        let pool = &self.ready.executor.pool;
        let caches = || self.caches.iter().map(|cache| cache.reordered(pool, past, rows)).collect();
        self.caches = catching(caches)?;
        self.rows = rows.iter().map(|&row| self.rows[row]).collect();
        self.tokens = rows.iter().map(|&row| self.tokens[row].clone()).collect();
        Ok(())
    }
}

impl Decoding<'_> {
    /// How many tokens each row has read.
    fn position(&self) -> usize {
        self.tokens.first().map_or(0, Vec::len)
    }

    fn check_shape(&self, tokens: &[Vec<u32>]) -> Result<(), RunError> {
        let length = tokens.first().map_or(0, Vec::len);
        let refuse = |found: String, expected: String| RunError::Input {
            place: "target".into(),
            found,
            expected,
            remedy: "give every row the same number of tokens, at least one".into(),
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
    fn read(&mut self, past: usize) -> Result<(), RunError> {
        // Where positions see later ones, all positions must be computed again.
        let past = if self.ready.plan.is_causal { past } else { 0 };
        let target: Vec<u32> = self.tokens.iter().flat_map(|row| &row[past..]).copied().collect();
        self.pass(Part::Target, None, &target, past)
    }

    fn pass(
        &mut self,
        part: Part,
        source: Option<&Sequence>,
        target: &[u32],
        past: usize,
    ) -> Result<(), RunError> {
        let interventions = Interventions::default();
        let pass = Pass {
            model: &self.ready.model,
            weights: Cow::Borrowed(&self.ready.weights),
            plan: &self.ready.plan,
            interventions: &interventions,
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
            machine: self.session.machine(),
            limits: &self.session.of.limits,
            values: &mut self.values,
            caches: Some(&mut self.caches),
            last_logits: &mut self.logits,
            masks: HashMap::new(),
            biases: HashMap::new(),
            report: &mut Report::default(),
            dropout_seed: None,
            kept: None,
        };
        pass.run(&mut Nothing)
    }
}
