//! Usual mistakes of rotary positions, and of norms whose gain is one more than their weight.

use attnscope_graph::{NormGain, Op, Rotary, RotaryPairs, Side};

use super::{Candidate, Steps, with_op};
use crate::diff::relation::Relation;
use crate::diff::variant::OtherRotary;

/// Bases in use.
const THETAS: [f64; 6] = [10_000.0, 500_000.0, 1_000_000.0, 100_000.0, 160_000.0, 5_000_000.0];

impl<'a> Steps<'_, 'a> {
    /// Another layout, another base, no scaling, another share, positions that are off by one.
    pub(super) fn rotations(&self, step: usize, side: Side, own: Rotary) -> Vec<Candidate<'a>> {
        let other = match own.pairs {
            RotaryPairs::Halves => RotaryPairs::Neighbours,
            RotaryPairs::Neighbours => RotaryPairs::Halves,
        };
        let mut edits = vec![(OtherRotary::Layout(other), Rotary { pairs: other, ..own })];
        let thetas = THETAS.into_iter().filter(|base| *base != own.base);
        edits.extend(thetas.map(|base| (OtherRotary::Theta(base), Rotary { base, ..own })));
        edits.extend([-1, 1].map(|by| (OtherRotary::Shift(by), Rotary { shift: by, ..own })));
        if own.scaling.is_some() {
            edits.push((OtherRotary::NoScaling, Rotary { scaling: None, ..own }));
        }
        if own.share != 1.0 {
            edits.push((OtherRotary::AllFeatures, Rotary { share: 1.0, ..own }));
        }
        // Queries and keys are rotated in the same way: where neither was dumped, both are edited together, too.
        let other = self.beside(step, "k_rot").filter(|&other| other != step);
        let candidate = |(how, rotary): (OtherRotary, Rotary)| {
            let edit = |at: usize| with_op(self.node(at), at, Op::Rotate { side, rotary });
            let alone = Candidate::new(Relation::OtherRotary { how }, vec![edit(step)]);
            let together = other.map(|other| {
                let both = Candidate::new(Relation::OtherRotary { how }, vec![edit(step), edit(other)]);
                Candidate { step, ..both }
            });
            together.into_iter().chain([alone])
        };
        edits.into_iter().flat_map(candidate).collect()
    }

    /// A norm whose gain is its weight, or one more than it.
    pub(super) fn other_gain(&self, step: usize, own: Op) -> Option<Candidate<'a>> {
        let Op::Norm { kind, eps, gain } = own else { return None };
        let gain = match gain {
            NormGain::Weight => NormGain::OnePlusWeight,
            NormGain::OnePlusWeight => NormGain::Weight,
        };
        let edit = with_op(self.node(step), step, Op::Norm { kind, eps, gain });
        Some(Candidate::new(Relation::OtherNormGain { gain }, vec![edit]))
    }
}
