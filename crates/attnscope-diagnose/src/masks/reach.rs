//! Proofs about positions: what a target token must not see, and what it must see.

use attnscope_graph::{AttentionKind, AttentionStep, NodeId, Op, Role, Side};
use attnscope_run::RunError;

use super::inconclusive::any_moved;
use super::padding::NO_CROSS;
use super::perturbation_rig::{PerturbationRig, Perturbed, Tensor, Tensors};
use super::place::{Axes, Free, distance};
use super::proof::{Claim, Leak, Proof, Verdict};

/// Why a proof about later tokens has nothing to try.
const NO_TARGET: &str = "the model has no decoder";
/// Of a long input, so many positions are tried that positions × length stays below this.
const BUDGET: usize = 1 << 13;
/// And at least this many.
const LEAST: usize = 4;
/// The reason where no perturbation is large enough.
const TOO_LARGE: &str = "overflow: a larger perturbation, which is needed, makes the logits infinite or NaN";
/// A perturbation that a softmax hides is tried again, larger and in another direction.
const TRIES: [(u64, f32); 4] = [(1, 1.0), (2, 8.0), (3, -8.0), (4, 64.0)];

/// Positions from `first` on, evenly spaced where there are many; the last is among them.
fn picked(first: usize, length: usize) -> Vec<usize> {
    let all = length.saturating_sub(first);
    let count = (BUDGET / length.max(1)).max(LEAST).min(all);
    (1..=count).map(|i| first + i * all / count - 1).collect()
}

impl PerturbationRig<'_> {
    /// Changes a target token: logits before it must stay.
    pub(super) fn causal(&mut self) -> Result<Proof, RunError> {
        let Some(target) = self.nodes.target else { return Ok(Proof::not_run(Claim::Causal, NO_TARGET)) };
        let lengths = self.lengths(self.input)?;
        let [_, length] = lengths;
        if length < 2 {
            return Ok(Proof::not_run(Claim::Causal, "there is one target position, and nothing after it"));
        }
        let (nodes, input, batch) = (self.nodes, self.input, self.batch());
        let watched = [nodes.logits];
        let before = self.run(input, &[], &|id| id == nodes.logits || id == target)?;
        let positions = picked(1, length);
        let trial = |&changed: &usize| {
            let rows: Vec<(usize, usize)> = (0..batch).map(|row| (row, changed)).collect();
            Perturbed {
                input,
                interventions: self.noise(target, &before, &rows, TRIES[0]),
                free: Free::new(lengths, batch, |side, _, at| side == Side::Target && at >= changed),
                cause: format!("target position {changed} replaced"),
            }
        };
        let trials: Vec<Perturbed<'_>> = positions.iter().map(trial).collect();
        let cells = batch * positions.iter().sum::<usize>();
        let in_all = batch * length * (length - 1) / 2;
        self.stays(Claim::Causal, &before, &trials, &watched, (cells, in_all))
    }

    /// Changes every target token: nothing on the source's side may move.
    pub(super) fn cross_future(&mut self) -> Result<Proof, RunError> {
        let lengths = self.lengths(self.input)?;
        let (nodes, input, batch) = (self.nodes, self.input, self.batch());
        let graph = &self.model.graph;
        let (Some(target), Some(memory)) = (nodes.target, nodes.memory) else {
            return Ok(Proof::not_run(Claim::CrossFuture, NO_CROSS));
        };
        let of_source = |role: Role| {
            let is = |step| role.is(AttentionKind::CrossAttention, step);
            is(AttentionStep::K) || is(AttentionStep::V)
        };
        let mut watched: Vec<NodeId> = graph
            .iter()
            .filter(|(id, node)| *id == memory || of_source(node.role))
            .map(|(id, _)| id)
            .collect();
        watched.push(nodes.logits);
        let before = self.run(input, &[], &|id| id == target || watched.contains(&id))?;
        let rows: Vec<(usize, usize)> =
            (0..batch).flat_map(|row| (0..lengths[1]).map(move |at| (row, at))).collect();
        let trial = Perturbed {
            input,
            interventions: self.noise(target, &before, &rows, TRIES[0]),
            free: Free::new(lengths, batch, |side, _, _| side == Side::Target),
            cause: "every target token replaced".into(),
        };
        let cells = batch * lengths[0] * lengths[1];
        self.stays(Claim::CrossFuture, &before, &[trial], &watched, (cells, cells))
    }

    /// Changes a vector of the source: the logits of every target token must move.
    pub(super) fn reach(&mut self, claim: Claim, node: Option<NodeId>) -> Result<Proof, RunError> {
        let Some(node) = node else { return Ok(Proof::not_run(claim, NO_CROSS)) };
        let [source, target] = self.lengths(self.input)?;
        let (logits, input, batch) = (self.nodes.logits, self.input, self.batch());
        let before = self.run(input, &[], &|id| id == logits || id == node)?;
        let tokens = |rig: &Self, row: usize, at: usize| {
            let targets = (0..target).filter(move |&t| rig.is_token(Side::Target, row, t));
            let open = rig.is_token(Side::Source, row, at);
            targets.filter(move |_| open).map(move |t| (row, t)).collect::<Vec<_>>()
        };
        let all = |rig: &Self, at: usize| -> Vec<(usize, usize)> {
            (0..batch).flat_map(|row| tokens(rig, row, at)).collect()
        };
        let most = before.get(&logits).map_or(1.0, Tensor::most);
        let (mut cells, mut smallest, mut stuck, mut lost) = (0, f64::INFINITY, None, false);
        for at in picked(0, source) {
            let mut waiting = all(self, at);
            cells += waiting.len();
            for strength in TRIES {
                if waiting.is_empty() {
                    break;
                }
                let rows: Vec<(usize, usize)> = (0..batch)
                    .filter(|&row| self.is_token(Side::Source, row, at))
                    .map(|row| (row, at))
                    .collect();
                let interventions = self.noise(node, &before, &rows, strength);
                let after = self.run(input, &interventions, &|id| id == logits)?;
                // NaN spreads past masks, because 0 · NaN is NaN, so it proves nothing.
                if after.get(&logits).is_some_and(|logits| logits.values.iter().any(|x| !x.is_finite())) {
                    lost = true;
                    continue;
                }
                waiting.retain(|&cell| {
                    let far = logits_movement(&before, &after, logits, cell) / most;
                    smallest = if far > 0.0 { smallest.min(far) } else { smallest };
                    far == 0.0
                });
            }
            if let (None, Some(&(row, t))) = (&stuck, waiting.first()) {
                stuck = Some((row, t, at));
            }
        }
        if cells == 0 {
            return Ok(Proof::not_run(claim, "there is no source token with a target token"));
        }
        let cells_in_all = (0..source).map(|at| all(self, at).len()).sum();
        let (movement, verdict) = match stuck {
            Some(_) if lost => (0.0, Verdict::Inconclusive(TOO_LARGE.into())),
            Some(cell) => (0.0, self.barrier(node, cell)?),
            None => (smallest, Verdict::Holds),
        };
        Ok(Proof { claim, runs: 0, cells, cells_in_all, movement, felt: None, threshold: 0.0, verdict })
    }

    /// What keeps a target row from depending on a source position: a mask, or something else.
    fn barrier(&mut self, node: NodeId, (row, t, s): (usize, usize, usize)) -> Result<Verdict, RunError> {
        let before = self.run(self.input, &[], &|_| true)?;
        let interventions = self.noise(node, &before, &[(row, s)], TRIES[0]);
        let after = self.run(self.input, &interventions, &|_| true)?;
        let graph = &self.model.graph;
        let ends = self.ends(&[node], &|id, candidate| {
            let axes = Axes::of(candidate);
            match axes.query.is_some_and(|(_, side)| side == Side::Target) {
                true => row_moved(&before, &after, id, &axes, (row, t)),
                false => any_moved(&before, &after, id),
            }
        });
        let cause = format!("source position {s} changed, target position {t} does not move");
        // A mask stops a movement in the scores; a movement that ends elsewhere has another cause.
        Ok(match ends.iter().find(|&&id| matches!(graph.node(id).op, Op::AddMask { .. })) {
            Some(&mask) => Verdict::Fails(Leak {
                node: graph.node(mask).path.as_str().to_owned(),
                at: vec![row, t, s],
                movement: 0.0,
                cause,
            }),
            None => Verdict::Inconclusive(format!("{cause}: {}", self.end_words(&ends, &before))),
        })
    }
}

