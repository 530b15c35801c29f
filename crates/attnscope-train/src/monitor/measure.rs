//! What is measured at a look.

use std::collections::BTreeMap;

use attnscope_diagnose::{WatchedAttention, watch_attention};
use attnscope_graph::Model;
use attnscope_run::{Executor, Learner, LearningBatch, Nothing};

use super::{AttentionMetric, MonitorMetric};
use crate::batch_input::{Batch, BatchMaker};
use crate::error::TrainError;
use crate::examples::Examples;

/// A head whose output is below this share of the mean over the heads beside it is dead, as the doctor's rule has it.
const DEAD_NORM: f64 = 0.1;

/// Held-out examples, and the same with each other's sources.
#[derive(Debug)]
pub(crate) struct Watched {
    own: Batch,
    foreign: Option<Batch>,
}

impl Watched {
    /// The first examples that are held out.
    pub(crate) fn new(
        model: &Model,
        maker: &BatchMaker,
        held_out: &Examples,
        count: usize,
    ) -> Result<Self, TrainError> {
        let chosen: Vec<usize> = (0..held_out.len().min(count)).collect();
        let maker = maker.unsmoothed();
        let own = maker.batch(model, held_out, &chosen)?;
        let foreign = match swapped(&held_out.select(&chosen)) {
            Some(examples) if model.architecture.has_cross_attention() => {
                Some(maker.batch(model, &examples, &chosen)?)
            }
            _ => None,
        };
        Ok(Self { own, foreign })
    }

    /// Looks at the model as it is.
    pub(crate) fn look(
        &self,
        executor: &dyn Executor,
        learner: &mut dyn Learner,
        step: u64,
    ) -> Result<MonitorMetric, TrainError> {
        let source_cost = match &self.foreign {
            Some(foreign) => Some(nll(learner, foreign)? - nll(learner, &self.own)?),
            None => None,
        };
        let prepared = executor.prepare(learner.model().clone(), learner.weights()?)?;
        let seen = watch_attention(&*prepared, self.own.input.input())?;
        Ok(MonitorMetric {
            step,
            source_cost,
            attentions: seen.iter().map(attention).collect(),
            ..MonitorMetric::default()
        })
    }
}

/// Nats a target.
fn nll(learner: &mut dyn Learner, batch: &Batch) -> Result<f64, TrainError> {
    let given = LearningBatch { input: &batch.input, targets: &batch.targets, dropout_seed: None };
    let loss = learner.evaluate(&given, &mut Nothing)?;
    Ok(loss.nll / loss.count.max(1) as f64)
}

fn attention(seen: &WatchedAttention) -> AttentionMetric {
    let norms: Vec<f64> = seen.heads.iter().map(|head| head.norm).collect();
    let mean = norms.iter().sum::<f64>() / norms.len().max(1) as f64;
    AttentionMetric {
        path: seen.place.to_string(),
        entropy: seen.heads.iter().map(|head| head.entropy).collect(),
        dead_heads: (0..norms.len()).filter(|&head| norms[head] < DEAD_NORM * mean).collect(),
        head_norms: norms,
        output_ratio: seen.output_ratio,
    }
}

/// The pairs with each other's sources: each takes that of the next in length. `None` where there is nothing to swap.
fn swapped(examples: &Examples) -> Option<Examples> {
    let Examples::Pairs { sources, targets } = examples else { return None };
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|&i| sources[i].len());
    let mut foreign = sources.clone();
    for (i, &own) in order.iter().enumerate() {
        let next = order[(i + 1) % order.len()];
        foreign[own].clone_from(&sources[next]);
    }
    (foreign != *sources).then(|| Examples::Pairs { sources: foreign, targets: targets.clone() })
}

/// The norm of the gradient of each block: a layer of a stack, or what stands outside of them, by the first part of its path.
pub(crate) fn block_norms(model: &Model, learner: &dyn Learner, targets: usize) -> BTreeMap<String, f64> {
    let graph = &model.graph;
    let norms = learner.gradient_norms();
    let mut blocks: BTreeMap<String, f64> = BTreeMap::new();
    let mut seen = vec![false; norms.len()];
    for (_, node) in graph.iter() {
        let block = match node.role.layer() {
            Some((stack, layer)) => format!("{}.{layer}", stack.name()),
            None => node.path.as_str().to_owned(),
        };
        for weight in &node.weights {
            let i = weight.index();
            // A table that two nodes read counts where it first stands.
            if let Some(norm) = norms.get(i).filter(|_| !std::mem::replace(&mut seen[i], true)) {
                *blocks.entry(block.clone()).or_default() += norm.powi(2);
            }
        }
    }
    blocks.values_mut().for_each(|norm| *norm = norm.sqrt() / targets.max(1) as f64);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_swapped_with_the_next_in_length() {
        let sources = vec![vec![1, 1, 1], vec![2], vec![3, 3]];
        let pairs = Examples::Pairs { sources, targets: vec![vec![7], vec![8], vec![9]] };
        let Some(Examples::Pairs { sources, targets }) = swapped(&pairs) else { panic!("pairs") };
        assert_eq!(sources, [vec![2], vec![3, 3], vec![1, 1, 1]]);
        assert_eq!(targets, [vec![7], vec![8], vec![9]]);
        assert_eq!(swapped(&pairs.select(&[0])), None);
        assert_eq!(swapped(&pairs.select(&[0, 0])), None);
    }
}
