//! What runs a graph: an executor makes a model ready, a session runs it.
//!
//! Everything that runs a model does so through these traits, so that the tensors, the report and the errors have the same
//! types for every executor (native, reference, a GPU).

use std::fmt::Debug;
use std::sync::Arc;

use attnscope_graph::{Graph, Model, Node, NodeId, Op, Side, Sizes};

use crate::checked::{CheckedInput, InputLimits, shape_of};
use crate::error::RunError;
use crate::intervention::Intervention;
use crate::learn::Learner;
use crate::limits::Limits;
use crate::sink::Sink;
use crate::tensor::Tensor;
use crate::weights::Weights;

/// Makes models ready to run.
pub trait Executor: Debug + Send + Sync {
    /// Prepares a model: the work that depends only on its graph and weights is done once, for all sessions.
    ///
    /// # Errors
    /// When the model cannot be run.
    fn prepare(&self, model: Arc<Model>, weights: Weights) -> Result<Arc<dyn Prepared>, RunError>;

    /// Makes a model ready to learn, with weights of its own that change.
    ///
    /// # Errors
    /// When the model cannot be run, there is not enough memory, or this executor computes no gradients.
    fn learner(
        &self,
        model: Arc<Model>,
        weights: Weights,
        limits: &Limits,
    ) -> Result<Box<dyn Learner>, RunError>;
}

/// A model that is ready to run.
pub trait Prepared: Debug + Send + Sync {
    /// The model.
    fn model(&self) -> &Arc<Model>;

    /// Its weights.
    fn weights(&self) -> &Weights;

    /// The same executor with another wiring or other weights.
    ///
    /// # Errors
    /// When that model does not run.
    fn again(&self, model: Arc<Model>, weights: Weights) -> Result<Arc<dyn Prepared>, RunError>;

    /// What its own sessions may use: those of [`Prepared::with_limits`].
    fn limits(&self) -> &Limits;

    /// The same model, weights and executor under limits, without a copy. What is made of it again keeps them.
    fn with_limits(&self, limits: &Limits) -> Arc<dyn Prepared>;

    /// A session that runs it, with its own threads and buffers.
    fn session(&self, limits: &Limits) -> Box<dyn Session>;
}

impl dyn Prepared + '_ {
    /// A session under the model's own limits.
    pub fn own_session(&self) -> Box<dyn Session> {
        self.session(self.limits())
    }

    /// One run, in a new session.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run(&self, input: &CheckedInput, sink: &mut dyn Sink) -> Result<Report, RunError> {
        self.own_session().run(&Request::new(input), sink)
    }
}

/// Runs a model, one request after the other.
pub trait Session: Send {
    /// The model that it runs, under the session's limits.
    fn prepared(&self) -> Arc<dyn Prepared>;

    /// Computes the requested nodes and hands every wanted tensor to the sink.
    ///
    /// # Errors
    /// When the request does not fit the model, there is not enough memory, it was cancelled, or the sink refuses a tensor.
    fn run(&mut self, request: &Request<'_>, sink: &mut dyn Sink) -> Result<Report, RunError>;

    /// Runs everything that does not depend on the target, such as the encoder, once for all tokens. The input has no target;
    /// for a decoder-only model it holds only the number of rows.
    ///
    /// # Errors
    /// When the source does not fit the model, or there is not enough memory.
    fn decode(&mut self, given: &CheckedInput) -> Result<Box<dyn Decode + '_>, RunError> {
        self.decode_after(given, &[])
    }

    /// The same with tensors of the source from an earlier run: all that the target's nodes read, or none.
    ///
    /// # Errors
    /// As [`Session::decode`], and when a known tensor cannot be given or is of another shape.
    fn decode_after(
        &mut self,
        given: &CheckedInput,
        known: &[(NodeId, Tensor)],
    ) -> Result<Box<dyn Decode + '_>, RunError>;
}

/// A running decoder: some rows, each of which reads a row of the source; all have read the same number of tokens. A call that
/// fails changes nothing.
pub trait Decode {
    /// Reads the next tokens of every row, as many in each, and returns the logits of the last of them, [row, vocabulary].
    ///
    /// # Errors
    /// When a token is not in the vocabulary, or there is no position left for it. A decoder may also fail on NaN
    /// or +∞ among the logits: decoding cannot continue then.
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError>;

    /// Continues with these rows, in this order; a row may appear several times or not at all.
    ///
    /// # Errors
    /// When there is no such row, or none at all.
    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError>;
}

/// What a session is asked to compute.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    input: &'a CheckedInput,
    interventions: &'a [Intervention],
    known: &'a [(NodeId, Tensor)],
    portion: Portion,
}

/// Which nodes are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Portion {
    All,
    /// What the tensors that the sink wants depend on.
    Wanted,
    /// What does not depend on the target.
    Source,
    /// What depends on the target.
    Target,
}

impl<'a> Request<'a> {
    /// A run on an input.
    pub fn new(input: &'a CheckedInput) -> Self {
        Self { input, interventions: &[], known: &[], portion: Portion::All }
    }

    /// The same with interventions.
    pub fn with_interventions(self, interventions: &'a [Intervention]) -> Self {
        Self { interventions, ..self }
    }

    /// Only what the wanted tensors depend on, and nothing that comes before tensors which are known from another run on this
    /// input. A known tensor is not handed to the sink. Which nodes' tensors can be given, [`Facets::can_be_given`]
    /// says.
    ///
    /// [`Facets::can_be_given`]: attnscope_graph::Facets::can_be_given
    pub fn known(self, known: &'a [(NodeId, Tensor)]) -> Self {
        Self { known, portion: Portion::Wanted, ..self }
    }

