//! The native executor as a learner: the forward pass of every run, the walk back, and AdamW.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use attnscope_graph::{Dim, Model, NodeId, Op, Sizes, WeightId};

use super::Native;
use super::adamw;
use super::backward::{self, Backward, loss, loss_and_gradient};
use super::pass::{Part, Pass};
use super::plan::Plan;
use super::product::Machine;
use super::thread_team::ThreadTeam;
use super::tile::panel_width;
use super::uses::uses;
use super::window::Window;
use crate::checked::{InputLimits, shape_of};
use crate::error::RunError;
use crate::executor::Report;
use crate::intervention::Interventions;
use crate::learn::{
    AdamW, BatchLoss, Learner, LearningBatch, LearningSink, OptimiserState, UpdateReport, learning_bytes,
    output,
};
use crate::limits::{Cancel, Limits};
use crate::pool::{Buffer, Shared, catching};
use crate::sink::{Nothing, Sink};
use crate::source::Tee;
use crate::weights::Weights;

/// A model that learns, on threads of its own.
pub(super) struct NativeLearner {
    executor: Native,
    model: Arc<Model>,
    /// Of a pass after which backward's tensors are still there.
    plan: Plan,
    /// Of a pass after which only the output is.
    plan_to_evaluate: Plan,
    input_limits: InputLimits,
    output: NodeId,
    attention_weights: Vec<NodeId>,
    team: ThreadTeam,
    limits: Limits,
    weights: Weights,
    /// These lie as the weights do.
    gradients: Vec<Vec<f32>>,
    first_moments: Vec<Vec<f32>>,
    second_moments: Vec<Vec<f32>>,
    /// How many updates there were.
    step: u64,
}

impl NativeLearner {
    pub(super) fn new(
        executor: &Native,
        model: Arc<Model>,
        weights: &Weights,
        limits: &Limits,
    ) -> Result<Self, RunError> {
        if let Some(obstacle) = model.obstacles.first() {
            return Err(RunError::Obstacle(obstacle.clone()));
        }
        let graph = &model.graph;
        let values: u64 = graph.weight_ids().map(|id| weights.len(id) as u64).sum();
        limits.check_memory(learning_bytes(values))?;
        let mut weights = weights.to_learn(&uses(&model)?, panel_width(executor.arch))?;
        let zeros: Vec<Vec<f32>> = weights.stored_mut().map(|values| vec![0.0; values.len()]).collect();
        let output = output(graph)?;
        // What is left after dropout is a tensor of its own.
        let drops = |id: NodeId| matches!(graph.node(id).op, Op::Dropout { p } if p > 0.0);
        let plan = Plan::with_own(graph, drops);
        let kept = backward::kept(graph, &plan, output);
        let plan_to_evaluate = Plan::new(graph, &Interventions::default());
        let mut only_output = vec![false; kept.len()];
        only_output[plan_to_evaluate.root[output.index()]] = true;
        Ok(Self {
            executor: executor.clone(),
            plan: plan.keeping(&kept),
            plan_to_evaluate: plan_to_evaluate.keeping(&only_output),
            input_limits: InputLimits::of(&model),
            output,
            attention_weights: backward::attention_weights(graph).collect(),
            // Its loops are not left undone: an update is made whole or not at all.
            team: ThreadTeam::new(&Limits { cancel: Cancel::default(), ..limits.clone() }),
            limits: limits.quiet(),
            weights,
            gradients: zeros.clone(),
            first_moments: zeros.clone(),
            second_moments: zeros,
            step: 0,
            model,
        })
    }

