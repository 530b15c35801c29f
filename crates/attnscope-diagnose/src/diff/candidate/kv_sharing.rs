//! Heads of queries that read other heads of keys and values: torch's `repeat` in place of `repeat_interleave`.

use attnscope_graph::{Dim, KvSharing, Op};

use super::{Candidate, Steps, with_op};
use crate::diff::lab::Edit;
use crate::diff::relation::Relation;

impl<'a> Steps<'_, 'a> {
    /// The other way to share heads: in both products of the attention, or in one of them.
    pub(super) fn kv_sharings(&self, step: usize, own: KvSharing) -> Vec<Candidate<'a>> {
        let sizes = self.judge.formula.sizes();
        let [heads, kv_heads] =
            [Dim::Heads, Dim::KvHeads].map(|dim| sizes.get(dim(self.stack(step))).unwrap_or(0));
        // One head for all, or a head for each, is shared in one way only.
        if kv_heads <= 1 || kv_heads >= heads {
            return Vec::new();
        }
        let sharing = match own {
            KvSharing::Repeat => KvSharing::Tile,
            KvSharing::Tile => KvSharing::Repeat,
        };
        let edit = |at: usize| -> Option<Edit<'a>> {
            let op = match self.node(at).op {
                Op::Scores { scale, .. } => Op::Scores { scale, sharing },
                Op::Context { .. } => Op::Context { sharing },
                _ => return None,
            };
            Some(with_op(self.node(at), at, op))
        };
        let products: Vec<usize> =
            ["scores", "context_heads"].iter().filter_map(|leaf| self.beside(step, leaf)).collect();
        let mut sets = vec![products.clone()];
        if products.len() > 1 {
            sets.extend(products.iter().map(|&at| vec![at]));
        }
        let candidate = |set: Vec<usize>| {
            let edits: Vec<Edit<'a>> = set.into_iter().filter_map(edit).collect();
            (!edits.is_empty()).then(|| Candidate::new(Relation::OtherKvSharing { sharing }, edits))
        };
        sets.into_iter().filter_map(candidate).collect()
    }
}
