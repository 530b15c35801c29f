//! Byte-pair merging, for every tokenizer whose vocabulary ranks the pairs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A part of the text that may be joined to its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) range: Range<usize>,
    /// Never merged: a user-defined symbol.
    pub(super) frozen: bool,
}

/// A pair that can be joined: the best rank first, then the leftmost.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair<P: Ord> {
    rank: P,
    left: Reverse<usize>,
    right: usize,
    /// Where both ended when the pair was found: a pair that has changed since is stale.
    ends: (usize, usize),
}

/// Joins neighbours until `rank` knows no pair. `rank` is given the two ranges; the highest goes first.
pub(super) fn merge<P: Ord>(
    mut symbols: Vec<Symbol>,
    mut rank: impl FnMut(&Range<usize>, &Range<usize>) -> Option<P>,
) -> Vec<Range<usize>> {
    let count = symbols.len();
    let mut next: Vec<usize> = (1..=count).collect();
    let mut previous: Vec<Option<usize>> = (0..count).map(|i| i.checked_sub(1)).collect();
    let mut gone = vec![false; count];
    let mut queue = BinaryHeap::new();
    let mut offer = |queue: &mut BinaryHeap<Pair<P>>, symbols: &[Symbol], left: usize, right: usize| {
        let (Some(a), Some(b)) = (symbols.get(left), symbols.get(right)) else { return };
        if a.frozen || b.frozen {
            return;
        }
        if let Some(rank) = rank(&a.range, &b.range) {
            queue.push(Pair { rank, left: Reverse(left), right, ends: (a.range.end, b.range.end) });
        }
    };
    for left in 0..count.saturating_sub(1) {
        offer(&mut queue, &symbols, left, left + 1);
    }
    while let Some(Pair { left: Reverse(left), right, ends, .. }) = queue.pop() {
        if gone[left] || gone[right] || ends != (symbols[left].range.end, symbols[right].range.end) {
            continue;
        }
        symbols[left].range.end = symbols[right].range.end;
        gone[right] = true;
        next[left] = next[right];
        if let Some(after) = previous.get_mut(next[left]) {
            *after = Some(left);
        }
        if let Some(before) = previous[left] {
            offer(&mut queue, &symbols, before, left);
        }
        offer(&mut queue, &symbols, left, next[left]);
    }
    let kept = symbols.into_iter().zip(gone).filter(|(_, gone)| !gone);
    kept.map(|(symbol, _)| symbol.range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str, ranks: &[&str]) -> Vec<String> {
        let symbols = (0..text.len()).map(|i| Symbol { range: i..i + 1, frozen: false }).collect();
        let rank = |a: &Range<usize>, b: &Range<usize>| {
            ranks.iter().position(|r| *r == &text[a.start..b.end]).map(Reverse)
        };
        merge(symbols, rank).into_iter().map(|r| text[r].to_owned()).collect()
    }

    #[test]
    fn the_lowest_rank_goes_first_and_ties_go_left() {
        assert_eq!(pieces("abcab", &["bc", "ab", "abc"]), ["abc", "ab"]);
        assert_eq!(pieces("aaaaa", &["aa"]), ["aa", "aa", "a"]);
        assert_eq!(pieces("aaaaa", &["aa", "aaaa"]), ["aaaa", "a"]);
        assert_eq!(pieces("", &["aa"]), [""; 0]);
    }
}
