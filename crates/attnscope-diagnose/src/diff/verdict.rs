//! The verdict on a node that differs: rounding, unusual, a bug, or a sign of another input.

use attnscope_graph::Op;

use super::direct::{self, Two};
use super::features::Conv;
use super::grain::Grain;
use super::inputs::apart;
use super::judge::{COARSE, FAR, Judge, Local, close, relative_rms};
use super::measure::{FLOOR, Measure};
use super::pair::load;
use super::relation::Relation;
use super::rewired::{Found, Suspect};
use super::walk::{Carried, STEP, Walk};
use super::{DiffError, Grounds, InputDifference};
use crate::rounding::Precision;

/// A difference that grows by no more than this factor over a node's inputs comes from the inputs.
pub(super) const CARRIED: f64 = 2.0;

/// The verdict on a node that differs.
pub(super) enum Verdict {
    /// Computed again: only rounding.
    Explained,
    /// Only rounding as far as can be seen, to a shorter type where a relation says so.
    Rounding(Option<Relation>),
    /// Slightly outside its bound (error divided by bound); or inside, but explained by a known mistake.
    Unusual(f64, usize, Option<Relation>),
    /// The evidence, the explanation, and the side.
    Step(Grounds, Option<Found>, usize),
    /// Explained by other features.
    OtherInput(InputDifference),
}

impl Walk<'_, '_> {
    pub(super) fn verdict(
        &self,
        node: usize,
        measure: &Measure,
        inherited: Carried,
        search: bool,
    ) -> Result<Verdict, DiffError> {
        if measure.is_same() {
            return Ok(Verdict::Rounding(None));
        }
        // Different features were already reported as another input.
        if self.frame.op(node) == Some(Op::Features) && measure.apart == 0 {
            return Ok(Verdict::Explained);
        }
        let (relative, unit) = (measure.relative(), self.unit(node));
        let apart = measure.apart > 0 && !inherited.apart;
        let jumps = apart || (relative > FLOOR * unit && relative > CARRIED * inherited.relative);
        if let Some(judge) = self.judge
            && let Some(verdict) = self.judged(judge, node, jumps, search)?
        {
            return Ok(verdict);
        }
        let large = relative > self.options.tolerance && relative > STEP * inherited.relative.max(unit);
        if large && relative <= STEP * self.unit_of_values(node)? {
            return Ok(Verdict::Explained);
        }
        // Nodes after a bug differ by much in any case.
        if !search || !jumps || (!apart && !large) {
            return Ok(Verdict::Rounding(None));
        }
        let relation = self.plain_relation(node, unit, inherited.relative)?;
        Ok(match relation {
            Some(relation) if relation.is_harmless() => Verdict::Rounding(Some(relation)),
            relation => {
                let found = relation.map(Found::from);
                Verdict::Step(Grounds::Growth, found, 1 - self.expected())
            }
        })
    }

    /// Computes a node again; `None` where that cannot be done, or the model describes neither side. Our side is computed again
    /// where the other side does not follow from its inputs, or where it does and the difference is still new.
    fn judged(
        &self,
        judge: &Judge<'_>,
        node: usize,
        jumps: bool,
        search: bool,
    ) -> Result<Option<Verdict>, DiffError> {
        let expected = self.expected();
        let (ours, theirs) = (self.tensors(expected), self.tensors(1 - expected));
        let Some(other) = judge.local(node, theirs, ours)? else { return Ok(None) };
        if other.worst <= 1.0 {
            let mut like = other.like.clone();
            // Bounds over several steps are wide enough to hide half precision in one of them.
            if like.is_none()
                && search
                && other.single
                && relative_rms(&other.expected, &other.found) > COARSE * Precision::F32.result
            {
                like = self.suspect(judge, node, &other, 1 - expected)?.likeness()?;
            }
            match like {
                Some(like) => return Ok(Some(Verdict::Unusual(other.worst, 1 - expected, Some(like)))),
                None if !jumps => return Ok(Some(Verdict::Explained)),
                None => {}
            }
        }
        let own = judge.local(node, ours, ours)?;
        let own_worst = own.as_ref().map_or(0.0, |own| own.worst);
        let (local, odd) = match (own, own_worst <= 1.0, other.worst <= 1.0) {
            (own, true, true) => {
                let like = own.and_then(|own| own.like);
                return Ok(Some(match like {
                    Some(like) => Verdict::Unusual(own_worst, expected, Some(like)),
                    None => Verdict::Explained,
                }));
            }
            (_, true, false) => (other, 1 - expected),
            (Some(own), false, true) => (own, expected),
            _ => return Ok(None),
        };
        if search && let Some(verdict) = self.other_features(judge, node, &local, odd) {
            return Ok(Some(verdict));
        }
        if local.worst <= FAR {
            let like = match &local.like {
                None if search => self.suspect(judge, node, &local, odd)?.likeness()?,
                like => like.clone(),
            };
            return Ok(Some(Verdict::Unusual(local.worst, odd, like)));
        }
        let found = if search { self.suspect(judge, node, &local, odd)?.relation()? } else { None };
        Ok(Some(match found {
            Some(found) if found.relation.is_harmless() => Verdict::Rounding(Some(found.relation)),
            found => Verdict::Step(Grounds::Recomputed, found, odd),
        }))
    }

