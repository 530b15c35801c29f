//! Usual mistakes of decoding with a cache: what a prompt was given is right, and what each new token is given is not.

use attnscope_graph::{MaskKind, Node, Op, Rotary, Side};

use super::{Candidate, Steps, read};
use crate::diff::lab::{Edit, Extent, Made, Trial};
use crate::diff::relation::Relation;
use crate::diff::variant::{CachedMask, CachedPositions};

impl<'a> Steps<'_, 'a> {
    /// Queries and keys of new tokens rotated by other positions: both where neither was dumped.
    pub(super) fn cached_rotations(&self, step: usize, side: Side, own: Rotary) -> Vec<Candidate<'a>> {
        let Some(from) = self.first else { return Vec::new() };
        let rotated: Vec<usize> =
            ["q_rot", "k_rot"].iter().filter_map(|leaf| self.beside(step, leaf)).collect();
        // Tried with the first of them.
        if rotated.first().is_some_and(|first| *first != step) {
            return Vec::new();
        }
        let candidate = |how: CachedPositions| {
            let edit = |&at: &usize| {
                let moved = how.shift(from).map(|shift| Op::Rotate { side, rotary: Rotary { shift, ..own } });
                self.edited_since(at, from, moved)
            };
            let edits: Vec<Edit<'a>> = rotated.iter().filter_map(edit).collect();
            let candidate = Candidate::new(Relation::CachedPositions { from, how }, edits);
            Candidate { step, ..candidate }
        };
        CachedPositions::ALL.into_iter().map(candidate).collect()
    }

    /// Rows of the position table, or computed positions, that are off by one for new tokens.
    pub(super) fn cached_positions(&self, step: usize) -> Vec<Candidate<'a>> {
        let (Some(from), Op::Positions { kind, offset, count, side }) = (self.first, self.node(step).op)
        else {
            return Vec::new();
        };
        let candidate = |how: CachedPositions| {
            let shift = how.shift(from).and_then(|by| isize::try_from(by).ok())?;
            let offset = offset.checked_add_signed(shift)?;
            let edit = self.edited_since(step, from, Some(Op::Positions { kind, offset, count, side }))?;
            Some(Candidate::new(Relation::CachedPositions { from, how }, vec![edit]))
        };
        CachedPositions::ALL.into_iter().filter_map(candidate).collect()
    }

    /// A causal mask that is wrong for the queries of new tokens.
    pub(super) fn cached_masks(&self, step: usize, kind: MaskKind) -> Vec<Candidate<'a>> {
        let Some(from) = self.first.filter(|_| kind.causal) else { return Vec::new() };
        let candidate = |how: CachedMask| {
            let sees = move |query: usize, key: usize| match query < from {
                true => key <= query,
                false => how.sees(from, query, key),
            };
            let edit = self.causal_by(step, kind, sees);
            Candidate::new(Relation::CachedMask { from, how }, vec![edit])
        };
        CachedMask::ALL.into_iter().map(candidate).collect()
    }

    /// A step with another operation from a position on; with its own input there, where there is none.
    fn edited_since(&self, step: usize, from: usize, op: Option<Op>) -> Option<Edit<'a>> {
        let node = self.node(step).clone();
        let input = *node.inputs.first()?;
        let other = op.map(|op| Node { op, ..node.clone() });
        let make = move |trial: &Trial<'_, '_, '_>, extent: Extent| {
            let other = match &other {
                Some(other) => trial.computed(other, None, extent)?,
                None => read(trial, input, extent)?,
            };
            let (Some(own), Some(other)) = (trial.computed(&node, None, extent)?, other) else {
                return Ok(None);
            };
            Ok(Some(joined(&own, &other, |row| trial.position(row, extent) >= from)))
        };
        Some(Edit { step, make: Box::new(make) })
    }
}

/// The first tensor with some of its rows, [.., row, feature], from the other.
fn joined(own: &Made, other: &Made, is_other: impl Fn(usize) -> bool) -> Made {
    let [.., rows, width] = own.kept.shape[..] else { return own.clone() };
    own.map(|i, x, e| match is_other(i / width.max(1) % rows.max(1)) {
        true => (other.kept.values.get(i).copied().unwrap_or(x), other.error.at(i)),
        false => (x, e),
    })
}
