//! Columns: how wide every box is and where it stands.

use super::Edge;
use super::content::Content;
use super::layers::Layers;
use crate::diagram::{Block, Kind};

/// No box is made narrower than this to fit beside others; its rank is split instead.
const NARROWEST: usize = 16;

/// Where every item stands: the left border of a box, the column of a lane.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    pub(super) x: Vec<usize>,
    pub(super) width: Vec<usize>,
}

/// The items that do not fit beside each other in any way.
pub(super) struct TooWide(pub(super) Vec<usize>);

/// Two neighbours in a rank: the right one starts at least `apart` columns after the left one does.
struct Apart {
    left: usize,
    right: usize,
    gap: usize,
}

/// Chooses widths and columns within `total`.
pub(super) fn place(
    layers: &Layers,
    contents: &[Content],
    blocks: &[Block],
    edges: &[Edge],
    total: usize,
) -> Result<Columns, TooWide> {
    let natural: Vec<usize> = (0..layers.order.len())
        .map(|item| match contents.get(item) {
            Some(content) => {
                let wish = content.natural_width(blocks[item].hole).max(ports(item, edges, true));
                odd(wish).min(total)
            }
            None => 1,
        })
        .collect();
    let narrowest: Vec<usize> = (0..natural.len())
        .map(|item| match contents.get(item) {
            Some(_) => {
                let least = NARROWEST.max(super::least(blocks[item].hole));
                natural[item].min(least.max(ports(item, edges, false)))
            }
            None => 1,
        })
        .collect();
    // Air between boxes, if that costs no box its width.
    for roomy in [2, 1] {
        let apart = constraints(layers, roomy);
        if extent(&layers.order, &apart, &natural).0 <= total {
            return Ok(settle(layers, blocks, &apart, natural, total));
        }
    }
    let full = natural.clone();
    let airy = constraints(layers, 1);
    let (apart, mut width) = match shrink(layers, &airy, natural.clone(), &narrowest, total) {
        Ok(width) => (airy, width),
        Err(_) => {
            let tight = constraints(layers, 0);
            let width = shrink(layers, &tight, natural, &narrowest, total)?;
            (tight, width)
        }
    };
    level(layers, blocks, &full, &mut width);
    for (item, content) in contents.iter().enumerate() {
        let needed = ports(item, edges, false);
        let wish = content.tight_width(width[item], blocks[item].hole).max(needed);
        width[item] = odd(wish).min(width[item]);
    }
    Ok(settle(layers, blocks, &apart, width, total))
}

/// Boxes of a rank that were cut down to nearly the same width get the same: q, k and v are to look alike.
fn level(layers: &Layers, blocks: &[Block], natural: &[usize], width: &mut [usize]) {
    for rank in 0..layers.count {
        let row = layers.row(rank).into_iter();
        let cut: Vec<usize> =
            row.filter(|&item| item < layers.blocks() && width[item] < natural[item]).collect();
        let Some(most) = cut.iter().map(|&item| width[item]).max() else { continue };
        let alike: Vec<usize> = cut.into_iter().filter(|&item| width[item] + 2 >= most).collect();
        let least = alike.iter().map(|&item| width[item]).min().unwrap_or(most);
        for item in alike {
            width[item] = least.max(super::least(blocks[item].hole)).min(width[item]);
        }
    }
}

/// A box of odd width has a middle column, and boxes with one can stand exactly above each other.
fn odd(width: usize) -> usize {
    width | 1
}

/// Columns the arrowheads on top of a box need, with or without their labels.
fn ports(block: usize, edges: &[Edge], labels: bool) -> usize {
    let arrows = edges.iter().filter(|edge| edge.to == block);
    3 + arrows.map(|edge| 2 + if labels { edge.label_room() } else { 0 }).sum::<usize>()
}

fn constraints(layers: &Layers, roomy: usize) -> Vec<Apart> {
    let blocks = layers.blocks();
    let mut apart = Vec::new();
    for rank in 0..layers.count {
        for pair in layers.row(rank).windows(2) {
            let &[left, right] = pair else { continue };
            let gap = match (left < blocks, right < blocks) {
                (true, true) => 1 + roomy,
                _ => 1 + roomy.min(1),
            };
            apart.push(Apart { left, right, gap });
        }
    }
    // Both ends stand in `order`; sorting by it makes one pass enough to push everything along.
    let mut place = vec![0; layers.order.len()];
    for (at, &item) in layers.order.iter().enumerate() {
        place[item] = at;
    }
    apart.sort_by_key(|apart| (place[apart.left], place[apart.right]));
    apart
}

