//! Explains a node that does not follow from its inputs: tries the usual mistakes at the node and at every step between it and
//! the dumped tensors, then relations of the two tensors alone.

use attnscope_checkpoint::Error;
use attnscope_graph::Op;

use super::candidate::{Candidate, Steps, dropout, dropout_rounding};
use super::direct::{self, Two};
use super::judge::{Judge, Local, Tensors};
use super::lab::{Extent, Lab, Made, Test};
use super::relation::Relation;
use crate::rounding::Rounding;

/// The most explanations that are reported.
const MOST_FITS: usize = 6;

/// A node that was found to differ from what its own inputs give.
pub(super) struct Suspect<'s, 'a> {
    lab: Lab<'s, 'a>,
    steps: Steps<'s, 'a>,
    node: usize,
    local: &'s Local,
}

/// The explanations of a node, the most likely first, each with its step where that is not the node itself.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) relation: Relation,
    pub(super) step: Option<usize>,
    pub(super) also: Vec<(Relation, Option<usize>)>,
}

impl From<Relation> for Found {
    fn from(relation: Relation) -> Self {
        Self { relation, step: None, also: Vec::new() }
    }
}

impl<'s, 'a> Suspect<'s, 'a> {
    pub(super) fn new(
        judge: &'s Judge<'a>,
        node: usize,
        local: &'s Local,
        [tensors, given]: [Tensors<'s>; 2],
    ) -> Result<Self, Error> {
        let mut all = vec![node];
        let mut next = 0;
        let mut rescaled: Vec<(usize, f64)> = Vec::new();
        while let Some(&step) = all.get(next) {
            for input in judge.node(step).inputs.iter().map(|id| id.index()) {
                match &tensors.bindings.of[input] {
                    Some(bound) if bound.scale != 1.0 => rescaled.push((input, bound.scale)),
                    None if !all.contains(&input) => all.push(input),
                    _ => {}
                }
            }
            next += 1;
        }
        // The nearest step first.
        all[1..].sort_unstable_by(|a, b| b.cmp(a));
        let rounding = Rounding::new(judge.gap_precision(node, tensors)?, judge.cells);
        let lab = Lab::new(judge, node, local, [tensors, given], rounding);
        Ok(Self { lab, steps: Steps { judge, all, rescaled, first: first_position(local) }, node, local })
    }

    /// What explains the difference, if anything simple does.
    pub(super) fn relation(&self) -> Result<Option<Found>, Error> {
        let two = self.two();
        let wirings = self.steps.all.iter().flat_map(|&step| self.steps.wirings(step)).collect();
        if let Some(found) = self.fitting(wirings)? {
            return Ok(Some(found));
        }
        let inputs = self.steps.not_scaled().into_iter().chain(self.steps.other_inputs()).collect();
        if let Some(found) = self.fitting(inputs)? {
            return Ok(Some(found));
        }
        if let Some(p) = self.dropout()? {
            return Ok(Some(Relation::Dropout { p }.into()));
        }
        if let Some(found) = direct::relation(&two, self.lab.judge.frame) {
            return Ok(Some(found.into()));
        }
        let weights = self.steps.all.iter().flat_map(|&step| self.steps.other_weights(step)).collect();
        if let Some(found) = self.fitting(weights)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.without_own_bias(&two) {
            return Ok(Some(found.into()));
        }
        Ok(direct::part(&two, self.steps.weight_path(self.node, 0)).map(Found::from))
    }

    /// A part in half precision, which is the usual cause of differences near a bound.
    pub(super) fn likeness(&self) -> Result<Option<Relation>, Error> {
        let wirings = self.steps.all.iter().flat_map(|&step| self.steps.wirings(step));
        let closer = wirings.filter(|candidate| matches!(candidate.test, Test::Closer(_))).collect();
        Ok(self.fitting(closer)?.map(|found| found.relation))
    }

    fn two(&self) -> Two<'_> {
        Two {
            shape: &self.local.expected.shape,
            expected: &self.local.expected.values,
            found: &self.local.found.values,
            allowed: &self.local.allowed,
            masked: self.lab.judge.frame.is_masked(self.node),
            heads: self.lab.judge.frame.heads(self.node),
        }
    }

