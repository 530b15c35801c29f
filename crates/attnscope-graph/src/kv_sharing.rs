//! Which head of keys and values a head of queries reads, where there are fewer of those.

use serde::{Deserialize, Serialize};

/// How heads of queries share heads of keys and values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvSharing {
    /// Neighbouring heads of queries share one, as if each were repeated: `repeat_interleave` in torch.
    #[default]
    Repeat,
    /// Every so many heads of queries share one, as if all of them were repeated in turn: `repeat` in torch. A usual mistake.
    Tile,
}

impl KvSharing {
    /// Every way.
    pub const ALL: [Self; 2] = [Self::Repeat, Self::Tile];

    /// The head of keys and values that a head of queries reads.
    pub fn head(self, head: usize, heads: usize, kv_heads: usize) -> usize {
        let kv_heads = kv_heads.max(1);
        match self {
            Self::Repeat => head / (heads / kv_heads).max(1),
            Self::Tile => head % kv_heads,
        }
    }

    /// The head of queries that is the n-th of those that read a head of keys and values.
    pub fn reader(self, n: usize, kv_head: usize, heads: usize, kv_heads: usize) -> usize {
        let kv_heads = kv_heads.max(1);
        match self {
            Self::Repeat => kv_head * (heads / kv_heads) + n,
            Self::Tile => n * kv_heads + kv_head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_of_queries_reads_one_and_is_found_from_it() {
        let read = |sharing: KvSharing| (0..6).map(|head| sharing.head(head, 6, 2)).collect::<Vec<_>>();
        assert_eq!(read(KvSharing::Repeat), [0, 0, 0, 1, 1, 1]);
        assert_eq!(read(KvSharing::Tile), [0, 1, 0, 1, 0, 1]);
        for sharing in KvSharing::ALL {
            for (n, kv_head) in (0..3).flat_map(|n| [(n, 0), (n, 1)]) {
                assert_eq!(sharing.head(sharing.reader(n, kv_head, 6, 2), 6, 2), kv_head, "{sharing:?}");
            }
            // Heads that share nothing, and one that all share.
            assert_eq!((sharing.head(3, 4, 4), sharing.head(3, 4, 1)), (3, 0));
        }
    }
}
