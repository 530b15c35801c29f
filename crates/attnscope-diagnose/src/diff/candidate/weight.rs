//! Usual mistakes of weights: those of another node, a transposed matrix, heads in another order, fewer bits.

use std::borrow::Cow;

use attnscope_graph::{AttentionStep, Node, Op};

use super::{Candidate, SHORTER, Steps, with_matrix, with_weights};
use crate::diff::lab::{Edit, Made, Test};
use crate::diff::relation::Relation;

/// How much closer the output must be to a computation in 8-bit integers: programs differ in how they round a weight half-way
/// between two integers.
const CLOSER_IN_8_BITS: f64 = 0.1;
/// The same where the input is in 8 bits, too.
const CLOSER_WITH_INPUT: f64 = 0.2;
/// With more heads than this, not every pair is tried: each order costs a matrix product.
const MANY_HEADS: usize = 64;
/// Weights that share a scale, as in GGUF's Q8_0.
const BLOCK: usize = 32;

impl<'a> Steps<'_, 'a> {
    pub(super) fn weights(&self, step: usize, own: &[&'a [f32]]) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let mut found = self.of_other_nodes(step, own);
        let side = own[0].len().isqrt();
        if node.op == Op::Linear && side * side == own[0].len() && side > 1 {
            let relation = Relation::Transpose { weight: self.weight_path(step, 0) };
            let turned =
                move |w: &[f32]| (0..w.len()).map(|i| w[i % side * side + i / side]).collect::<Vec<f32>>();
            found.push(Candidate::new(relation, vec![with_matrix(node, step, own, turned)]));
        }
        found.extend(self.permuted_columns(step, own));
        for (to, round) in SHORTER {
            if let Some(weight) = self.weight_path(step, 0) {
                let short =
                    move |w: &[f32]| w.iter().map(|&w| round(f64::from(w)) as f32).collect::<Vec<f32>>();
                let relation = Relation::RoundedWeight { weight, to };
                found.push(Candidate::new(relation, vec![with_matrix(node, step, own, short)]));
            }
        }
        found.extend(self.rolled(step, own));
        found.extend(self.quantised(step, own));
        found
    }

    /// A table whose rows are moved.
    fn rolled(&self, step: usize, own: &[&'a [f32]]) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let width = self.judge.formula.sizes().shape(&node.dims).and_then(|shape| shape.last().copied());
        let (Op::Embed { .. }, Some(width), Some(weight)) = (node.op, width, self.weight_path(step, 0))
        else {
            return Vec::new();
        };
        let candidate = |by: i64| {
            let moved = move |table: &[f32]| {
                let mut moved = table.to_vec();
                let cells = (by.unsigned_abs() as usize * width).min(moved.len());
                match by > 0 {
                    true => moved.rotate_right(cells),
                    false => moved.rotate_left(cells),
                }
                moved
            };
            let relation = Relation::RolledRows { weight: weight.clone(), by };
            Candidate::new(relation, vec![with_matrix(node, step, own, moved)])
        };
        [1, -1, 2, -2].into_iter().map(candidate).collect()
    }

    fn of_other_nodes(&self, step: usize, own: &[&'a [f32]]) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let layer = node.path.layer();
        let mut found = Vec::new();
        for other in self.alike(node) {
            let Some(weights) = self.judge.weights_of(other) else { continue };
            let name = other.path.as_str().to_owned();
            let relation = match other.path.layer() == layer {
                true => Relation::OtherWeights { node: name },
                false => Relation::OtherLayer { node: name },
            };
            // The other's matrix and bias, or its matrix alone.
            if weights.len() == own.len() {
                let all = weights.clone();
                let edit = with_weights(node, step, move || all.iter().map(|w| Cow::Borrowed(*w)).collect());
                found.push(Candidate::new(relation.clone(), vec![edit]));
            }
            if let (true, Some(&matrix)) = (own.len() > 1, weights.first()) {
                let edit = with_matrix(node, step, own, move |_| matrix.to_vec());
                found.push(Candidate::new(relation, vec![edit]));
            }
        }
        found
    }

    /// Nodes whose weights have the same shape: those of the same layer first, then the same node of other layers.
    fn alike(&self, node: &Node) -> Vec<&'a Node> {
        let graph = self.graph();
        let matrix = |node: &Node| node.weights.first().map(|&w| &graph.weight(w).dims);
        let is_alike = |other: &&Node| {
            other.path != node.path
                && other.op.facets().name == node.op.facets().name
                && matrix(other) == matrix(node)
        };
        let mut others: Vec<&Node> = graph.nodes().iter().filter(is_alike).collect();
        let (layer, within) = (node.role.layer(), node.role.layer_step());
        let is_same_step = |other: &Node| within.is_some() && other.role.layer_step() == within;
        others.sort_by_key(|other| (other.role.layer() != layer, !is_same_step(other)));
        others
    }

    /// For the output projection: two heads exchanged, all rotated by some places, or all reversed.
    fn permuted_columns(&self, step: usize, own: &[&'a [f32]]) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let Some(heads) = self.heads(step) else { return Vec::new() };
        let width = self.columns(step, own);
        let into_heads = node.role.attention().is_some_and(|(_, step)| step == AttentionStep::Out);
        if !into_heads || heads < 2 || !width.is_multiple_of(heads) || width == 0 {
            return Vec::new();
        }
        let size = width / heads;
        let candidate = |order: Vec<usize>| {
            let relation =
                Relation::PermutedHeads { order: order.clone(), weight: self.weight_path(step, 0) };
            let moved = move |w: &[f32]| {
                let from = |i: usize| i / width * width + order[i % width / size] * size + i % size;
                (0..w.len()).map(|i| w[from(i)]).collect::<Vec<f32>>()
            };
            Candidate::new(relation, vec![with_matrix(node, step, own, moved)])
        };
        orders(heads).into_iter().map(candidate).collect()
    }

    /// The columns of a step's matrix, which are what it reads.
    fn columns(&self, step: usize, own: &[&[f32]]) -> usize {
        let shape = self.judge.formula.sizes().shape(&self.node(step).dims);
        let outputs = shape.and_then(|shape| shape.last().copied()).unwrap_or(1);
        own.first().map_or(0, |matrix| matrix.len() / outputs.max(1))
    }

    /// The matrix in 8-bit integers, alone or with its input.
    fn quantised(&self, step: usize, own: &[&'a [f32]]) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let (Op::Linear, Some(weight)) = (node.op, self.weight_path(step, 0)) else { return Vec::new() };
        let (width, all) = (self.columns(step, own), own[0].len());
        let ways = [("the whole matrix", all), ("each row", width), ("every 32 weights", BLOCK)];
        let mut found = Vec::new();
        // 127 steps on each side; torch's symmetric observers take 127.5.
        for ((scales, share), steps) in ways.into_iter().flat_map(|way| [(way, 127.0f32), (way, 127.5)]) {
            let short = move |w: &[f32]| eight_bits(w, share, steps);
            let relation = |activations| Relation::Quantised { weight: weight.clone(), scales, activations };
            let edits = vec![with_matrix(node, step, own, short)];
            found.push(Candidate {
                test: Test::Closer(CLOSER_IN_8_BITS),
                ..Candidate::new(relation(false), edits)
            });
            let edits = vec![of_short_input(node, step, own.to_vec(), short)];
            let candidate = Candidate::new(relation(true), edits);
            found.push(Candidate { test: Test::Closer(CLOSER_WITH_INPUT), ..candidate });
        }
        found
    }
}

/// A step whose input is rounded to 8 bits between its least and its largest value, as dynamic quantisation does.
fn of_short_input<'c>(
    node: &Node,
    step: usize,
    own: Vec<&'c [f32]>,
    short: impl Fn(&[f32]) -> Vec<f32> + 'c,
) -> Edit<'c> {
    let node = node.clone();
    Edit {
        step,
        make: Box::new(move |trial, extent| {
            let Some(input) = node.inputs.first() else { return Ok(None) };
            // The scale is that of the whole tensor.
            let Some(whole) = trial.value(input.index(), crate::diff::lab::Extent::Whole)? else {
                return Ok(None);
            };
            let input = trial.cut(short_input(&whole), extent);
            let matrix = short(own[0]);
            let weights: Vec<&[f32]> =
                std::iter::once(matrix.as_slice()).chain(own.iter().skip(1).copied()).collect();
            Ok(trial.lab.evaluate(&node, &[input], Some(&weights), extent))
        }),
    }
}

fn short_input(made: &Made) -> Made {
    let finite = || made.kept.values.iter().copied().filter(|x| x.is_finite());
    let (least, most) = (finite().fold(0.0, f64::min), finite().fold(0.0, f64::max));
    let scale = ((most - least) / 255.0).max(f64::MIN_POSITIVE);
    let zero = (-least / scale).round_ties_even();
    made.map(|_, x, e| (((x / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero, e))
        .map(|_, x, e| (x * scale, e))
}

/// A matrix rounded to 8-bit integers, so many weights with one scale.
fn eight_bits(matrix: &[f32], share: usize, steps: f32) -> Vec<f32> {
    let round = |share: &[f32]| -> Vec<f32> {
        let most = share.iter().fold(0.0f32, |most, w| most.max(w.abs()));
        // All zeros stay zeros.
        let scale = if most > 0.0 { most / steps } else { 1.0 };
        share.iter().map(|w| (w / scale).round_ties_even().clamp(-128.0, 127.0) * scale).collect()
    };
    matrix.chunks(share.max(1)).flat_map(round).collect()
}

/// Two heads exchanged, all rotated by some places, all reversed. With many heads, only neighbours are exchanged, and rotated
/// by one.
fn orders(heads: usize) -> Vec<Vec<usize>> {
    let plain: Vec<usize> = (0..heads).collect();
    let furthest = if heads > MANY_HEADS { 1 } else { heads };
    let mut orders: Vec<Vec<usize>> = Vec::new();
    for a in 0..heads {
        for b in (a + 1..heads).take(furthest) {
            let mut order = plain.clone();
            order.swap(a, b);
            orders.push(order);
        }
    }
    let turns = (1..heads).filter(|by| *by <= furthest || heads - by <= furthest);
    orders.extend(turns.map(|by| plain.iter().map(|h| (h + by) % heads).collect()));
    orders.push(plain.iter().rev().copied().collect());
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orders_of_many_heads_are_few() {
        assert_eq!(orders(2), [[1, 0], [1, 0], [1, 0]]);
        assert_eq!(orders(8).len(), 28 + 7 + 1);
        assert!(orders(8).contains(&vec![0, 6, 2, 3, 4, 5, 1, 7]));
        let many = orders(1024);
        assert_eq!(many.len(), 1023 + 2 + 1);
        assert!(many.iter().all(|order| !order.is_sorted()));
    }
}