    /// The candidates that explain the node; costly ones are tried only where no other does.
    fn fitting(&self, candidates: Vec<Candidate<'a>>) -> Result<Option<Found>, Error> {
        let mut fits: Vec<(Relation, usize)> = Vec::new();
        for costly in [false, true] {
            for candidate in candidates.iter().filter(|candidate| candidate.costly == costly) {
                let told = fits
                    .iter()
                    .any(|(relation, step)| *relation == candidate.relation && *step == candidate.step);
                if fits.len() < MOST_FITS && !told && self.lab.explains(&candidate.edits, candidate.test)? {
                    add(&mut fits, candidate);
                }
            }
            if !fits.is_empty() {
                break;
            }
        }
        let at = |step: usize| (step != self.node).then_some(step);
        let mut all = fits.into_iter().map(|(relation, step)| (relation, at(step)));
        let first = all.next();
        Ok(first.map(|(relation, step)| Found { relation, step, also: all.collect() }))
    }

    /// Dropout on the node itself, or on what is added to the stream.
    fn dropout(&self) -> Result<Option<f64>, Error> {
        let (local, node) = (self.local, self.lab.judge.node(self.node));
        let allowed = dropout_rounding(&local.allowed, &local.found.values);
        let own = dropout(&local.expected.values, &local.found.values, &allowed);
        if own.is_some() || !matches!(node.op, Op::Residual { .. }) {
            return Ok(own);
        }
        let read = |i: usize| -> Result<Option<Made>, Error> {
            let Some(id) = node.inputs.get(i) else { return Ok(None) };
            self.lab.unedited(id.index(), Extent::Whole)
        };
        let (Some(stream), Some(added)) = (read(0)?, read(1)?) else { return Ok(None) };
        let bare: Vec<f64> = local
            .found
            .values
            .iter()
            .zip(&stream.kept.values)
            .map(|(found, stream)| found - stream)
            .collect();
        Ok(dropout(&added.kept.values, &bare, &allowed))
    }

    /// A change of the matrix alone is seen after the bias is subtracted.
    fn without_own_bias(&self, two: &Two<'_>) -> Option<Relation> {
        let node = self.lab.judge.node(self.node);
        let own = self.lab.judge.weights_of(node)?;
        let bias = *own.get(1).filter(|bias| node.op == Op::Linear && !bias.is_empty())?;
        let off = |values: &[f64]| -> Vec<f64> {
            values.iter().enumerate().map(|(i, x)| x - f64::from(bias[i % bias.len()])).collect()
        };
        let (expected, found) = (off(two.expected), off(two.found));
        let bare = Two { expected: &expected, found: &found, ..*two };
        let weight = self.steps.weight_path(self.node, 0);
        match direct::of_weights(&bare, self.lab.judge.frame)? {
            Relation::PermutedHeads { order, .. } => Some(Relation::PermutedHeads { order, weight }),
            Relation::AllZero { .. } => Some(Relation::AllZero { weight }),
            found => Some(found),
        }
    }
}

/// The first position, [.., position, feature], at which some cell is off by more than its rounding; `None` where that is the
/// very first, or there is none.
fn first_position(local: &Local) -> Option<usize> {
    let [.., length, width] = local.expected.shape[..] else { return None };
    let is_off = |&i: &usize| {
        let (expected, found) = (local.expected.values[i], local.found.values[i]);
        expected != found && (expected - found).abs() > local.allowed[i]
    };
    let cells = 0..local.found.values.len().min(local.expected.values.len());
    let rows = cells.filter(is_off).map(|i| i / width.max(1) % length.max(1));
    rows.min().filter(|&row| row > 0)
}

/// Adds an explanation. Epsilons that cannot be distinguished are one explanation.
fn add(fits: &mut Vec<(Relation, usize)>, candidate: &Candidate<'_>) {
    if let Relation::OtherEps { eps, .. } = candidate.relation {
        for (relation, step) in fits.iter_mut() {
            if let (Relation::OtherEps { fits, .. }, true) = (relation, *step == candidate.step) {
                fits.push(eps);
                return;
            }
        }
    }
    fits.push((candidate.relation.clone(), candidate.step));
}
