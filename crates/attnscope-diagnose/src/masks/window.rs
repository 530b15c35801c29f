//! The proof that an attention with a window sees nothing outside of it.
//!
//! Layers pass on what they have seen, so that the logits may depend on keys far outside a window. What must not is the
//! context of the attention itself: its keys and values are changed at one position, and the contexts of queries that do not
//! see it must stay.

use attnscope_graph::{AttentionPlace, AttentionStep, NodeId, Side};
use attnscope_run::RunError;

use super::perturbation_rig::{PerturbationRig, Perturbed};
use super::place::Free;
use super::proof::{Claim, Proof, Verdict};

/// Of a long input, so many positions are tried in each layer.
const POSITIONS: usize = 16;
/// Random values of the tensor's own size.
const STRENGTH: (u64, f32) = (1, 1.0);

impl PerturbationRig<'_> {
    /// The attentions that have a window, and how far each sees.
    pub(super) fn windows(&self) -> Vec<(AttentionPlace, usize)> {
        let places = self.model.graph.nodes().iter().filter_map(|node| node.role.attention());
        let masks = places.filter(|(_, step)| *step == AttentionStep::Mask);
        let graph = &self.model.graph;
        masks.filter_map(|(place, _)| Some((place, graph.mask_of(place)?.reach?))).collect()
    }

    /// Changes a key and its value: the contexts of queries whose window does not hold it must stay.
    pub(super) fn window(&mut self) -> Result<Proof, RunError> {
        let mut whole: Option<Proof> = None;
        for (place, reach) in self.windows() {
            let one = self.window_of(place, reach)?;
            whole = Some(match whole {
                None => one,
                Some(before) => joined(before, one),
            });
        }
        Ok(whole.unwrap_or_else(|| Proof::not_run(Claim::Window, "the model has no window")))
    }

    fn window_of(&mut self, place: AttentionPlace, reach: usize) -> Result<Proof, RunError> {
        let lengths = self.lengths(self.input)?;
        let side = place.stack.side();
        let length = match side {
            Side::Source => lengths[0],
            Side::Target => lengths[1],
        };
        let nodes = [AttentionStep::K, AttentionStep::V, AttentionStep::Context];
        let nodes: Vec<NodeId> =
            nodes.into_iter().filter_map(|step| self.model.graph.at(place.step(step))).collect();
        let outside = |changed: usize| (0..length).filter(|at| at.abs_diff(changed) > reach).count();
        let in_all: usize = (0..length).map(outside).sum();
        let (&[k, v, context], true) = (&nodes[..], in_all > 0) else {
            let why = format!("a window of {place} holds the whole input: a longer one would be needed");
            return Ok(Proof::not_run(Claim::Window, why));
        };
        let (input, batch) = (self.input, self.batch());
        let before = self.run(input, &[], &|id| nodes.contains(&id))?;
        let count = length.min(POSITIONS);
        let positions: Vec<usize> = (0..count).map(|i| i * (length - 1) / (count - 1).max(1)).collect();
        let trial = |&changed: &usize| {
            let rows: Vec<(usize, usize)> = (0..batch).map(|row| (row, changed)).collect();
            let changed_at = |node| self.noise(node, &before, &rows, STRENGTH);
            Perturbed {
                input,
                interventions: [changed_at(k), changed_at(v)].concat(),
                free: Free::new(lengths, batch, |of, _, at| of == side && at.abs_diff(changed) <= reach),
                cause: format!("{place}: key and value of position {changed} replaced"),
            }
        };
        let trials: Vec<Perturbed<'_>> = positions.iter().map(trial).collect();
        let cells = batch * positions.iter().map(|&changed| outside(changed)).sum::<usize>();
        self.stays(Claim::Window, &before, &trials, &[context], (cells, batch * in_all))
    }
}

/// Two layers' proofs as one: the worse verdict, and the larger movement.
fn joined(a: Proof, b: Proof) -> Proof {
    let rank = |proof: &Proof| match proof.verdict {
        Verdict::Fails(_) => 3,
        Verdict::Inconclusive(_) => 2,
        Verdict::Holds => 1,
        Verdict::NotRun(_) => 0,
    };
    let (cells, cells_in_all) = (a.cells + b.cells, a.cells_in_all + b.cells_in_all);
    let movement = a.movement.max(b.movement);
    let felt = a.felt.into_iter().chain(b.felt).reduce(f64::max);
    let worse = if rank(&b) > rank(&a) { b } else { a };
    Proof { cells, cells_in_all, movement, felt, ..worse }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use attnscope_checkpoint::Checkpoint;
    use attnscope_graph::{Config, Recognised, recognise};
    use attnscope_run::{Executor, Input, Native, PadSide, Rows, Sequence, Weights, tensor_specs};

    use super::super::Padding;
    use super::*;

    /// A window that is one narrower than the model's own does not hold, in no layer that has one, and its own does.
    #[test]
    fn a_narrower_window_fails_and_names_the_attention() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/qwen2");
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let configs: Vec<Config<'_>> =
            checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
        let found = recognise(tensor_specs(&checkpoint), &configs, None).unwrap();
        let Recognised::Model(model) = found else { panic!("qwen2 is no model") };
        let weights = Weights::load(&model, &checkpoint).unwrap();
        let prepared = Native::new().prepare(Arc::from(model), weights).unwrap();
        let rows = Rows::new(&[(3..17).collect::<Vec<u32>>()], 0);
        let input = Input::of(Side::Target, Sequence::Tokens(rows));
        let padding = Padding { id: 0, side: PadSide::Right };
        let mut rig = PerturbationRig::new(&*prepared, &input, padding).unwrap();
        let windows = rig.windows();
        assert_eq!(
            windows.iter().map(|(place, reach)| (place.layer, *reach)).collect::<Vec<_>>(),
            [(1, 3), (2, 3)]
        );
        for (place, reach) in windows {
            assert_eq!(rig.window_of(place, reach).unwrap().verdict, Verdict::Holds, "{place}");
            let narrower = rig.window_of(place, reach - 1).unwrap();
            let Verdict::Fails(leak) = &narrower.verdict else { panic!("{place}: {narrower:?}") };
            assert!(leak.node.starts_with(&place.to_string()), "{leak:?}");
            assert!(matches!(rig.window_of(place, 20).unwrap().verdict, Verdict::NotRun(_)), "{place}");
        }
    }
}
