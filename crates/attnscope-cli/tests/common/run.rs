//! Runs for tests: a model and its weights are made ready for each, and what is wanted is kept in f64.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope::graph::{Model, NodeId};
use attnscope::run::{
    CheckedInput, Executor, Input, Intervention, Kept, Limits, Native, Prepared, Reference, Report, Request,
    RunError, Session, Sink, Tensor, Weights,
};

/// Keeps what a predicate picks, in f64.
pub struct Keep<F> {
    wanted: F,
    pub tensors: BTreeMap<NodeId, Kept>,
}

impl<F: Fn(NodeId) -> bool> Keep<F> {
    pub fn new(wanted: F) -> Self {
        Self { wanted, tensors: BTreeMap::new() }
    }
}

impl<F: Fn(NodeId) -> bool> Sink for Keep<F> {
    fn wants(&self, node: NodeId) -> bool {
        (self.wanted)(node)
    }

    fn held(&self, node: NodeId, _: u64) -> u64 {
        if self.wants(node) { 8 } else { 0 }
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        self.tensors.insert(node, tensor.to_f64());
        Ok(())
    }
}

/// A model ready to run.
pub fn prepare(executor: &dyn Executor, model: &Model, weights: &Weights) -> Arc<dyn Prepared> {
    executor.prepare(Arc::new(model.clone()), weights.clone()).unwrap()
}

/// Something that runs a model natively.
pub fn session(model: &Model, weights: &Weights) -> Box<dyn Session> {
    prepare(&Native::new(), model, weights).session(&Limits::default())
}

/// One native run.
pub fn run(model: &Model, weights: &Weights, input: &Input, sink: &mut dyn Sink) -> Result<Report, RunError> {
    run_with_interventions(&Native::new(), model, weights, input, &[], sink)
}

/// One run of the reference executor.
pub fn run_reference(
    model: &Model,
    weights: &Weights,
    input: &Input,
    sink: &mut dyn Sink,
) -> Result<Report, RunError> {
    run_with_interventions(&Reference, model, weights, input, &[], sink)
}

/// One run with tensors replaced on the way.
pub fn run_with_interventions(
    executor: &dyn Executor,
    model: &Model,
    weights: &Weights,
    input: &Input,
    interventions: &[Intervention],
    sink: &mut dyn Sink,
) -> Result<Report, RunError> {
    let input = CheckedInput::new(model, input.clone())?;
    let mut session = prepare(executor, model, weights).session(&Limits::default());
    session.run(&Request::new(&input).with_interventions(interventions), sink)
}
