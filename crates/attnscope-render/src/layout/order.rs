//! Left to right: few crossings first, then the order the blocks were given in, then lanes at the right.

use super::layers::Layers;

const CROSSING: i64 = 1000;
const INVERSION: i64 = 100;
const ROUNDS: usize = 12;

/// Improves the order by moving one item at a time, from two starts; the better one stays. Diagrams have
/// tens of items, so looking at every move beats cleverer sweeps in quality and is still instant.
pub(super) fn arrange(layers: &mut Layers) {
    let given = layers.order.clone();
    let mut first = Ordering::new(layers, given.clone());
    first.improve();
    let mut second = Ordering::new(layers, barycentres(layers, given));
    if first.cost() >= CROSSING {
        second.improve();
    }
    layers.order = if second.cost() < first.cost() { second.order } else { first.order };
}

/// A second start: every item at the mean of what it is connected to.
fn barycentres(layers: &Layers, mut order: Vec<usize>) -> Vec<usize> {
    for _ in 0..8 {
        let place = places(&order);
        let mut sum: Vec<(f64, f64)> = place.iter().map(|&at| (at as f64, 1.0)).collect();
        for &(top, bottom) in layers.links.iter().flatten().filter(|(top, bottom)| top != bottom) {
            for (item, other) in [(top, bottom), (bottom, top)] {
                sum[item].0 += place[other] as f64;
                sum[item].1 += 1.0;
            }
        }
        order.sort_by(|&a, &b| (sum[a].0 / sum[a].1).total_cmp(&(sum[b].0 / sum[b].1)));
    }
    order
}

fn places(order: &[usize]) -> Vec<usize> {
    let mut place = vec![0; order.len()];
    for (at, &item) in order.iter().enumerate() {
        place[item] = at;
    }
    place
}

/// An order under improvement.
struct Ordering<'a> {
    layers: &'a Layers,
    order: Vec<usize>,
    place: Vec<usize>,
    /// For each item its links as (channel, item at the other end), downwards and upwards.
    down: Vec<Vec<(usize, usize)>>,
    up: Vec<Vec<(usize, usize)>>,
}

impl<'a> Ordering<'a> {
    fn new(layers: &'a Layers, order: Vec<usize>) -> Self {
        let (mut down, mut up) = (vec![Vec::new(); order.len()], vec![Vec::new(); order.len()]);
        for (channel, links) in layers.links.iter().enumerate() {
            for &(top, bottom) in links {
                down[top].push((channel, bottom));
                up[bottom].push((channel, top));
            }
        }
        Ordering { layers, place: places(&order), order, down, up }
    }

    fn improve(&mut self) {
        for _ in 0..ROUNDS {
            let mut better = false;
            for item in 0..self.order.len() {
                better |= self.settle(item);
            }
            if !better {
                break;
            }
        }
    }

    /// Carries one item past all others and puts it down where it was cheapest.
    fn settle(&mut self, item: usize) -> bool {
        let start = self.place[item];
        let (mut cost, mut best, mut target) = (0, 0, start);
        let (to_left, to_right) = ((0..start).rev(), 1..self.order.len());
        for to in to_left.chain(to_right) {
            cost += self.step(item, to);
            if cost < best {
                (best, target) = (cost, to);
            }
        }
        while self.place[item] > target {
            self.step(item, self.place[item] - 1);
        }
        best < 0
    }

    /// Swaps an item with its neighbour at `to`; gives what that costs.
    fn step(&mut self, item: usize, to: usize) -> i64 {
        let from = self.place[item];
        let other = self.order[to];
        if other == item {
            return 0;
        }
        let before = self.between(item, other);
        self.order.swap(from, to);
        self.place[item] = to;
        self.place[other] = from;
        self.between(item, other) - before
    }

    /// The part of the cost that depends on which of two items is further left.
    fn between(&self, a: usize, b: usize) -> i64 {
        let (left, right) = if self.place[a] < self.place[b] { (a, b) } else { (b, a) };
        let mut crossings = 0;
        for &(channel, under_left) in &self.down[left] {
            let beside = self.down[right].iter().filter(|(other, _)| *other == channel);
            crossings +=
                beside.filter(|(_, under_right)| self.place[under_left] > self.place[*under_right]).count();
        }
        for &(channel, over_left) in &self.up[left] {
            let beside = self.up[right].iter().filter(|(other, _)| *other == channel);
            // Two lanes beside each other have been looked at above.
            let beside = beside.filter(|(_, over_right)| (over_left, *over_right) != (left, right));
            crossings +=
                beside.filter(|(_, over_right)| self.place[over_left] > self.place[*over_right]).count();
        }
        crossings as i64 * CROSSING + self.taste(left, right)
    }

    /// What is asked of neighbours apart from crossings.
    fn taste(&self, left: usize, right: usize) -> i64 {
        match (self.layers.lane(left), self.layers.lane(right)) {
            (None, None) if self.layers.rank[left] == self.layers.rank[right] && left > right => INVERSION,
            // A lane is cleanest outermost at the right.
            (Some(_), None) if self.layers.in_rank(left, self.layers.rank[right]) => 1,
            _ => 0,
        }
    }

    /// The whole cost, crossings counted from both their ends: enough to compare two orders.
    fn cost(&self) -> i64 {
        let pairs = self.order.iter().enumerate();
        let all: i64 = pairs
            .flat_map(|(at, &left)| self.order[at + 1..].iter().map(move |&right| (left, right)))
            .map(|(left, right)| self.between(left, right))
            .sum();
        all
    }
}
