//! The path from a node back to the tensors that a side has. Nodes that were not dumped are computed along it, with their
//! bounds.

use std::collections::HashMap;
use std::sync::Arc;

use attnscope_checkpoint::Error;
use attnscope_graph::{NodeId, Op};
use attnscope_run::Kept;

use super::judge::{Judge, Tensors};
use super::spread::{self, Noise};
use crate::rounding::{Bounded, Precision};

/// The most steps between a node and the nearest dumped tensors; beyond that, a whole part of the model was not dumped.
const MAX_STEPS: usize = 64;

/// The steps between a node and the nearest tensors of a side.
pub(super) struct Gap<'w, 'a> {
    judge: &'w Judge<'a>,
    tensors: Tensors<'w>,
    /// The inputs of the model: ids, features.
    given: Tensors<'w>,
    /// Of what is computed on the way.
    precision: Precision,
    made: HashMap<usize, Arc<Bounded>>,
    steps: usize,
    /// Adds random errors to every step, where wanted.
    noise: Option<Noise>,
}

impl<'w, 'a> Gap<'w, 'a> {
    pub(super) fn new(
        judge: &'w Judge<'a>,
        tensors: Tensors<'w>,
        given: Tensors<'w>,
        precision: Precision,
    ) -> Self {
        Self { judge, tensors, given, precision, made: HashMap::new(), steps: 0, noise: None }
    }

    /// Nodes that had to be computed so far.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// What a node reads.
    pub(super) fn inputs(&mut self, node: usize) -> Result<Option<Vec<Arc<Bounded>>>, Error> {
        let ids: Vec<usize> = self.judge.node(node).inputs.iter().map(|id: &NodeId| id.index()).collect();
        let mut inputs = Vec::with_capacity(ids.len());
        for id in ids {
            match self.value(id)? {
                Some(value) => inputs.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(inputs))
    }

    /// A node's tensor: the side's own, or computed.
    fn value(&mut self, node: usize) -> Result<Option<Arc<Bounded>>, Error> {
        if let Some(value) = self.made.get(&node) {
            return Ok(Some(value.clone()));
        }
        let frame = self.judge.frame;
        let at = self.judge.node(node);
        let mut value = self.tensors.get(frame, node)?;
        if value.is_none() && matches!(at.op, Op::Ids(_) | Op::Features) {
            value = self.given.get(frame, node)?;
        }
        let value = match value {
            Some(kept) => self.tensors.bounded(self.judge, node, kept),
            None => {
                self.steps += 1;
                if self.steps > MAX_STEPS {
                    return Ok(None);
                }
                let Some(inputs) = self.inputs(node)? else { return Ok(None) };
                match self.judge.evaluate(at, &inputs, self.precision, self.tensors)? {
                    Some(computed) => computed,
                    None => return Ok(None),
                }
            }
        };
        let value = match &mut self.noise {
            Some(noise) => noise.moved(value),
            None => value,
        };
        let value = Arc::new(value);
        self.made.insert(node, value.clone());
        Ok(Some(value))
    }
}

impl Judge<'_> {
    /// How far rounding is likely to move a node, from one run of the steps before it with random errors in each.
    pub(super) fn spread(
        &self,
        node: usize,
        [tensors, given]: [Tensors<'_>; 2],
        gap: Precision,
        expected: &Kept,
    ) -> Result<Option<f64>, Error> {
        let mut way = Gap { noise: Some(Noise::new()), ..Gap::new(self, tensors, given, gap) };
        let Some(inputs) = way.inputs(node)? else { return Ok(None) };
        let precision = tensors.precision(self, node);
        let (Some(moved), Some(mut noise)) =
            (self.evaluate(self.node(node), &inputs, precision, tensors)?, way.noise)
        else {
            return Ok(None);
        };
        let moved = noise.moved(moved);
        let open = self.frame.open(node);
        let counts = |i: usize| open.as_ref().is_none_or(|open| open.has(i));
        Ok(Some(spread::distance(&moved.kept, expected, counts)).filter(|spread| *spread > 0.0))
    }

    /// Tensors that are computed on the way to a node are taken to be rounded as coarsely as the dumped ones.
    pub(super) fn gap_precision(&self, node: usize, tensors: Tensors<'_>) -> Result<Precision, Error> {
        let mut precision = tensors.precision(self, node);
        let (mut open, mut seen) = (vec![node], vec![node]);
        while let Some(at) = open.pop() {
            for input in self.node(at).inputs.iter().map(|id| id.index()) {
                if seen.contains(&input) || seen.len() > MAX_STEPS {
                    continue;
                }
                seen.push(input);
                match tensors.bindings.of[input].is_some() {
                    true if at != node => {
                        tensors.get(self.frame, input)?;
                        precision = precision.coarser(tensors.precision(self, input));
                    }
                    true => {}
                    false => open.push(input),
                }
            }
        }
        Ok(precision)
    }
}
