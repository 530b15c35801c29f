//! The reference executor: f64, one plain loop per formula. Every kernel is tested against it, so it stays small and obvious.

mod block;
mod step;

use std::borrow::Cow;
use std::sync::Arc;

use attnscope_graph::{Graph, Model, NodeId, Op};
use rayon::ThreadPool;

use crate::checked::{CheckedInput, InputLimits, SizedInput};
use crate::error::RunError;
use crate::executor::{Decode, Executor, Prepared, Report, Request, Session};
use crate::intervention::Interventions;
use crate::learn::Learner;
use crate::limits::{Counted, Limits};
use crate::sink::Sink;
use crate::tensor::{Kept, Tensor};
use crate::uncached::Uncached;
use crate::weights::Weights;
pub use block::next_state;
pub(crate) use step::Step;
pub use step::activate;

/// The executor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reference;

impl Executor for Reference {
    fn prepare(&self, model: Arc<Model>, weights: Weights) -> Result<Arc<dyn Prepared>, RunError> {
        match model.obstacles.first() {
            Some(obstacle) => Err(RunError::Obstacle(obstacle.clone())),
            None => Ok(Arc::new(ReferenceModel { model, weights, limits: Limits::default() })),
        }
    }

    fn learner(&self, _: Arc<Model>, _: Weights, _: &Limits) -> Result<Box<dyn Learner>, RunError> {
        Err(RunError::NoGradients { executor: "the reference" })
    }
}

/// A model that is ready to run: there is nothing to make ready.
#[derive(Debug, Clone)]
struct ReferenceModel {
    model: Arc<Model>,
    weights: Weights,
    limits: Limits,
}

impl Prepared for ReferenceModel {
    fn model(&self) -> &Arc<Model> {
        &self.model
    }

    fn weights(&self) -> &Weights {
        &self.weights
    }

    fn again(&self, model: Arc<Model>, weights: Weights) -> Result<Arc<dyn Prepared>, RunError> {
        Ok(Reference.prepare(model, weights)?.with_limits(&self.limits))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn with_limits(&self, limits: &Limits) -> Arc<dyn Prepared> {
        Arc::new(Self { limits: limits.clone(), ..self.clone() })
    }

    fn session(&self, limits: &Limits) -> Box<dyn Session> {
        Box::new(ReferenceSession { of: Self { limits: limits.clone(), ..self.clone() }, pool: None })
    }
}

#[derive(Debug)]
struct ReferenceSession {
    /// Under the session's limits.
    of: ReferenceModel,
    /// The threads of its loops, where they are limited, once it has run.
    pool: Option<ThreadPool>,
}

impl Session for ReferenceSession {
    fn prepared(&self) -> Arc<dyn Prepared> {
        Arc::new(self.of.clone())
    }