    /// A convolution of features that were not dumped, where other features explain it.
    fn other_features(&self, judge: &Judge<'_>, node: usize, local: &Local, odd: usize) -> Option<Verdict> {
        let at = judge.node(node);
        let input = at.inputs.first()?.index();
        let hidden = self.frame.op(input) == Some(Op::Features) && self.bindings[odd].of[input].is_none();
        let shape = self.frame.nodes[input].shape.as_deref().filter(|_| hidden)?;
        let conv = Conv::new(at, judge.weights_of(at)?.first()?, local, shape)?;
        if !conv.explains(local) {
            return None;
        }
        let relative = apart(&local.expected.values, &local.found.values);
        let seen_in = Some(self.frame.nodes[node].path.clone());
        // As with dumped features: front ends differ a little.
        let same = relative <= self.options.tolerance;
        Some(if same {
            Verdict::Explained
        } else {
            Verdict::OtherInput(InputDifference::Audio { relative, seen_in })
        })
    }

    fn suspect<'s, 'j>(
        &'s self,
        judge: &'s Judge<'j>,
        node: usize,
        local: &'s Local,
        odd: usize,
    ) -> Result<Suspect<'s, 'j>, DiffError> {
        let (side, other) = (self.tensors(odd), self.tensors(1 - odd));
        Ok(Suspect::new(judge, node, local, [side, other])?)
    }

    /// The relation of two tensors by themselves.
    fn plain_relation(&self, node: usize, unit: f64, inherited: f64) -> Result<Option<Relation>, DiffError> {
        let expected = self.expected();
        let (Some(ours), Some(theirs)) = (
            self.tensors(expected).get(self.frame, node)?,
            self.tensors(1 - expected).get(self.frame, node)?,
        ) else {
            return Ok(None);
        };
        let mut theirs = attnscope_run::Kept::clone(&theirs);
        let finite = ours.values.iter().filter(|x| x.is_finite());
        let (sum, count) = finite.fold((0.0, 0usize), |(sum, n), x| (sum + x * x, n + 1));
        let usual = (sum / count.max(1) as f64).sqrt();
        let size = 32.0 * unit + 4.0 * inherited;
        let own = |x: &f64| if x.is_finite() { x.abs() } else { 0.0 };
        let mut allowed: Vec<f64> = ours.values.iter().map(|x| size * (own(x) + usual)).collect();
        close(self.frame, node, &ours.values, &mut theirs.values, &mut allowed);
        let two = Two {
            shape: &ours.shape,
            expected: &ours.values,
            found: &theirs.values,
            allowed: &allowed,
            masked: self.frame.is_masked(node),
            heads: self.frame.heads(node),
        };
        Ok(direct::relation(&two, self.frame).or_else(|| direct::part(&two, None)))
    }

    /// The rounding unit of the shorter type in the values of a node's two tensors, whatever type stores them.
    fn unit_of_values(&self, node: usize) -> Result<f64, DiffError> {
        let mut unit = 0.0f64;
        for (side, bindings) in self.sides.into_iter().zip(self.bindings.iter()) {
            let Some(bound) = &bindings.of[node] else { continue };
            unit = unit.max(Grain::of(&load(side, bound)?, bound.scale).map_or(0.0, |grain| grain.unit()));
        }
        Ok(unit)
    }
}
