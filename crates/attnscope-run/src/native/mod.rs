//! The native executor: f32 on all cores; stores every wanted stage and reuses buffers.

mod adamw;
mod attention;
mod backward;
mod blocks;
mod cache;
mod column;
mod conv;
mod decode;
mod demand;
mod dropout;
mod feed;
mod instructions;
mod kernels;
mod learner;
mod ops;
mod pass;
mod plan;
mod product;
mod rotary;
mod stream;
mod thread_team;
mod tile;
mod uses;
mod window;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use attnscope_graph::{Dim, Model, NodeId};
use pulp::Arch;

use crate::checked::{CheckedInput, InputLimits, shape_of};
use crate::error::RunError;
use crate::executor::{Decode, Executor, Prepared, Report, Request, Session};
use crate::intervention::Interventions;
use crate::learn::Learner;
use crate::limits::Limits;
use crate::pool::{Pool, Shared};
use crate::sink::Sink;
use crate::tensor::Tensor;
use crate::weights::Weights;
use decode::Decoding;
pub use instructions::Instructions;
use learner::NativeLearner;
use pass::{Part, Pass};
use plan::Plan;
use product::Machine;
use thread_team::ThreadTeam;
use tile::panel_width;
use uses::uses;
use window::Window;

/// The executor, and the buffers that its sessions reuse.
#[derive(Debug, Clone)]
pub struct Native {
    pool: Pool,
    arch: Arch,
    /// The instructions are those of the environment variable, which may be wrong.
    by_environment: bool,
}

impl Default for Native {
    fn default() -> Self {
        Self::new()
    }
}

impl Native {
    /// An executor without buffers; the first run makes them. Its instructions are those of [`Instructions::chosen`], and
    /// where that is an error, it is the error of [`Executor::prepare`].
    pub fn new() -> Self {
        let arch = Instructions::chosen().ok().and_then(Instructions::arch).unwrap_or_default();
        Self { pool: Pool::default(), arch, by_environment: true }
    }

    /// One that uses these instructions; `None` where the machine does not have them.
    pub fn with_instructions(instructions: Instructions) -> Option<Self> {
        Some(Self { arch: instructions.arch()?, pool: Pool::default(), by_environment: false })
    }
}

impl Executor for Native {
    fn prepare(&self, model: Arc<Model>, weights: Weights) -> Result<Arc<dyn Prepared>, RunError> {
        if self.by_environment {
            Instructions::chosen()?;
        }
        if let Some(obstacle) = model.obstacles.first() {
            return Err(RunError::Obstacle(obstacle.clone()));
        }
        let weights = weights.laid_out(&uses(&model)?, panel_width(self.arch));
        let plan = Plan::new(&model.graph, &Interventions::default());
        let limits = InputLimits::of(&model);
        let ready = Ready { executor: self.clone(), model, weights, plan, limits };
        Ok(Arc::new(NativeModel { ready: Arc::new(ready), limits: Limits::default() }))
    }

    fn learner(
        &self,
        model: Arc<Model>,
        weights: Weights,
        limits: &Limits,
    ) -> Result<Box<dyn Learner>, RunError> {
        Ok(Box::new(NativeLearner::new(self, model, &weights, limits)?))
    }
}

/// A model that is ready to run.
#[derive(Debug, Clone)]
struct NativeModel {
    ready: Arc<Ready>,
    limits: Limits,
}

#[derive(Debug)]
struct Ready {
    executor: Native,
    model: Arc<Model>,
    weights: Weights,
    /// The plan of a run without interventions.
    plan: Plan,
    limits: InputLimits,
}

impl Prepared for NativeModel {
    fn model(&self) -> &Arc<Model> {
        &self.ready.model
    }

    fn weights(&self) -> &Weights {
        &self.ready.weights
    }

    fn again(&self, model: Arc<Model>, weights: Weights) -> Result<Arc<dyn Prepared>, RunError> {
        Ok(self.ready.executor.prepare(model, weights)?.with_limits(&self.limits))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn with_limits(&self, limits: &Limits) -> Arc<dyn Prepared> {
        Arc::new(Self { ready: self.ready.clone(), limits: limits.clone() })
    }

    fn session(&self, limits: &Limits) -> Box<dyn Session> {
        let of = Self { ready: self.ready.clone(), limits: limits.clone() };
        Box::new(NativeSession { of, team: ThreadTeam::new(limits) })
    }
}

/// Runs one model on its own threads.
#[derive(Debug)]
struct NativeSession {
    /// Under the session's limits.
    of: NativeModel,
    team: ThreadTeam,
}

impl NativeSession {
    fn machine(&self) -> Machine<'_> {
        let executor = &self.of.ready.executor;
        Machine { arch: executor.arch, team: &self.team, pool: &executor.pool }
    }
}

impl Session for NativeSession {
    fn prepared(&self) -> Arc<dyn Prepared> {
        Arc::new(self.of.clone())
    }

    fn run(&mut self, request: &Request<'_>, sink: &mut dyn Sink) -> Result<Report, RunError> {
        let ready = &*self.of.ready;
        let (model, input) = (&*ready.model, request.input().input());
        let sizes = request.sizes(model, &ready.limits)?;
        let interventions =
            Interventions::new(model, request.interventions(), |node| shape_of(&sizes, node))?;
        let computed = request.computed(&model.graph, &sizes, sink)?;
        let changed;
        let plan = match request.interventions() {
            [] => &ready.plan,
            _ => {
                changed = Plan::new(&model.graph, &interventions);
                &changed
            }
        };
        let mut values = vec![Shared::default(); model.graph.nodes().len()];
        for (at, tensor) in request.known_tensors() {
            values[plan.root[at.index()]] = tensor.shared();
        }
        let rows: Vec<usize> = (0..sizes.get(Dim::Batch).unwrap_or(0)).collect();
        let mut report = Report::default();
        let pass = Pass {
            model,
            weights: Cow::Borrowed(&ready.weights),
            plan,
            interventions: &interventions,
            window: Window::whole(input, &rows, &sizes),
            part: computed.as_deref().map_or(Part::All, Part::Needed),
            machine: self.machine(),
            limits: &self.of.limits,
            values: &mut values,
            caches: None,
            last_logits: &mut Vec::new(),
            masks: HashMap::new(),
            biases: HashMap::new(),
            report: &mut report,
            dropout_seed: None,
            kept: None,
        };
        pass.run(sink)?;
        Ok(report)
    }

    fn decode_after(
        &mut self,
        given: &CheckedInput,
        known: &[(NodeId, Tensor)],
    ) -> Result<Box<dyn Decode + '_>, RunError> {
        Ok(Box::new(Decoding::start(self, given, known)?))
    }
}

/// The inverse temperatures of [`log_sum_exps`]; 1 is the third.
pub const BETAS: [f64; 7] = kernels::BETAS;

/// ln Σ exp(β·x) of a row of logits for every β of [`BETAS`]: what turns a logit into the logarithm of a probability, at
/// temperature 1 and at other temperatures. Also the mean of x under softmax(x): the value at β = 1 minus this mean is the
/// entropy of the row.
pub fn log_sum_exps(row: &[f32]) -> ([f64; BETAS.len()], f64) {
    kernels::log_sum_exps(Arch::new(), row)
}
