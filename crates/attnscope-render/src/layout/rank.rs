//! Which row of boxes a block stands in.

use super::Edge;

/// Ranks by longest path, or nothing if the arrows run in a circle. A block without inputs is pulled down
/// to just above its first consumer: a mask belongs beside the scores it is added to, not at the top.
pub(super) fn ranks(blocks: usize, edges: &[Edge]) -> Option<Vec<usize>> {
    let mut waiting = vec![0_usize; blocks];
    for edge in edges {
        waiting[edge.to] += 1;
    }
    let sources: Vec<usize> = (0..blocks).filter(|&block| waiting[block] == 0).collect();
    let mut rank = vec![0_usize; blocks];
    let mut ready = sources.clone();
    let mut done = 0;
    while let Some(block) = ready.pop() {
        done += 1;
        for edge in edges.iter().filter(|edge| edge.from == block) {
            rank[edge.to] = rank[edge.to].max(rank[block] + 1);
            waiting[edge.to] -= 1;
            if waiting[edge.to] == 0 {
                ready.push(edge.to);
            }
        }
    }
    if done < blocks {
        return None;
    }
    for source in sources {
        let first = edges.iter().filter(|edge| edge.from == source).map(|edge| rank[edge.to]).min();
        rank[source] = first.map_or(0, |first| first.saturating_sub(1));
    }
    Some(rank)
}

/// Moves `down`, which stand in one rank, into a rank of their own below it.
pub(super) fn split(rank: &mut [usize], down: &[usize]) {
    let Some(at) = down.first().map(|&block| rank[block]) else { return };
    for (block, rank) in rank.iter_mut().enumerate() {
        if *rank > at || down.contains(&block) {
            *rank += 1;
        }
    }
}
