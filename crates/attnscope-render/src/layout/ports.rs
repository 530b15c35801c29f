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
pub(super) fn nets(
    layers: &Layers,
    columns: &Columns,
    edges: &[Edge],
    rank: usize,
    total: usize,
) -> Result<Vec<Net>, NoPort> {
    let mut nets = leaving(layers, columns, edges, rank);
    let row = layers.row(rank + 1);
    for (at, &target) in row.iter().enumerate().filter(|(_, item)| **item < layers.blocks()) {
        let limit = row.get(at + 1).map_or(total, |&next| columns.x[next]);
        enter(columns, edges, target, limit, &mut nets)?;
    }
    Ok(nets)
}

fn leaving(layers: &Layers, columns: &Columns, edges: &[Edge], rank: usize) -> Vec<Net> {
    let mut nets = Vec::new();
    for item in layers.row(rank) {
        let source = layers.lane(item).map_or(item, |lane| lane.source);
        let lane =
            layers.lane_of[source].map(|index| (columns.x[layers.blocks() + index], &layers.lanes[index]));
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
            let (to_left, to_right) = share(columns, edges, edge);
            let straight = middle.clamp(to_left, to_right.max(to_left));
            if under(straight) { straight } else { middle }
        }
        _ => middle,
    };
    net.lane_apart = net.lane.is_some_and(|lane| under(lane) && lane.abs_diff(net.top) >= 2);
}

/// The columns on top of an edge's target that are its own, with some left for the edges beside it.
fn share(columns: &Columns, edges: &[Edge], edge: usize) -> (usize, usize) {
    let (left, right) = inside(columns, edges[edge].to);
    let middle = |edge: usize| 2 * columns.x[edges[edge].from] + columns.width[edges[edge].from];
    let others = (0..edges.len()).filter(|&other| other != edge && edges[other].to == edges[edge].to);
    let (before, after): (Vec<usize>, Vec<usize>) = others.partition(|&other| middle(other) < middle(edge));
    let (own_left, own_right) = (left + 4 * before.len(), right.saturating_sub(4 * after.len()));
    if own_left <= own_right { (own_left, own_right) } else { (left, right) }
}

/// The columns of a box where an arrow looks well: not at the very corner.
fn inside(columns: &Columns, block: usize) -> (usize, usize) {
    let (x, width) = (columns.x[block], columns.width[block]);
    (x + 2, x + width.saturating_sub(3))
}

/// One arrow on its way into a box.
struct Arrival {
    net: usize,
    /// Place among the net's ends.
    at: usize,
    /// Columns its label takes.
    room: usize,
    /// The column it would like, and whether that makes it a straight line.
    wish: usize,
    straight: bool,
}

impl Arrival {
    /// Columns to the next arrowhead: one blank between heads, and one after a label.
    fn step(&self) -> usize {
        (self.room + 1).max(2)
    }
}

/// Chooses the arrowheads' columns on top of `target`: straight below where the value comes down if that
/// is above the box, the others spread evenly between those; in the order of arrival, so that arrows to one
/// box do not cross. The last label may stand out to the right as far as `limit`.
fn enter(
    columns: &Columns,
    edges: &[Edge],
    target: usize,
    limit: usize,
    nets: &mut [Net],
) -> Result<(), NoPort> {
    let mut arrivals = arrivals(columns, edges, target, nets);
    spread(columns, target, &mut arrivals);
    // Without room for all, a label gives way before an arrow does.
    let weakest = arrivals.iter().max_by_key(|arrival| arrival.room).map(|it| nets[it.net].ends[it.at].0);
    let right = columns.x[target] + columns.width[target];
    let mut low = columns.x[target] + 1;
    for (place, arrival) in arrivals.iter().enumerate() {
        let high = highest(&arrivals[place..], right, limit);
        let Some(high) = high.filter(|&high| low <= high) else {
            return Err(NoPort(weakest.unwrap_or(0)));
        };
        // An arrow that is straight further right keeps its place if the ones before it can make room.
        let next =
            arrivals[place + 1..].iter().position(|other| other.straight).map(|after| place + 1 + after);
        let before =
            next.and_then(|next| highest(&arrivals[place..next], arrivals[next].wish, arrivals[next].wish));
        let high = before.filter(|&before| before >= low).map_or(high, |before| before.min(high));
        let taken = |column: usize| {
            nets.iter().enumerate().any(|(other, net)| other != arrival.net && net.touches(column))
        };
        let free = (low..=high).filter(|&column| !taken(column)).min_by_key(|at| at.abs_diff(arrival.wish));
        let column = free.unwrap_or(arrival.wish.clamp(low, high));
        nets[arrival.net].ends[arrival.at].1 = column;
        low = column + arrival.step();
    }
    Ok(())
}

/// The rightmost column the first of `arrivals` can have if all heads stay left of `right` and all labels
/// left of `limit`.
fn highest(arrivals: &[Arrival], right: usize, limit: usize) -> Option<usize> {
    let last = arrivals.last()?;
    let all: usize = arrivals.iter().rev().skip(1).map(Arrival::step).sum();
    let heads = right.checked_sub(2 + all)?;
    let labels = limit.checked_sub(last.room.max(1) + 1 + all)?;
    Some(heads.min(labels))
}

/// Gives the arrivals that are not straight their wishes: evenly between their straight neighbours or the
/// box's corners.
fn spread(columns: &Columns, target: usize, arrivals: &mut [Arrival]) {
    let (x, width) = (columns.x[target], columns.width[target]);
    let mut start = 0;
    while start < arrivals.len() {
        if arrivals[start].straight {
            start += 1;
            continue;
        }
        let run = arrivals[start..].iter().take_while(|arrival| !arrival.straight).count();
        let left = start.checked_sub(1).map_or(x, |before| arrivals[before].wish);
        let right = arrivals.get(start + run).map_or(x + width - 1, |after| after.wish);
        for step in 0..run {
            arrivals[start + step].wish = left + right.saturating_sub(left) * (step + 1) / (run + 1);
        }
        start += run;
    }
}

/// The arrows into `target` from left to right.
fn arrivals(columns: &Columns, edges: &[Edge], target: usize, nets: &[Net]) -> Vec<Arrival> {
    let (left, right) = inside(columns, target);
    let mut arrivals = Vec::new();
    for (index, net) in nets.iter().enumerate() {
        let here: Vec<usize> = (0..net.ends.len()).filter(|&at| edges[net.ends[at].0].to == target).collect();
        // Two values from one box cannot both come straight down from one column.
        let straight = here.len() == 1 && (left..=right).contains(&net.top);
        arrivals.extend(here.into_iter().map(|at| {
            let room = edges[net.ends[at].0].label_room();
            Arrival { net: index, at, room, wish: net.top, straight }
        }));
    }
    arrivals.sort_by_key(|arrival| arrival.wish);
    arrivals
}