/// How far the logits of one target position moved. [batch, target, vocabulary]
fn logits_movement(before: &Tensors, after: &Tensors, logits: NodeId, (row, t): (usize, usize)) -> f64 {
    let (Some(a), Some(b)) = (before.get(&logits), after.get(&logits)) else { return 0.0 };
    let &[_, length, width] = &a.shape[..] else { return 0.0 };
    let here = (row * length + t) * width..(row * length + t + 1) * width;
    let (Some(a), Some(b)) = (a.values.get(here.clone()), b.values.get(here)) else { return 0.0 };
    a.iter().zip(b).map(|(&a, &b)| distance(a, b)).fold(0.0, f64::max)
}

/// Whether any cell of a position's row moved.
fn row_moved(
    before: &Tensors,
    after: &Tensors,
    node: NodeId,
    axes: &Axes,
    (row, position): (usize, usize),
) -> bool {
    let (Some(a), Some(b)) = (before.get(&node), after.get(&node)) else { return false };
    let (Some(batch), Some((query, _))) = (axes.batch, axes.query) else { return false };
    let is_here = |cell: usize| a.along(batch, cell) == row && a.along(query, cell) == position;
    let mut cells = a.values.iter().zip(&b.values).enumerate();
    cells.any(|(cell, (&a, &b))| distance(a, b) > 0.0 && is_here(cell))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_inputs_are_tried_whole_and_long_ones_evenly() {
        assert_eq!(picked(1, 5), [1, 2, 3, 4]);
        assert_eq!(picked(0, 3), [0, 1, 2]);
        assert!(picked(1, 1).is_empty());
        assert_eq!(picked(0, 1500), [299, 599, 899, 1199, 1499]);
        assert_eq!(picked(0, 1 << 14), [4095, 8191, 12287, 16383]);
    }
}