    fn machine(&self) -> Machine<'_> {
        Machine { arch: self.executor.arch, team: &self.team, pool: &self.executor.pool }
    }

    /// What a pass over a batch reads, and the shape of its output as rows and classes.
    fn reading(&self, batch: &LearningBatch<'_>) -> Result<Reading, RunError> {
        let sizes = batch.input.sizes_for(&self.model, &self.input_limits)?;
        let shape = shape_of(&sizes, self.model.graph.node(self.output))?;
        let classes = shape.last().copied().unwrap_or(1);
        batch.targets.check(shape.iter().product::<usize>() / classes.max(1), classes)?;
        let rows = (0..sizes.get(Dim::Batch).unwrap_or(0)).collect();
        Ok(Reading { sizes, rows, classes })
    }

    /// The forward pass, and what it leaves behind by the node that made it. `more` is what is needed after it, in bytes.
    fn forward(
        &self,
        plan: &Plan,
        window: Window<'_>,
        (dropout_seed, kept): (Option<u64>, Option<&mut [Buffer]>),
        sink: &mut dyn Sink,
        more: impl Fn(&Pass<'_>) -> Result<u64, RunError>,
    ) -> Result<Vec<Shared>, RunError> {
        let mut values = vec![Shared::default(); self.model.graph.nodes().len()];
        self.pass(plan, window, (dropout_seed, kept), &mut values, |pass| {
            self.limits.check_memory(pass.demand(sink)?.saturating_add(more(&pass)?))?;
            pass.run(sink)
        })?;
        Ok(values)
    }

    /// A pass that leaves its tensors in `values`, for whoever runs or measures it.
    fn pass<T>(
        &self,
        plan: &Plan,
        window: Window<'_>,
        (dropout_seed, kept): (Option<u64>, Option<&mut [Buffer]>),
        values: &mut [Shared],
        act: impl FnOnce(Pass<'_>) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        act(Pass {
            model: &self.model,
            weights: Cow::Borrowed(&self.weights),
            plan,
            interventions: &Interventions::default(),
            window,
            part: Part::All,
            machine: self.machine(),
            limits: &self.limits,
            values,
            caches: None,
            last_logits: &mut Vec::new(),
            masks: HashMap::new(),
            biases: HashMap::new(),
            report: &mut Report::default(),
            dropout_seed,
            kept,
        })
    }

    /// Forward and backward; adds to the gradients.
    fn learn(
        &mut self,
        batch: &LearningBatch<'_>,
        sink: &mut dyn LearningSink,
    ) -> Result<BatchLoss, RunError> {
        let Reading { sizes, rows, classes } = self.reading(batch)?;
        let graph = &self.model.graph;
        let wanted = backward::wanted(graph, sink);
        let window = Window::whole(batch.input.input(), &rows, &sizes);
        let mut tape = Tee { inner: sink, read: &self.attention_weights, tensors: Vec::new() };
        let mut kept: Vec<Buffer> = graph.nodes().iter().map(|_| Buffer::default()).collect();
        let tapes = (batch.dropout_seed, Some(&mut kept[..]));
        let mut values = self.forward(&self.plan, window, tapes, &mut tape, |pass| {
            backward::demand(graph, &self.plan, &wanted, self.output, |id| pass.bytes(id))
        })?;
        let attention_weights = tape.tensors;
        let mut gradients = std::mem::take(&mut self.gradients);
        let (machine, at) = (self.machine(), self.plan.root[self.output.index()]);
        let result = catching(|| {
            let mut scores = std::mem::take(&mut values[at]).into_buffer(machine.pool);
            let loss = loss_and_gradient(machine, &mut scores, classes, batch.targets);
            let backward = Backward {
                model: &self.model,
                weights: &self.weights,
                plan: &self.plan,
                window,
                machine,
                cancel: &self.limits.cancel,
                values: &mut values,
                attention_weights: &attention_weights,
                kept: &mut kept,
                parameters: &mut gradients,
                dropout_seed: batch.dropout_seed,
                wanted: &wanted,
                gradients: graph.nodes().iter().map(|_| None).collect(),
            };
            backward.run(self.output, scores, sink).map(|()| loss)
        });
        self.gradients = gradients;
        result?
    }

    fn clear_gradients(&mut self) {
        for (gradient, values) in self.gradients.iter_mut().zip(self.weights.stored_mut()) {
            gradient.clear();
            gradient.resize(values.len(), 0.0);
        }
    }

    /// Each parameter's values, which lie as the weights do, row-major.
    fn to_rows(&self, stored: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let ids = self.model.graph.weight_ids();
        ids.zip(stored).map(|(id, stored)| self.weights.to_rows(id, stored)).collect()
    }

    /// Row-major values of each parameter, as the weights lie.
    fn like_stored(&self, rows: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, RunError> {
        let (found, expected) = (rows.len(), self.model.graph.weights().len());
        let refuse = |place: &str, found: usize, expected: usize| RunError::Input {
            place: format!("state of the optimiser: {place}"),
            found: format!("{found}"),
            expected: format!("this model has {expected}"),
            remedy: "go on with the state of a run of the same model".into(),
        };
        if found != expected {
            return Err(refuse("parameters", found, expected));
        }
        let each = |(id, rows): (WeightId, Vec<f32>)| match self.weights.len(id) {
            len if len == rows.len() => Ok(self.weights.like_stored(id, rows)),
            len => {
                let place = format!("values of {}", self.model.graph.weight(id).path);
                Err(refuse(&place, rows.len(), len))
            }
        };
        self.model.graph.weight_ids().zip(rows).map(each).collect()
    }
}

