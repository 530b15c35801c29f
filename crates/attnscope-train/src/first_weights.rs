//! The weights that learning begins with, drawn from the seed.

use attnscope_graph::{Model, Node, NodeId, Op, WeightId};
use attnscope_run::{SplitMix, Weights};

use crate::batches::Stream;
use crate::error::TrainError;

/// How a kind of model is usually begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// As fairseq begins a Transformer: maps within ±√(6 / (inputs + outputs)), tables of variance 1 / width, biases 0.
    Transformer,
    /// As torch's own modules: maps and biases within ±1/√inputs, tables of variance 1.
    Torch,
}

/// Draws every weight of a model.
///
/// # Errors
/// When a size of it is not known.
pub(crate) fn draw(model: &Model, beginning: Beginning, seed: u64) -> Result<Weights, TrainError> {
    let mut random = SplitMix::new(Stream::Weights.seed(seed));
    let graph = &model.graph;
    let mut drawn: Vec<Option<Vec<f32>>> = vec![None; graph.weights().len()];
    for (id, node) in graph.iter() {
        let Some(&first) = node.weights.first() else { continue };
        let shape = |weight: WeightId| model.sizes.shape(&graph.weight(weight).dims);
        let unknown = || TrainError::Model { why: format!("the size of {} is not known", node.path) };
        let map = shape(first).ok_or_else(unknown)?;
        let inputs: usize = map.iter().skip(1).product();
        let spread = Spread {
            inputs: recurrent(model, id).unwrap_or(inputs),
            outputs: map.first().copied().unwrap_or(1),
        };
        for &weight in &node.weights {
            let count = shape(weight).ok_or_else(unknown)?.iter().product();
            // A table that is multiplied with elsewhere is drawn as a table, where it first stands.
            if drawn[weight.index()].is_none() {
                drawn[weight.index()] =
                    Some(spread.draw(&mut random, &node.op, weight == first, count, beginning));
            }
        }
    }
    let values = drawn.into_iter().collect::<Option<Vec<_>>>();
    let values = values.ok_or_else(|| TrainError::Model { why: "a weight belongs to no node".into() })?;
    Ok(Weights::of(values))
}

/// The sizes of a map: what its weights and its bias are spread by.
#[derive(Debug, Clone, Copy)]
struct Spread {
    inputs: usize,
    outputs: usize,
}

impl Spread {
    fn draw(
        self,
        random: &mut SplitMix,
        op: &Op,
        is_first: bool,
        count: usize,
        beginning: Beginning,
    ) -> Vec<f32> {
        let by_inputs = (self.inputs.max(1) as f64).sqrt().recip();
        match (op, is_first, beginning) {
            (Op::Norm { .. }, true, _) => vec![1.0; count],
            (Op::Norm { .. }, false, _) => vec![0.0; count],
            (Op::Embed { .. } | Op::Positions { .. }, _, Beginning::Transformer) => {
                normal(random, count, by_inputs)
            }
            (Op::Embed { .. } | Op::Positions { .. }, _, Beginning::Torch) => normal(random, count, 1.0),
            (_, true, Beginning::Transformer) => {
                uniform(random, count, (6.0 / (self.inputs + self.outputs).max(1) as f64).sqrt())
            }
            (_, false, Beginning::Transformer) => vec![0.0; count],
            (_, _, Beginning::Torch) => uniform(random, count, by_inputs),
        }
    }
}

/// The width of the state that a node's output goes into, where a recurrent layer reads it: torch draws all of a recurrent
/// layer's weights by that.
fn recurrent(model: &Model, id: NodeId) -> Option<usize> {
    let reads = |node: &Node| matches!(node.op, Op::Recur { .. }) && node.inputs.contains(&id);
    let (_, layer) = model.graph.iter().find(|(_, node)| reads(node))?;
    model.sizes.shape(&model.graph.weight(*layer.weights.first()?).dims)?.get(1).copied()
}

fn uniform(random: &mut SplitMix, count: usize, bound: f64) -> Vec<f32> {
    (0..count).map(|_| (bound * f64::from(random.unit())) as f32).collect()
}

/// By Box and Muller. `libm`'s functions give the same bits on every machine.
fn normal(random: &mut SplitMix, count: usize, deviation: f64) -> Vec<f32> {
    let mut one = || {
        // From 0 (exclusive) to 1.
        let u = ((random.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let angle = std::f64::consts::PI * f64::from(random.unit());
        (deviation * (-2.0 * libm::log(u)).sqrt() * libm::cos(angle)) as f32
    };
    (0..count).map(|_| one()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_numbers_have_their_spread() {
        let mut random = SplitMix::new(5);
        let values = normal(&mut random, 20_000, 0.5);
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / 2e4;
        let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 2e4;
        assert!(mean.abs() < 0.02 && (square.sqrt() - 0.5).abs() < 0.01, "{mean} {square}");
        let beyond = values.iter().filter(|x| x.abs() > 1.0).count() as f64 / 2e4;
        assert!((beyond - 0.0455).abs() < 0.006, "{beyond}");
        assert!(uniform(&mut random, 1000, 0.25).iter().all(|x| x.abs() <= 0.25));
    }
}
