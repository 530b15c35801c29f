//! Perturbations that prove nothing about a mask, and why: the run overflows, or the movement starts or ends at a node without
//! a mask.

use attnscope_graph::{Capped, Node, NodeId, Op};
use attnscope_run::RunError;

use super::finite::Finite;
use super::perturbation_rig::{PerturbationRig, Perturbed, Tensor, Tensors};
use super::place::distance;
use super::proof::{Leak, Verdict};

/// How many nodes are named where a movement ends.
const NAMED: usize = 3;

/// Whether a mask acts at a node: a movement that starts or ends elsewhere has another cause.
pub(super) fn is_mask_step(op: &Op) -> bool {
    let is_capped = matches!(op, Op::SoftCap { of: Capped::Scores, .. });
    is_capped || matches!(op, Op::Scores { .. } | Op::AddMask { .. } | Op::Normalise(_))
}

impl PerturbationRig<'_> {
    /// What overflows in a perturbed run, in words; `None` where all of it is finite.
    pub(super) fn overflow(&mut self, perturbed: &Perturbed<'_>) -> Result<Option<String>, RunError> {
        let mut sink = Finite::new(self.model);
        self.run_into(perturbed.input, &perturbed.interventions, &mut sink)?;
        let words = |broken: crate::observe::Broken| {
            let node = &self.model.graph.node(broken.node).path;
            let value = broken.value;
            format!(
                "overflow: with {}, {node} holds {value} at {:?}, and NaN spreads past every mask",
                perturbed.cause, broken.at
            )
        };
        Ok(sink.broken.map(words))
    }

    /// The verdict on a perturbation that moved something that must stay. `leak` is the first tensor that moved.
    pub(super) fn leaked(&mut self, perturbed: &Perturbed<'_>, leak: Leak) -> Result<Verdict, RunError> {
        if !leak.movement.is_finite()
            && let Some(why) = self.overflow(perturbed)?
        {
            return Ok(Verdict::Inconclusive(why));
        }
        let graph = &self.model.graph;
        let op = graph.find(&leak.node).map(|id| &graph.node(id).op);
        Ok(match op.is_some_and(is_mask_step) {
            true => Verdict::Fails(leak),
            false => Verdict::Inconclusive(format!(
                "{}, and {} is the first tensor that moves, where there is no mask",
                leak.cause, leak.node
            )),
        })
    }

    /// Why a perturbation moved nothing at all, not even where it may.
    pub(super) fn unfelt(&mut self, perturbed: &Perturbed<'_>) -> Result<String, RunError> {
        let before = self.run(perturbed.input, &[], &|_| true)?;
        let after = self.run(perturbed.input, &perturbed.interventions, &|_| true)?;
        let start: Vec<NodeId> =
            perturbed.interventions.iter().map(|intervention| intervention.node).collect();
        let ends = self.ends(&start, &|id, _| any_moved(&before, &after, id));
        Ok(format!("{}, and nothing moves: {}", perturbed.cause, self.end_words(&ends, &before)))
    }

    /// The nodes at which a movement ends: something that they read moved, and they did not.
    pub(super) fn ends(&self, start: &[NodeId], moved: &dyn Fn(NodeId, &Node) -> bool) -> Vec<NodeId> {
        let (mut moving, mut ends) = (start.to_vec(), Vec::new());
        for (id, node) in self.model.graph.iter() {
            if moving.contains(&id) || !node.inputs.iter().any(|input| moving.contains(input)) {
                continue;
            }
            match moved(id, node) {
                true => moving.push(id),
                false => ends.push(id),
            }
        }
        ends
    }

    /// Where a movement ends, and why there.
    pub(super) fn end_words(&self, ends: &[NodeId], before: &Tensors) -> String {
        let Some(&first) = ends.first() else { return "the movement is lost on the way".into() };
        let path = |id: &NodeId| self.model.graph.node(*id).path.as_str().to_owned();
        let mut names: Vec<String> = ends.iter().take(NAMED).map(path).collect();
        if ends.len() > NAMED {
            names.push(format!("{} more", ends.len() - NAMED));
        }
        let why = self.end_reason(first, before).map(|why| format!(" ({why})")).unwrap_or_default();
        format!("the movement ends at {}{why}", names.join(", "))
    }

    /// Why a movement ends at a node, where the reason is a usual one.
    fn end_reason(&self, id: NodeId, before: &Tensors) -> Option<String> {
        let node = self.model.graph.node(id);
        let largest =
            node.inputs.iter().filter_map(|input| before.get(input)).map(Tensor::most).fold(0.0, f64::max);
        let zero = node.weights.iter().find(|&&weight| {
            let values = self.weights.get(weight);
            self.model.graph.weight(weight).dims.len() > 1
                && values.is_ok_and(|values| values.iter().all(|x| *x == 0.0))
        });
        if let Some(&weight) = zero {
            return Some(format!("{} is all 0", self.model.graph.weight(weight).path));
        }
        match node.op {
            Op::Norm { .. } if largest * largest > f64::from(f32::MAX) => Some(format!(
                "overflow: it squares values of up to {largest:.1e}, which is beyond f32's 3.4e38"
            )),
            Op::Normalise(_) => {
                Some("its largest scores leave the others a weight that does not change in f32".into())
            }
            Op::Residual { .. } => {
                Some(format!("beside values of up to {largest:.1e} it is lost in rounding"))
            }
            _ => None,
        }
    }
}

/// Whether any cell of a tensor moved.
pub(super) fn any_moved(before: &Tensors, after: &Tensors, id: NodeId) -> bool {
    let (Some(a), Some(b)) = (before.get(&id), after.get(&id)) else { return false };
    a.values.iter().zip(&b.values).any(|(&a, &b)| distance(a, b) > 0.0)
}
