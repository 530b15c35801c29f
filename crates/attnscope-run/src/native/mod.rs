//! The native executor: f32 on all cores, every stage stored that somebody wants, buffers used again.

mod attention;
mod cache;
mod decode;
mod demand;
mod instructions;
mod kernels;
mod ops;
mod pass;
mod plan;
mod pool;
mod product;
mod stream;
mod team;
mod tile;
mod window;

use std::collections::HashMap;

use attnscope_graph::{Dim, Graph, Model, NodeId, Side};
use pulp::Arch;

use crate::change::{Change, Changes};
use crate::error::RunError;
use crate::input::{Input, Rows};
use crate::prepare::Prepared;
use crate::sink::Sink;
use crate::weights::Weights;
pub use decode::Decoding;
pub use instructions::Instructions;
use pass::{Part, Pass};
use plan::Plan;
use pool::Pool;
pub use pool::Shared;
use product::Machine;
use team::Team;
use window::Window;

/// The executor and the buffers that it keeps from run to run.
#[derive(Debug)]
pub struct Native {
    pool: Pool,
    team: Team,
    arch: Arch,
}

/// What a run does not compute itself.
struct Given<'a> {
    changes: &'a [Change],
    /// Tensors of another run; `None` where everything is computed, whether it is read or not.
    known: Option<&'a [(NodeId, Shared)]>,
}

/// What a run has to say besides its tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Attentions in which queries had nothing to see, and how many: their weights are 0 by definition.
    pub blind: Vec<(NodeId, usize)>,
}

impl Report {
    pub(crate) fn add(&mut self, node: NodeId, blind: usize) {
        match self.blind.iter_mut().find(|(id, _)| *id == node) {
            Some((_, count)) => *count += blind,
            None if blind > 0 => self.blind.push((node, blind)),
            None => {}
        }
    }
}

impl Default for Native {
    fn default() -> Self {
        Self::new()
    }
}

impl Native {
    /// An executor without buffers; the first run makes them.
    pub fn new() -> Self {
        let arch = Instructions::chosen().arch().unwrap_or_default();
        Self { pool: Pool::default(), team: Team::new(), arch }
    }

    /// One that uses these instructions; `None` where the machine does not have them.
    pub fn with_instructions(instructions: Instructions) -> Option<Self> {
        Some(Self { arch: instructions.arch()?, ..Self::new() })
    }

    fn machine(&self) -> Machine<'_> {
        Machine { arch: self.arch, team: &self.team, pool: &self.pool }
    }

    /// Runs a model on an input and hands every wanted tensor to the sink.
    ///
    /// # Errors
    /// When the input does not fit the model, or the sink refuses a tensor.
    pub fn run(
        &mut self,
        model: &Model,
        weights: &Weights,
        input: &Input,
        sink: &mut dyn Sink,
    ) -> Result<Report, RunError> {
        self.run_changed(model, weights, input, &[], sink)
    }

    /// The same with some tensors replaced on the way.
    ///
    /// # Errors
    /// As [`Native::run`], and when a change does not fit its tensor.
    pub fn run_changed(
        &mut self,
        model: &Model,
        weights: &Weights,
        input: &Input,
        changes: &[Change],
        sink: &mut dyn Sink,
    ) -> Result<Report, RunError> {
        self.run_part(model, weights, input, Given { changes, known: None }, sink)
    }

    /// Runs only what the tensors that the sink wants depend on, and nothing that comes before tensors which are known from
    /// another run. A known tensor is not handed to the sink.
    ///
    /// # Errors
    /// As [`Native::run`], and when a known tensor is not of the size that this input makes.
    pub fn run_from(
        &mut self,
        model: &Model,
        weights: &Weights,
        input: &Input,
        known: &[(NodeId, Shared)],
        sink: &mut dyn Sink,
    ) -> Result<Report, RunError> {
        self.run_part(model, weights, input, Given { changes: &[], known: Some(known) }, sink)
    }

    fn run_part(
        &mut self,
        model: &Model,
        weights: &Weights,
        input: &Input,
        given: Given<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Report, RunError> {
        let prepared = Prepared::new(model, input)?;
        let changes = Changes::new(model, given.changes, |node| prepared.shape(node))?;
        let known = given.known.unwrap_or_default();
        check_known(model, &prepared, known)?;
        let sizes = prepared.sizes;
        let rows: Vec<usize> = (0..sizes.get(Dim::Batch).unwrap_or(0)).collect();
        let plan = Plan::new(&model.graph, &changes);
        let mut values = vec![Shared::default(); model.graph.nodes().len()];
        for (at, tensor) in known {
            values[plan.root[at.index()]] = tensor.clone();
        }
        let needed = given.known.map(|known| needed(&model.graph, known, &|id| sink.wants(id)));
        let part = needed.as_deref().map_or(Part::All, Part::Needed);
        let mut report = Report::default();
        let target = input.rows(Side::Target);
        let pass = Pass {
            model,
            weights,
            plan: &plan,
            changes: &changes,
            window: Window {
                source: input.sequence(Side::Source),
                source_open: input.rows(Side::Source).map(Rows::open),
                target: target.map_or(&[], Rows::ids),
                target_open: target.map(Rows::open),
                past: 0,
                length: target.map_or(0, Rows::length),
                rows: &rows,
                sizes: &sizes,
            },
            part,
            machine: self.machine(),
            values: &mut values,
            caches: None,
            last_logits: &mut Vec::new(),
            masks: HashMap::new(),
            biases: HashMap::new(),
            report: &mut report,
        };
        pass.run(sink)?;
        Ok(report)
    }
}

/// The nodes that are computed so that each wanted one can be: what they read, back to what is known.
fn needed(graph: &Graph, known: &[(NodeId, Shared)], wants: &dyn Fn(NodeId) -> bool) -> Vec<bool> {
    let mut is_known = vec![false; graph.nodes().len()];
    known.iter().for_each(|(at, _)| is_known[at.index()] = true);
    let mut needed: Vec<bool> = graph.iter().map(|(id, _)| wants(id)).collect();
    for (i, node) in graph.nodes().iter().enumerate().rev() {
        needed[i] &= !is_known[i];
        if needed[i] {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    needed
}

/// Whether tensors of another run are of the sizes that this input makes.
fn check_known(model: &Model, prepared: &Prepared<'_>, known: &[(NodeId, Shared)]) -> Result<(), RunError> {
    for (at, tensor) in known {
        let node = model.graph.node(*at);
        let expected: usize = prepared.shape(node)?.iter().product();
        if tensor.len() != expected {
            return Err(RunError::Input {
                place: node.path.to_string(),
                found: format!("{} values", tensor.len()),
                expected: format!("this input makes {expected}"),
                help: "give the tensor of a run on the same input".into(),
            });
        }
    }
    Ok(())
}

/// The inverse temperatures of [`log_sum_exps`]; 1 is the third.
pub const BETAS: [f64; 7] = kernels::BETAS;

/// ln Σ exp(β·x) of a row of logits for every β of [`BETAS`]: what turns a logit into the logarithm of a probability, as
/// the model is and were it more or less sure of itself. Beside it the mean of x under softmax(x): the first at β = 1 less
/// the mean is the entropy of the row.
pub fn log_sum_exps(row: &[f32]) -> ([f64; BETAS.len()], f64) {
    kernels::log_sum_exps(Arch::new(), row)
}
