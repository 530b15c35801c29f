//! The tensors of a source, so that the source is not computed again for a target that is known later.

use attnscope_graph::{Graph, NodeId, Side};

use crate::checked::CheckedInput;
use crate::error::RunError;
use crate::executor::{Report, Request, Session, on_target};
use crate::input::Sequence;
use crate::sink::Sink;
use crate::tensor::Tensor;

/// The tensors of a source from which everything that depends on a target can be computed.
#[derive(Debug, Clone)]
pub struct SourceTensors {
    source: Option<Sequence>,
    tensors: Vec<(NodeId, Tensor)>,
}

impl SourceTensors {
    /// Runs what does not depend on the target, which may be absent, and hands every wanted tensor to the sink.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn compute(
        session: &mut dyn Session,
        given: &CheckedInput,
        sink: &mut dyn Sink,
    ) -> Result<(Self, Report), RunError> {
        let prepared = session.prepared();
        let read = read_by_target(&prepared.model().graph);
        let mut tee = Tee { inner: sink, read: &read, tensors: Vec::new() };
        let report = session.run(&Request::new(given).source(), &mut tee)?;
        let tensors = tee.tensors;
        Ok((Self { source: given.input().sequence(Side::Source).cloned(), tensors }, report))
    }

    /// Runs the rest, and hands every wanted tensor that depends on the target to the sink.
    ///
    /// # Errors
    /// As [`Session::run`], and when the input has another source.
    pub fn run_after(
        &self,
        session: &mut dyn Session,
        input: &CheckedInput,
        sink: &mut dyn Sink,
    ) -> Result<Report, RunError> {
        if !self.is_of(input) {
            return Err(RunError::Input {
                place: "source".into(),
                found: "another source".into(),
                expected: "the tensors belong to another source".into(),
                remedy: "run the source of this input first".into(),
            });
        }
        let prepared = session.prepared();
        let of_target = on_target(&prepared.model().graph);
        session.run(&Request::new(input).target(&self.tensors), &mut OfTarget { inner: sink, of_target })
    }

    /// Whether they belong to an input's source.
    pub fn is_of(&self, input: &CheckedInput) -> bool {
        input.input().sequence(Side::Source) == self.source.as_ref()
    }

    pub(crate) fn tensors(&self) -> &[(NodeId, Tensor)] {
        &self.tensors
    }
}

/// The nodes of the source that nodes of the target read; in place of second names and steps within an attention, their inputs.
fn read_by_target(graph: &Graph) -> Vec<NodeId> {
    let of_target = on_target(graph);
    let mut reads: Vec<bool> = of_target.clone();
    let mut read = Vec::new();
    for (id, node) in graph.iter().collect::<Vec<_>>().into_iter().rev() {
        if !reads[id.index()] {
            continue;
        }
        if !of_target[id.index()] && node.op.facets().can_be_given {
            read.push(id);
        } else {
            node.inputs.iter().for_each(|input| reads[input.index()] = true);
        }
    }
    read
}

/// Keeps what is read later, and hands on what somebody else wants.
pub(crate) struct Tee<'a> {
    pub(crate) inner: &'a mut dyn Sink,
    /// What is kept.
    pub(crate) read: &'a [NodeId],
    pub(crate) tensors: Vec<(NodeId, Tensor)>,
}

impl Sink for Tee<'_> {
    fn wants(&self, node: NodeId) -> bool {
        self.read.contains(&node) || self.inner.wants(node)
    }

    fn held(&self, node: NodeId, own: u64) -> u64 {
        let kept = if self.read.contains(&node) { own } else { 0 };
        kept.saturating_add(self.inner.held(node, own))
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        if self.read.contains(&node) {
            self.tensors.push((node, tensor.clone()));
        }
        if self.inner.wants(node) { self.inner.put(node, tensor) } else { Ok(()) }
    }
}

/// Passes on what depends on the target; the rest was handed over before.
struct OfTarget<'a> {
    inner: &'a mut dyn Sink,
    of_target: Vec<bool>,
}

impl Sink for OfTarget<'_> {
    fn wants(&self, node: NodeId) -> bool {
        self.of_target[node.index()] && self.inner.wants(node)
    }

    fn held(&self, node: NodeId, own: u64) -> u64 {
        if self.of_target[node.index()] { self.inner.held(node, own) } else { 0 }
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        self.inner.put(node, tensor)
    }
}