/// The columns needed, and the items on the longest chain of neighbours.
fn extent(order: &[usize], apart: &[Apart], width: &[usize]) -> (usize, Vec<usize>) {
    let mut x = vec![0; width.len()];
    let mut pushed_by = vec![None; width.len()];
    for apart in apart {
        let least = x[apart.left] + width[apart.left] + apart.gap;
        if x[apart.right] < least {
            x[apart.right] = least;
            pushed_by[apart.right] = Some(apart.left);
        }
    }
    let last = order.iter().copied().max_by_key(|&item| x[item] + width[item]);
    let needed = last.map_or(0, |last| x[last] + width[last]);
    (needed, std::iter::successors(last, |&item| pushed_by[item]).collect())
}

/// Takes columns from the widest boxes of the longest chain until it fits.
fn shrink(
    layers: &Layers,
    apart: &[Apart],
    mut width: Vec<usize>,
    narrowest: &[usize],
    total: usize,
) -> Result<Vec<usize>, TooWide> {
    loop {
        let (needed, chain) = extent(&layers.order, apart, &width);
        if needed <= total {
            return Ok(width);
        }
        let widest = chain
            .iter()
            .copied()
            .filter(|&item| width[item] > narrowest[item])
            .max_by_key(|&item| width[item]);
        match widest {
            Some(item) => width[item] -= 1,
            None => return Err(TooWide(chain)),
        }
    }
}

/// One thing that wants to be short: the way from an item to another.
struct Pull {
    top: usize,
    bottom: usize,
    /// Cost per half column.
    weight: i64,
    /// Cost of not being exactly aligned: for the links of a chain. A box between two others is better
    /// centred than aligned with one of them.
    bend: i64,
    /// Twice the distance from the middle that costs nothing: a lane may leave or enter a box anywhere and
    /// is still straight.
    free: Option<i64>,
}

struct Settling<'a> {
    order: &'a [usize],
    apart: &'a [Apart],
    width: &'a [usize],
    pulls: Vec<Pull>,
    total: usize,
}

/// Finds columns that keep connected boxes above each other: starts at the left and moves single items and
/// aligned groups, pushing neighbours along, as long as that makes the arrows shorter.
fn settle(layers: &Layers, blocks: &[Block], apart: &[Apart], width: Vec<usize>, total: usize) -> Columns {
    let pulls = pulls(layers, blocks, &width);
    let settling = Settling { order: &layers.order, apart, width: &width, pulls, total };
    let mut x = vec![0; width.len()];
    for apart in apart {
        x[apart.right] = x[apart.right].max(x[apart.left] + width[apart.left] + apart.gap);
    }
    let mut best = settling.cost(&x);
    for _ in 0..60 {
        let before = best;
        for item in 0..width.len() {
            for group in settling.groups(&x, item) {
                for by in settling.steps(&x, &group) {
                    let Some(trial) = settling.moved(&x, &group, by) else { continue };
                    let cost = settling.cost(&trial);
                    if cost < best {
                        (best, x) = (cost, trial);
                    }
                }
            }
        }
        if best == before {
            break;
        }
    }
    let least = x.iter().copied().min().unwrap_or(0);
    let x = x.into_iter().map(|x| x - least).collect();
    Columns { x, width }
}

fn pulls(layers: &Layers, blocks: &[Block], width: &[usize]) -> Vec<Pull> {
    let boxes = layers.blocks();
    let all = layers.links.iter().flatten().filter(|(top, bottom)| top != bottom);
    let all = all.map(|&(top, bottom)| {
        let under = Some(width[top].max(width[bottom]).saturating_sub(6) as i64);
        let (weight, free) = match (top < boxes, bottom < boxes) {
            // What is merely added at the side must not bend the main line.
            (true, true) if blocks[top].kind == Kind::Mask || enters_at_the_side(layers, top) => (2, None),
            (true, true) => (8, None),
            // A lane follows the boxes, hardly the boxes it; straight at its start rather than at its end.
            (true, false) => (2, under),
            _ => (1, under),
        };
        Pull { top, bottom, weight, bend: 0, free }
    });
    let mut pulls: Vec<Pull> = all.collect();
    let heavy: Vec<(usize, usize)> =
        pulls.iter().filter(|pull| pull.weight == 8).map(|pull| (pull.top, pull.bottom)).collect();
    for pull in pulls.iter_mut().filter(|pull| pull.weight == 8) {
        let chained =
            heavy.iter().filter(|(top, bottom)| *top == pull.top || *bottom == pull.bottom).count() == 1;
        pull.bend = if chained { 300 } else { 0 };
    }
    pulls
}

