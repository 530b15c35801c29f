//! What changes the weights of a model: forward, backward and update over the one graph, whichever executor does it.

use std::sync::Arc;

use attnscope_graph::{Graph, Model, NodeId, Op, WeightId};

use crate::checked::CheckedInput;
use crate::error::RunError;
use crate::sink::{Nothing, Sink};
use crate::tensor::Tensor;
use crate::weights::Weights;

/// A model whose weights change. Its parameters are the weights of its graph, in the order of [`Graph::weights`]; a table that
/// two nodes read is one parameter.
pub trait Learner: Send {
    /// The model.
    fn model(&self) -> &Arc<Model>;

    /// Forward and backward on a batch. The gradient of the summed loss is added to what is there since the last
    /// [`Learner::update`]. The sink takes tensors and gradients of tensors that it wants.
    ///
    /// # Errors
    /// When the batch does not fit the model, there is not enough memory, it was cancelled, or the sink refuses a tensor. Part of
    /// the batch's gradient may have been added then.
    fn step(&mut self, batch: &LearningBatch<'_>, sink: &mut dyn LearningSink)
    -> Result<BatchLoss, RunError>;

    /// The most bytes that the tensors of a step on a batch take at once, weights and what belongs to them left out. Computed from
    /// their shapes.
    ///
    /// # Errors
    /// When the batch does not fit the model.
    fn step_bytes(&self, batch: &LearningBatch<'_>) -> Result<u64, RunError>;

    /// The loss on a batch, with dropout off and no gradient.
    ///
    /// # Errors
    /// As [`Learner::step`].
    fn evaluate(&mut self, batch: &LearningBatch<'_>, sink: &mut dyn Sink) -> Result<BatchLoss, RunError>;

    /// The gradient of a parameter since the last update, row-major.
    fn gradient(&self, parameter: WeightId) -> Vec<f32>;

    /// The L2 norm of the gradient of each parameter.
    fn gradient_norms(&self) -> Vec<f64>;

    /// One step of AdamW with the gradients as they are; they are zero afterwards.
    ///
    /// # Errors
    /// When a gradient is NaN or infinite: the weights and the optimiser's state stay as they were, and the gradients are zero.
    fn update(&mut self, rule: &AdamW) -> Result<UpdateReport, RunError>;

    /// The weights as they are now, row-major f32, shared with nobody.
    ///
    /// # Errors
    /// When there is not enough memory.
    fn weights(&self) -> Result<Weights, RunError>;

    /// What the optimiser remembers, for a checkpoint.
    fn optimiser_state(&self) -> OptimiserState;

    /// Goes on with what an optimiser remembered: training continues with the same bits.
    ///
    /// # Errors
    /// When it is that of a model with other parameters.
    fn set_optimiser_state(&mut self, state: OptimiserState) -> Result<(), RunError>;
}

/// Bytes that a model takes while it learns, a batch's tensors left out: each weight, its gradient and two moments, and a copy
/// while they are laid out or saved.
pub fn learning_bytes(parameters: u64) -> u64 {
    parameters.saturating_mul(5 * size_of::<f32>() as u64)
}

/// What a model learns from in one step.
#[derive(Debug, Clone, Copy)]
pub struct LearningBatch<'a> {
    /// What the model reads.
    pub input: &'a CheckedInput,
    /// What its output should say.
    pub targets: &'a Targets,
    /// What dropout's masks follow from; without one nothing is dropped.
    pub dropout_seed: Option<u64>,
}

/// What the output, [row, class], should say.
#[derive(Debug, Clone, PartialEq)]
pub struct Targets {
    /// The class of each row of the output: batch · position for a model of tokens. `None` is not counted: padding.
    pub classes: Vec<Option<u32>>,
    /// The share of the loss that asks for every class alike (label smoothing), from 0 to 1.
    pub smoothing: f32,
}

impl Targets {
    /// An error where these are not the targets of an output of so many rows and classes.
    pub(crate) fn check(&self, rows: usize, classes: usize) -> Result<(), RunError> {
        let refuse = |found: String, expected: String, help: &str| RunError::Input {
            place: "targets".into(),
            found,
            expected,
            remedy: help.to_owned().into(),
        };
        if self.classes.len() != rows {
            let found = format!("{} classes", self.classes.len());
            let expected = format!("the output has {rows} rows");
            return Err(refuse(found, expected, "give a class, or none, for every row of the output"));
        }
        if let Some((row, class)) = self.classes.iter().enumerate().find_map(|(row, class)| {
            class.filter(|&class| class as usize >= classes).map(|class| (row, class))
        }) {
            let expected = format!("the output has {classes} classes");
            return Err(refuse(format!("class {class} in row {row}"), expected, "give classes that exist"));
        }
        if !(0.0..=1.0).contains(&self.smoothing) {
            let found = format!("label smoothing {}", self.smoothing);
            return Err(refuse(found, "a share is from 0 to 1".into(), "give 0 for none, 0.1 as usual"));
        }
        Ok(())
    }
}

/// The loss of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BatchLoss {
    /// What is learned from: the cross-entropy in nats, smoothed, summed over the counted rows.
    pub nats: f64,
    /// The negative log-likelihood of the targets in nats, not smoothed, summed over the counted rows.
    pub nll: f64,
    /// How many rows were counted.
    pub count: usize,
    /// In how many of them the class with the largest score is the target.
    pub correct: usize,
}

/// How weights change: Adam with decoupled weight decay (Loshchilov, Hutter 2019), as `torch.optim.AdamW`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// The step's size.
    pub learning_rate: f32,
    /// How much of the mean gradient is kept from step to step.
    pub beta1: f32,
    /// How much of the mean squared gradient is kept from step to step.
    pub beta2: f32,
    /// Added to the root of the mean squared gradient.
    pub epsilon: f32,
    /// The share of each weight, times the learning rate, that is taken away.
    pub weight_decay: f32,
    /// Gradients whose norm over all parameters is larger are scaled down to it.
    pub clip_norm: Option<f32>,
    /// What the summed gradients are divided by first: the number of counted rows, for the mean loss.
    pub divide_by: f64,
}

