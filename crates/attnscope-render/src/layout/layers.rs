//! Ranks with the lanes that long arrows take through them, and the order of both from left to right.

use super::Edge;

/// A straight column down which a source's value passes ranks on its way to consumers further below.
/// A source has one lane at most: all its long arrows share it.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// The block the value comes from.
    pub(super) source: usize,
    /// First rank it passes.
    pub(super) first: usize,
    /// Last rank it passes.
    pub(super) last: usize,
}

/// The ranks and everything in them. An *item* is a block (its index) or a lane (number of blocks + index).
#[derive(Debug, Clone)]
pub(super) struct Layers {
    /// The rank of each block.
    pub(super) rank: Vec<usize>,
    /// Number of ranks.
    pub(super) count: usize,
    /// The lanes.
    pub(super) lanes: Vec<Lane>,
    /// The lane of each block's value, if it has one.
    pub(super) lane_of: Vec<Option<usize>>,
    /// All items from left to right: one order for all ranks, so that the order of two lanes is the same in all ranks.
    pub(super) order: Vec<usize>,
    /// Per channel (the space under a rank): which item above is connected to which item below.
    pub(super) links: Vec<Vec<(usize, usize)>>,
}

impl Layers {
    /// Lays lanes for the edges that pass a rank, in the input's order. [`super::order`] improves on it.
    pub(super) fn new(rank: Vec<usize>, edges: &[Edge]) -> Self {
        let blocks = rank.len();
        let count = rank.iter().max().map_or(0, |last| last + 1);
        let mut lanes = Vec::new();
        let mut lane_of = vec![None; blocks];
        for source in 0..blocks {
            let last = edges.iter().filter(|edge| edge.from == source).map(|edge| rank[edge.to]).max();
            let Some(last) = last.filter(|&last| last > rank[source] + 1) else { continue };
            lane_of[source] = Some(lanes.len());
            lanes.push(Lane { source, first: rank[source] + 1, last: last - 1 });
        }
        let order = (0..blocks + lanes.len()).collect();
        let mut layers = Layers { rank, count, lanes, lane_of, order, links: Vec::new() };
        layers.links = layers.link(edges);
        layers
    }

    fn link(&self, edges: &[Edge]) -> Vec<Vec<(usize, usize)>> {
        let mut links = vec![Vec::new(); self.count.saturating_sub(1)];
        for edge in edges {
            let channel = self.rank[edge.to] - 1;
            let top = if self.rank[edge.from] == channel { edge.from } else { self.lane_item(edge.from) };
            links[channel].push((top, edge.to));
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            let item = self.blocks() + index;
            links[lane.first - 1].push((lane.source, item));
            for channel in links.iter_mut().take(lane.last).skip(lane.first) {
                channel.push((item, item));
            }
        }
        links
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.rank.len()
    }

    /// The item of a source's lane; the source itself if it has none.
    fn lane_item(&self, source: usize) -> usize {
        self.lane_of[source].map_or(source, |lane| self.blocks() + lane)
    }

    /// The lane behind an item, if it is one.
    pub(super) fn lane(&self, item: usize) -> Option<&Lane> {
        item.checked_sub(self.blocks()).and_then(|index| self.lanes.get(index))
    }

    /// Whether an item takes room in a rank.
    pub(super) fn in_rank(&self, item: usize, rank: usize) -> bool {
        match self.lane(item) {
            Some(lane) => (lane.first..=lane.last).contains(&rank),
            None => self.rank[item] == rank,
        }
    }

    /// The items of a rank from left to right.
    pub(super) fn row(&self, rank: usize) -> Vec<usize> {
        self.order.iter().copied().filter(|&item| self.in_rank(item, rank)).collect()
    }
}