/// A block without inputs further down than the top: something joins the main line here.
fn enters_at_the_side(layers: &Layers, block: usize) -> bool {
    layers.rank[block] > 0 && !layers.links.iter().flatten().any(|&(_, bottom)| bottom == block)
}

impl Settling<'_> {
    /// Twice the centre, to stay in whole numbers.
    fn centre(&self, x: &[usize], item: usize) -> i64 {
        (2 * x[item] + self.width[item]) as i64
    }

    fn offset(&self, x: &[usize], pull: &Pull) -> i64 {
        self.centre(x, pull.bottom) - self.centre(x, pull.top)
    }

    /// Mostly the plain distance, which likes one straight arrow and one long one better than two bent
    /// ones; a little of its square, which centres a box between two others.
    fn cost(&self, x: &[usize]) -> i64 {
        let each = self.pulls.iter().map(|pull| {
            let away = self.offset(x, pull).abs();
            pull.weight
                * match pull.free {
                    Some(free) => 4 * (away - free).max(0) + away.min(1),
                    None if away <= 1 => 0,
                    None => pull.bend + 64 * away + away * away / 4,
                }
        });
        each.sum()
    }

    /// What is worth moving together with `item`: nothing, what hangs straight below it, above it, or both.
    fn groups(&self, x: &[usize], item: usize) -> [Vec<usize>; 4] {
        let hanging = |up, down| self.aligned(x, item, up, down);
        [vec![item], hanging(false, true), hanging(true, false), hanging(true, true)]
    }

    /// `item` and everything straight above or below it.
    fn aligned(&self, x: &[usize], item: usize, up: bool, down: bool) -> Vec<usize> {
        let mut group = vec![item];
        let mut next = 0;
        while let Some(&member) = group.get(next) {
            next += 1;
            for pull in self.pulls.iter().filter(|pull| self.offset(x, pull).abs() <= 1) {
                let other = if down && pull.top == member {
                    pull.bottom
                } else if up && pull.bottom == member {
                    pull.top
                } else {
                    continue;
                };
                if !group.contains(&other) {
                    group.push(other);
                }
            }
        }
        group
    }

    /// Distances worth trying for a group: those that put a member straight under or above another item.
    fn steps(&self, x: &[usize], group: &[usize]) -> Vec<i64> {
        let mut steps = vec![-1, 1, -2, 2];
        for pull in &self.pulls {
            let away = self.offset(x, pull);
            let by = match (group.contains(&pull.top), group.contains(&pull.bottom)) {
                (true, false) => away,
                (false, true) => -away,
                _ => continue,
            };
            steps.extend([by / 2, by / 4]);
        }
        steps.retain(|&by| by != 0);
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// The group moved, neighbours pushed along; nothing if that would leave the drawing.
    fn moved(&self, x: &[usize], group: &[usize], by: i64) -> Option<Vec<usize>> {
        let mut x: Vec<i64> = x.iter().map(|&x| x as i64).collect();
        for &item in group {
            x[item] += by;
        }
        let width = |item: usize| self.width[item] as i64;
        if by > 0 {
            for apart in self.apart {
                let least = x[apart.left] + width(apart.left) + apart.gap as i64;
                x[apart.right] = x[apart.right].max(least);
            }
        } else {
            for apart in self.apart_from_right() {
                let most = x[apart.right] - apart.gap as i64 - width(apart.left);
                x[apart.left] = x[apart.left].min(most);
            }
        }
        let inside =
            self.order.iter().all(|&item| x[item] >= 0 && x[item] + width(item) <= self.total as i64);
        inside.then(|| x.into_iter().map(|x| x as usize).collect())
    }

    fn apart_from_right(&self) -> impl Iterator<Item = &Apart> {
        // Sorted by the left end, so that in reverse every item's right neighbours come before it does.
        self.apart.iter().rev()
    }
}
