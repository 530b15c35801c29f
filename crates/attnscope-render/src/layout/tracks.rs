//! Rows for the horizontal pieces in a channel.

use super::ports::Net;

/// The row of each net's horizontal piece, counted from the top of the channel; nothing for a straight one.
#[derive(Debug)]
pub(super) struct Tracks {
    pub(super) row: Vec<Option<usize>>,
    pub(super) rows: usize,
}

/// A net that cannot be drawn without running along another one.
pub(super) struct Tangled(pub(super) usize);

/// Orders the nets from top to bottom with as few crossings as possible and packs them into rows.
pub(super) fn tracks(nets: &[Net]) -> Result<Tracks, Tangled> {
    let mut order: Vec<usize> = (0..nets.len()).filter(|&net| is_bent(&nets[net])).collect();
    let mut best = cost(nets, &order);
    for _ in 0..6 {
        let before = best;
        for net in order.clone() {
            for to in 0..order.len() {
                let mut trial = order.clone();
                trial.retain(|&other| other != net);
                trial.insert(to, net);
                let now = cost(nets, &trial);
                if now < best {
                    (best, order) = (now, trial);
                }
            }
        }
        if best == before {
            break;
        }
    }
    if let Some(net) = overlap(nets, &order) {
        return Err(Tangled(net));
    }
    let row = rows(nets, &order);
    let rows = row.iter().flatten().max().map_or(0, |last| last + 1);
    Ok(Tracks { row, rows })
}

fn is_bent(net: &Net) -> bool {
    let (low, high) = net.reach();
    low != high
}

/// A row for each net: below every net that comes before it and is in its way.
fn rows(nets: &[Net], order: &[usize]) -> Vec<Option<usize>> {
    let mut row: Vec<Option<usize>> = vec![None; nets.len()];
    for (at, &net) in order.iter().enumerate() {
        let (low, high) = nets[net].reach();
        let above = order[..at].iter().filter(|&&other| {
            let (other_low, other_high) = nets[other].reach();
            low <= other_high + 1 && other_low <= high + 1
        });
        row[net] = Some(above.filter_map(|&other| row[other]).max().map_or(0, |row| row + 1));
    }
    row
}

/// Crossings weigh most, after lines on top of each other; then rows.
fn cost(nets: &[Net], order: &[usize]) -> usize {
    let mut cost = 1000
        * order
            .iter()
            .enumerate()
            .map(|(at, &above)| {
                order[at + 1..].iter().filter(|&&below| collides(&nets[above], &nets[below])).count()
            })
            .sum::<usize>();
    for (at, &above) in order.iter().enumerate() {
        for &below in &order[at + 1..] {
            cost += 10 * crossings(&nets[above], &nets[below]);
        }
    }
    cost + rows(nets, order).iter().flatten().max().map_or(0, |last| last + 1)
}

/// `below` comes down where `above` goes down: with this order one would run along the other.
fn collides(above: &Net, below: &Net) -> bool {
    above.below().any(|column| column == below.top)
}

fn crossings(above: &Net, below: &Net) -> usize {
    let (above_low, above_high) = above.reach();
    let (below_low, below_high) = below.reach();
    let through_above = usize::from((above_low..=above_high).contains(&below.top));
    let mut through_below: Vec<usize> =
        above.below().filter(|column| (below_low..=below_high).contains(column)).collect();
    through_below.dedup();
    through_above + through_below.len()
}

/// A net that still lies on another: within this order, or along one that goes straight down.
fn overlap(nets: &[Net], order: &[usize]) -> Option<usize> {
    for (at, &above) in order.iter().enumerate() {
        let clash = order[at + 1..].iter().find(|&&below| collides(&nets[above], &nets[below]));
        if let Some(&below) = clash {
            return Some(below);
        }
    }
    let straight = |index: usize| {
        let net = &nets[index];
        let column = if is_bent(net) { None } else { Some(net.top) };
        column.into_iter().chain(net.lane.filter(|_| net.lane_apart))
    };
    for (index, net) in nets.iter().enumerate() {
        for other in (0..nets.len()).filter(|&other| other != index) {
            if straight(other).any(|column| net.top == column || net.below().any(|below| below == column)) {
                return Some(index);
            }
        }
    }
    None
}
