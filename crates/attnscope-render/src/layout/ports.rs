//! The columns where arrows leave boxes and enter them.

use super::Edge;
use super::layers::Layers;
use super::place::Columns;

/// Everything one source has to do with one channel (the space under a rank).
#[derive(Debug, Clone)]
pub(super) struct Net {
    /// The block the value comes from.
    pub(super) source: usize,
    /// The column it comes down in.
    pub(super) top: usize,
    /// The column its lane goes on in, if it does.
    pub(super) lane: Option<usize>,
    /// The lane lies under the box and leaves it straight, apart from the other arrows.
    pub(super) lane_apart: bool,
    /// Edges that end here, with the column of their arrowhead.
    pub(super) ends: Vec<(usize, usize)>,
}

impl Net {
    /// All columns that have to be joined by the horizontal piece.
    pub(super) fn reach(&self) -> (usize, usize) {
        let lane = self.lane.filter(|_| !self.lane_apart);
        let all = self.ends.iter().map(|&(_, column)| column).chain(lane);
        all.fold((self.top, self.top), |(low, high), column| (low.min(column), high.max(column)))
    }

    /// Columns it leaves the channel in, below its horizontal piece.
    pub(super) fn below(&self) -> impl Iterator<Item = usize> {
        self.ends.iter().map(|&(_, column)| column).chain(self.lane.filter(|_| !self.lane_apart))
    }

    /// Comes, goes on or ends in this column.
    fn touches(&self, column: usize) -> bool {
        self.top == column || self.lane == Some(column)
    }
}

/// An edge there is no room for on top of its target.
pub(super) struct NoPort(pub(super) usize);

/// The nets of the channel under `rank`, with all their columns.
pub(super) fn nets(layers: &Layers, columns: &Columns, edges: &[Edge], rank: usize) -> Result<Vec<Net>, NoPort> {
    let mut nets = leaving(layers, columns, edges, rank);
    for target in layers.row(rank + 1).into_iter().filter(|&item| item < layers.blocks()) {
        enter(columns, edges, target, &mut nets)?;
    }
    Ok(nets)
}

fn leaving(layers: &Layers, columns: &Columns, edges: &[Edge], rank: usize) -> Vec<Net> {
    let mut nets = Vec::new();
    for item in layers.row(rank) {
        let source = layers.lane(item).map_or(item, |lane| lane.source);
        let lane = layers.lane_of[source].map(|index| (columns.x[layers.blocks() + index], &layers.lanes[index]));
        let goes_on = lane.filter(|(_, lane)| lane.last > rank).map(|(x, _)| x);
        let ends: Vec<(usize, usize)> = (0..edges.len())
            .filter(|&edge| edges[edge].from == source && layers.rank[edges[edge].to] == rank + 1)
            .map(|edge| (edge, 0))
            .collect();
        if goes_on.is_none() && ends.is_empty() {
            continue;
        }
        let mut net = Net { source, top: columns.x[item], lane: goes_on, lane_apart: false, ends };
        if item == source {
            leave(columns, edges, &mut net);
        }
        nets.push(net);
    }
    nets
}

/// Chooses the column in which a value leaves its box: straight above where it goes if that is possible,
/// in the middle if not.
fn leave(columns: &Columns, edges: &[Edge], net: &mut Net) {
    let (left, right) = inside(columns, net.source);
    let middle = columns.x[net.source] + columns.width[net.source] / 2;
    let under = |column: usize| (left..=right).contains(&column);
    net.top = match (&net.ends[..], net.lane) {
        ([], Some(lane)) if under(lane) => lane,
        (&[(edge, _)], _) => {
            let (to_left, to_right) = inside(columns, edges[edge].to);
            let straight = middle.clamp(to_left, to_right.max(to_left));
            if under(straight) { straight } else { middle }
        }
        _ => middle,
    };
    net.lane_apart = net.lane.is_some_and(|lane| under(lane) && lane.abs_diff(net.top) >= 2);
}

/// The columns of a box where an arrow looks well: not at the very corner.
fn inside(columns: &Columns, block: usize) -> (usize, usize) {
    let (x, width) = (columns.x[block], columns.width[block]);
    (x + 2, x + width.saturating_sub(3))
}

/// Chooses the arrowheads' columns on top of `target`: straight below where the value comes down if that
/// is above the box, else spread evenly; in the order of arrival, so that arrows to one box do not cross.
fn enter(columns: &Columns, edges: &[Edge], target: usize, nets: &mut [Net]) -> Result<(), NoPort> {
    let arrivals = arrivals(edges, target, nets);
    let (left, right) = inside(columns, target);
    let (x, width, count) = (columns.x[target], columns.width[target], arrivals.len());
    let edge_of = |&(index, at): &(usize, usize)| nets[index].ends[at].0;
    let rooms: Vec<usize> = arrivals.iter().map(|arrival| edges[edge_of(arrival)].label_room()).collect();
    // Without room for all, a label gives way before an arrow does.
    let weakest = arrivals.iter().map(edge_of).max_by_key(|&edge| edges[edge].label_room());
    let mut low = x + 1;
    for (place, &(index, at)) in arrivals.iter().enumerate() {
        // What this label and the arrows after it need at the right.
        let rest = 2 * (count - 1 - place) + rooms[place..].iter().sum::<usize>();
        let high = (x + width).saturating_sub(2 + rest);
        if low > high {
            return Err(NoPort(weakest.unwrap_or(0)));
        }
        let even = x + width * (place + 1) / (count + 1);
        let from = nets[index].top;
        let twin = arrivals.iter().filter(|(other, _)| *other == index).count() > 1;
        let wish = if (left..=right).contains(&from) && !twin { from } else { even };
        let taken =
            |column: usize| nets.iter().enumerate().any(|(other, net)| other != index && net.touches(column));
        let free = (low..=high).filter(|&column| !taken(column)).min_by_key(|column| column.abs_diff(wish));
        let column = free.unwrap_or(wish.clamp(low, high));
        nets[index].ends[at].1 = column;
        low = column + 2 + rooms[place];
    }
    Ok(())
}

/// The arrows into `target` from left to right, as (net, place among the net's ends).
fn arrivals(edges: &[Edge], target: usize, nets: &[Net]) -> Vec<(usize, usize)> {
    let mut arrivals = Vec::new();
    for (index, net) in nets.iter().enumerate() {
        let here = net.ends.iter().enumerate().filter(|(_, (edge, _))| edges[*edge].to == target);
        arrivals.extend(here.map(|(at, _)| (index, at)));
    }
    arrivals.sort_by_key(|&(index, _)| nets[index].top);
    arrivals
}