/// What a pass over a batch reads.
struct Reading {
    sizes: Sizes,
    /// The source row of each row.
    rows: Vec<usize>,
    /// Of the output.
    classes: usize,
}

impl Learner for NativeLearner {
    fn model(&self) -> &Arc<Model> {
        &self.model
    }

    fn step(
        &mut self,
        batch: &LearningBatch<'_>,
        sink: &mut dyn LearningSink,
    ) -> Result<BatchLoss, RunError> {
        let loss = self.learn(batch, sink);
        if loss.is_err() {
            self.clear_gradients();
        }
        loss
    }

    fn step_bytes(&self, batch: &LearningBatch<'_>) -> Result<u64, RunError> {
        let Reading { sizes, rows, .. } = self.reading(batch)?;
        let graph = &self.model.graph;
        let window = Window::whole(batch.input.input(), &rows, &sizes);
        let mut values = vec![Shared::default(); graph.nodes().len()];
        let mut kept: Vec<Buffer> = graph.nodes().iter().map(|_| Buffer::default()).collect();
        let mut nothing = Nothing;
        let wanted = backward::wanted(graph, &nothing);
        let tape = Tee { inner: &mut nothing, read: &self.attention_weights, tensors: Vec::new() };
        self.pass(&self.plan, window, (batch.dropout_seed, Some(&mut kept)), &mut values, |pass| {
            let back = backward::demand(graph, &self.plan, &wanted, self.output, |id| pass.bytes(id))?;
            Ok(pass.demand(&tape)?.saturating_add(back))
        })
    }

    fn evaluate(&mut self, batch: &LearningBatch<'_>, sink: &mut dyn Sink) -> Result<BatchLoss, RunError> {
        let Reading { sizes, rows, classes } = self.reading(batch)?;
        let window = Window::whole(batch.input.input(), &rows, &sizes);
        let plan = &self.plan_to_evaluate;
        let values = self.forward(plan, window, (None, None), sink, |_| Ok(0))?;
        let scores = &values[plan.root[self.output.index()]];
        Ok(loss(self.machine(), scores, classes, batch.targets))
    }

    fn gradient(&self, parameter: WeightId) -> Vec<f32> {
        self.weights.to_rows(parameter, &self.gradients[parameter.index()])
    }

    fn gradient_norms(&self) -> Vec<f64> {
        adamw::squares(self.machine(), &self.gradients).into_iter().map(f64::sqrt).collect()
    }

    fn update(&mut self, rule: &AdamW) -> Result<UpdateReport, RunError> {
        let squares = adamw::squares(self.machine(), &self.gradients);
        let divide_by = if rule.divide_by > 0.0 { rule.divide_by } else { 1.0 };
        let gradient_norm = squares.iter().sum::<f64>().sqrt() / divide_by;
        if let Some(at) = squares.iter().position(|square| !square.is_finite()) {
            self.clear_gradients();
            return Err(RunError::Gradient { parameter: self.model.graph.weights()[at].path.clone() });
        }
        // As torch.nn.utils.clip_grad_norm_.
        let clip = |norm: f32| (f64::from(norm) / (gradient_norm + 1e-6)).min(1.0);
        let clip_factor = rule.clip_norm.map_or(1.0, clip);
        self.step += 1;
        let machine = Machine { arch: self.executor.arch, team: &self.team, pool: &self.executor.pool };
        let moments = [&mut self.gradients[..], &mut self.first_moments, &mut self.second_moments];
        let weights = self.weights.stored_mut();
        adamw::update(machine, rule, self.step, clip_factor / divide_by, weights, moments);
        Ok(UpdateReport { step: self.step, gradient_norm, clip_factor })
    }

    fn weights(&self) -> Result<Weights, RunError> {
        self.weights.copied()
    }

    fn optimiser_state(&self) -> OptimiserState {
        OptimiserState {
            step: self.step,
            first_moments: self.to_rows(&self.first_moments),
            second_moments: self.to_rows(&self.second_moments),
        }
    }

    fn set_optimiser_state(&mut self, state: OptimiserState) -> Result<(), RunError> {
        let first = self.like_stored(state.first_moments)?;
        self.second_moments = self.like_stored(state.second_moments)?;
        (self.first_moments, self.step) = (first, state.step);
        Ok(())
    }
}
