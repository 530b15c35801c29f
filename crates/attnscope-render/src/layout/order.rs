//! Left to right: few crossings first, then the order the blocks were given in, then lanes at the right.

use super::layers::Layers;

const CROSSING: usize = 1000;
const INVERSION: usize = 100;

/// Improves the order by moving one item at a time, from two starts; the better one stays. Diagrams have
/// tens of items, so looking at every move beats cleverer sweeps in quality and is still instant.
pub(super) fn arrange(layers: &mut Layers) {
    let rows: Vec<Vec<usize>> = (0..layers.count).map(|rank| layers.row(rank)).collect();
    let given = layers.order.clone();
    let (first, first_cost) = improve(layers, &rows, given.clone());
    if first_cost < CROSSING {
        layers.order = first;
        return;
    }
    let (second, second_cost) = improve(layers, &rows, barycentres(layers, given));
    layers.order = if second_cost < first_cost { second } else { first };
}

fn improve(layers: &Layers, rows: &[Vec<usize>], mut order: Vec<usize>) -> (Vec<usize>, usize) {
    let items = order.len();
    let mut best = cost(layers, rows, &order);
    // Large diagrams get fewer rounds: the first ones bring nearly everything.
    let rounds = (400_000 / (items * items * items + 1)).clamp(2, 12);
    for _ in 0..rounds {
        let before = best;
        for item in 0..items {
            // Moving step by step through all places costs one swap a step.
            let Some(from) = order.iter().position(|&other| other == item) else { continue };
            let mut trial = order.clone();
            trial.remove(from);
            let mut place = from;
            for to in 0..items {
                trial.insert(to, item);
                let now = cost(layers, rows, &trial);
                if now < best {
                    (best, place) = (now, to);
                }
                trial.remove(to);
            }
            order.remove(from);
            order.insert(place, item);
        }
        if best == before || best == 0 {
            break;
        }
    }
    (order, best)
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

fn cost(layers: &Layers, rows: &[Vec<usize>], order: &[usize]) -> usize {
    let place = places(order);
    let crossings: usize = layers.links.iter().map(|links| crossings(links, &place)).sum();
    let blocks = layers.blocks();
    let (mut inversions, mut left) = (0, 0);
    for row in rows {
        for (index, &a) in row.iter().enumerate() {
            for &b in &row[index + 1..] {
                match (a < blocks, b < blocks) {
                    (true, true) if (a < b) != (place[a] < place[b]) => inversions += 1,
                    // A lane is cleanest outermost at the right.
                    (true, false) if place[b] < place[a] => left += 1,
                    (false, true) if place[a] < place[b] => left += 1,
                    _ => {}
                }
            }
        }
    }
    crossings * CROSSING + inversions * INVERSION + left
}

fn crossings(links: &[(usize, usize)], place: &[usize]) -> usize {
    let mut count = 0;
    for (index, &(top, bottom)) in links.iter().enumerate() {
        for &(other_top, other_bottom) in &links[index + 1..] {
            let above = place[top].cmp(&place[other_top]);
            let below = place[bottom].cmp(&place[other_bottom]);
            count += usize::from(above.is_ne() && below.is_ne() && above != below);
        }
    }
    count
}