/// What an update did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateReport {
    /// How many updates there were, this one included.
    pub step: u64,
    /// The L2 norm of the gradient over all parameters, divided and not clipped.
    pub gradient_norm: f64,
    /// What clipping multiplied the gradient by; 1 where it did not.
    pub clip_factor: f64,
}

/// What an optimiser remembers from step to step, row-major, by parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimiserState {
    /// How many updates there were.
    pub step: u64,
    /// The mean gradients.
    pub first_moments: Vec<Vec<f32>>,
    /// The mean squared gradients.
    pub second_moments: Vec<Vec<f32>>,
}

/// Takes the tensors of a learning step and their gradients.
pub trait LearningSink: Sink {
    /// Whether the gradient of the loss by a node's tensor is wanted.
    fn wants_gradient(&self, node: NodeId) -> bool;

    /// Takes a gradient, which has the shape of the node's tensor. A node that the loss does not depend on, and one that holds
    /// ids or a mask, has none. They come from the last node to the first.
    ///
    /// # Errors
    /// When it cannot be kept; the step ends.
    fn put_gradient(&mut self, node: NodeId, gradient: &Tensor) -> Result<(), RunError>;
}

impl LearningSink for Nothing {
    fn wants_gradient(&self, _: NodeId) -> bool {
        false
    }

    fn put_gradient(&mut self, _: NodeId, _: &Tensor) -> Result<(), RunError> {
        Ok(())
    }
}

/// The node whose tensor the loss is about: the last one, a score for every class.
pub(crate) fn output(graph: &Graph) -> Result<NodeId, RunError> {
    let last = graph.iter().last().map(|(id, _)| id);
    last.ok_or_else(|| RunError::Obstacle("the graph has no node".into()))
}

/// For each node, whether the loss has a gradient by its tensor: the output depends on it, and it is neither ids nor a mask.
pub fn have_gradients(graph: &Graph) -> Vec<bool> {
    let mut have = vec![false; graph.nodes().len()];
    if let Some(last) = have.last_mut() {
        *last = true;
    }
    for (i, node) in graph.nodes().iter().enumerate().rev() {
        if have[i] {
            node.inputs.iter().for_each(|input| have[input.index()] = !is_constant(&graph.node(*input).op));
        }
    }
    have
}

/// Whether an operation's tensor is given by the input, and no number that could be a little larger.
pub(crate) fn is_constant(op: &Op) -> bool {
    matches!(op, Op::Ids(_) | Op::TypeIds(_) | Op::Mask(_))
}