    fn run(&mut self, request: &Request<'_>, sink: &mut dyn Sink) -> Result<Report, RunError> {
        if self.pool.is_none() {
            self.pool = self.of.limits.pool()?;
        }
        let ReferenceModel { model, weights, limits } = &self.of;
        let graph = &model.graph;
        let sizes = request.sizes(model, &InputLimits::of(model))?;
        let computed = request.computed(graph, &sizes, sink)?;
        let sized_input = SizedInput { input: request.input().input(), sizes };
        let interventions =
            Interventions::new(model, request.interventions(), |node| sized_input.shape(node))?;
        let is_needed = |id: NodeId| computed.as_ref().is_none_or(|computed| computed[id.index()]);
        let dead = dead_after(graph);
        limits.check_memory(demand(graph, &is_needed, &sized_input, &dead, sink)?)?;
        let total = graph.iter().filter(|&(id, _)| is_needed(id)).count();
        let mut done = 0;
        let mut report = Report::default();
        let mut values: Vec<Option<Arc<Kept>>> = vec![None; graph.nodes().len()];
        for (at, tensor) in request.known_tensors() {
            values[at.index()] = Some(Arc::new(tensor.to_f64()));
        }
        for (id, node) in graph.iter() {
            if !is_needed(id) {
                continue;
            }
            let shape = sized_input.shape(node)?;
            let inputs: Vec<Arc<Kept>> =
                node.inputs.iter().filter_map(|i| values[i.index()].clone()).collect();
            let held: Vec<Cow<'_, [f32]>> =
                node.weights.iter().map(|&id| weights.get(id)).collect::<Result<_, _>>()?;
            let weights: Vec<&[f32]> = held.iter().map(|values| &**values).collect();
            let step = Step {
                sized_input: &sized_input,
                weights: &weights,
                op: node.op,
                shape: &shape,
                inputs: &inputs,
                cancel: &limits.cancel,
            };
            let compute =
                || self.pool.as_ref().map_or_else(|| step.compute(), |pool| pool.install(|| step.compute()));
            let mut value = match node.op {
                op if is_alias(&op) => inputs.first().cloned(),
                _ => Some(Arc::new(Kept { values: compute(), shape: shape.clone() })),
            };
            // What was cancelled is not whole.
            limits.cancel.check()?;
            if let (true, Some(value)) = (interventions.intervenes_on(id), &mut value) {
                interventions.apply(id, 0, &mut Arc::make_mut(value).values);
            }
            if let (true, Some(value)) = (sink.wants(id), &value) {
                sink.put(id, &Tensor::from(value.clone()))?;
            }
            if let (Op::Normalise(_), Some(scores)) = (node.op, inputs.first()) {
                let rows = scores.values.chunks(scores.width()).filter(|row| is_fully_masked(row)).count();
                let kind = node.role.attention().and_then(|(place, _)| graph.mask_of(place));
                let of_padding = kind.map_or(0, |kind| sized_input.padding_without_keys(kind, &scores.shape));
                report.add(id, rows.saturating_sub(of_padding));
            }
            values[id.index()] = value;
            dead[id.index()].iter().for_each(|dead| values[dead.index()] = None);
            done += 1;
            limits.progress.tell(Counted::Nodes, done, total);
        }
        Ok(report)
    }

    fn decode_after(
        &mut self,
        given: &CheckedInput,
        _: &[(NodeId, Tensor)],
    ) -> Result<Box<dyn Decode + '_>, RunError> {
        // This executor has no cache, so known tensors are not used.
        given.sizes_to_decode(&self.of.model, &InputLimits::of(&self.of.model))?;
        Ok(Box::new(Uncached::new(self, given)))
    }
}

/// For each node, the nodes whose tensors are not read after it.
fn dead_after(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut last: Vec<Option<NodeId>> = vec![None; graph.nodes().len()];
    for (id, node) in graph.iter() {
        node.inputs.iter().for_each(|input| last[input.index()] = Some(id));
    }
    let mut dead = vec![Vec::new(); last.len()];
    for (id, _) in graph.iter() {
        if let Some(reader) = last[id.index()] {
            dead[reader.index()].push(id);
        }
    }
    dead
}

/// Whether an operation leaves its input's tensor as it is, shape included.
fn is_alias(op: &Op) -> bool {
    matches!(op, Op::Same | Op::Dropout { .. })
}

/// The peak of the bytes of the run and its sink, without the weights. A tensor counts twice while it is computed, because its
/// parts are concatenated.
fn demand(
    graph: &Graph,
    is_needed: &dyn Fn(NodeId) -> bool,
    sized_input: &SizedInput<'_>,
    dead: &[Vec<NodeId>],
    sink: &dyn Sink,
) -> Result<u64, RunError> {
    let mut made = vec![0u64; graph.nodes().len()];
    let (mut live, mut most) = (0u64, 0u64);
    for (id, node) in graph.iter().filter(|&(id, _)| is_needed(id)) {
        let values = sized_input.shape(node)?.iter().fold(1, |n: u64, &d| n.saturating_mul(d as u64));
        let (own, held) = (values.saturating_mul(8), values.saturating_mul(sink.held(id, 8)));
        let own = if is_alias(&node.op) { 0 } else { own };
        most = most.max(live.saturating_add(own.saturating_mul(2).max(own.saturating_add(held))));
        live = live.saturating_add(own).saturating_add(held);
        made[id.index()] = own;
        for dead in &dead[id.index()] {
            let bytes = std::mem::take(&mut made[dead.index()]);
            match node.op {
                // It stays alive under another name.
                op if is_alias(&op) => made[id.index()] += bytes,
                _ => live = live.saturating_sub(bytes),
            }
        }
    }
    Ok(most)
}

/// A row of scores in which every key is masked. A NaN is not −∞: its row is not fully masked, and the NaN shows.
pub fn is_fully_masked(scores: &[f64]) -> bool {
    scores.iter().all(|&x| x == f64::NEG_INFINITY)
}