    /// Computes only what does not depend on the target, which may be absent.
    pub(crate) fn source(self) -> Self {
        Self { portion: Portion::Source, ..self }
    }

    /// Computes only what depends on the target, from the known tensors of the source.
    pub(crate) fn target(self, known: &'a [(NodeId, Tensor)]) -> Self {
        Self { known, portion: Portion::Target, ..self }
    }

    /// What the model reads.
    pub fn input(&self) -> &'a CheckedInput {
        self.input
    }

    /// The tensors that are replaced.
    pub(crate) fn interventions(&self) -> &'a [Intervention] {
        self.interventions
    }

    /// The tensors of another run.
    pub(crate) fn known_tensors(&self) -> &'a [(NodeId, Tensor)] {
        self.known
    }

    /// The sizes of a model on this input.
    pub(crate) fn sizes(&self, model: &Model, limits: &InputLimits) -> Result<Sizes, RunError> {
        match self.portion {
            Portion::Source => self.input.sizes_to_decode(model, limits),
            Portion::All | Portion::Wanted | Portion::Target => self.input.sizes_for(model, limits),
        }
    }

    /// For each node whether it is computed: the requested nodes and all that they depend on, back to known tensors. `None`
    /// where all nodes are.
    ///
    /// # Errors
    /// When a known tensor cannot be given or is of another shape than this input makes, or an intervention is on a node that
    /// is
    /// not computed.
    pub(crate) fn computed(
        &self,
        graph: &Graph,
        sizes: &Sizes,
        sink: &dyn Sink,
    ) -> Result<Option<Vec<bool>>, RunError> {
        check_known(graph, sizes, self.known)?;
        let mut computed: Vec<bool> = match self.portion {
            Portion::All => return Ok(None),
            Portion::Wanted => graph.iter().map(|(id, _)| sink.wants(id)).collect(),
            Portion::Source => on_target(graph).iter().map(|on_target| !on_target).collect(),
            Portion::Target => on_target(graph),
        };
        let mut is_known = vec![false; computed.len()];
        self.known.iter().for_each(|(at, _)| is_known[at.index()] = true);
        for (i, node) in graph.nodes().iter().enumerate().rev() {
            // An executor may compute the steps of an attention together, at its end.
            let has_steps =
                matches!(node.op, Op::MergeHeads(_)) && has_computed_steps(graph, node, &computed);
            computed[i] = has_steps || (computed[i] && !is_known[i]);
            if computed[i] {
                node.inputs.iter().for_each(|input| computed[input.index()] = true);
            }
        }
        match self.interventions.iter().find(|intervention| !computed[intervention.node.index()]) {
            None => Ok(Some(computed)),
            Some(intervention) => Err(RunError::Input {
                place: format!("intervention on {}", graph.node(intervention.node).path),
                found: "a node that this run does not compute".into(),
                expected: "an intervention is made where a tensor is computed".into(),
                remedy: "intervene in the run that computes it".into(),
            }),
        }
    }
}

/// What a run reports in addition to its tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Attentions with queries that have no visible key, and how many such queries: their weights are 0 by definition.
    pub fully_masked: Vec<(NodeId, usize)>,
}

impl Report {
    pub(crate) fn add(&mut self, node: NodeId, fully_masked: usize) {
        match self.fully_masked.iter_mut().find(|(id, _)| *id == node) {
            Some((_, count)) => *count += fully_masked,
            None if fully_masked > 0 => self.fully_masked.push((node, fully_masked)),
            None => {}
        }
    }
}

/// For each node, whether its tensor depends on the target. A tensor that does not is the same for every target of a source.
pub(crate) fn on_target(graph: &Graph) -> Vec<bool> {
    let mut on_target = vec![false; graph.nodes().len()];
    for (i, node) in graph.nodes().iter().enumerate() {
        on_target[i] = node.op.facets().reads == Some(Side::Target)
            || node.inputs.iter().any(|id| on_target[id.index()]);
    }
    on_target
}

/// Whether a step within the attention that ends in a node is computed.
fn has_computed_steps(graph: &Graph, end: &Node, computed: &[bool]) -> bool {
    let mut steps: Vec<NodeId> = end.inputs.clone();
    while let Some(step) = steps.pop() {
        if graph.node(step).op.facets().within_attention {
            if computed[step.index()] {
                return true;
            }
            steps.extend(&graph.node(step).inputs);
        }
    }
    false
}

/// Checks that tensors of another run can be given and have the shapes of this input.
pub(crate) fn check_known(graph: &Graph, sizes: &Sizes, known: &[(NodeId, Tensor)]) -> Result<(), RunError> {
    for (at, tensor) in known {
        let node = graph.node(*at);
        let refuse = |found: String, expected: String, help: &str| RunError::Input {
            place: node.path.to_string(),
            found,
            expected,
            remedy: help.into(),
        };
        if !node.op.facets().can_be_given {
            let expected = "a tensor within an attention cannot be given".to_owned();
            let help = "give a tensor before it, such as the projection that it is split from";
            return Err(refuse(format!("a tensor of {}", node.op.facets().name), expected, help));
        }
        let shape = shape_of(sizes, node)?;
        if tensor.shape() != shape {
            let expected = format!("this input needs {shape:?}");
            let help = "give the tensor of a run on the same input";
            return Err(refuse(format!("a tensor of {:?}", tensor.shape()), expected, help));
        }
    }
    Ok(())
}
