//! What is done with each tensor of a run: measured, kept, written.

use std::collections::{BTreeMap, HashMap};

use attnscope_checkpoint::Stats;
use attnscope_graph::{Graph, NodeId, Side, Stack};
use attnscope_run::trace::TraceWriter;
use attnscope_run::{
    CheckedInput, Input as RunInput, Prepared, Rows, RunError, Sink, SourceTensors, Tensor, Values,
};

use crate::failure::{Argument, Failure};
use crate::input::ResolvedInput;
use crate::ready::Ready;
use crate::report::TensorWatch;

/// How a tensor is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorUse {
    /// Statistics are enough.
    Measure,
    /// The values themselves are shown.
    Keep,
    /// They are shown where they take at most so many bytes.
    KeepUpTo(u64),
}

/// Measures, keeps and writes tensors as they are made.
#[derive(Debug)]
pub(crate) struct Collect {
    uses: HashMap<NodeId, TensorUse>,
    pub(crate) stats: BTreeMap<NodeId, Stats>,
    pub(crate) kept: BTreeMap<NodeId, Tensor>,
    pub(crate) writer: Option<TraceWriter>,
    pub(crate) watch: Option<TensorWatch>,
}

/// A run on a resolved input.
#[derive(Debug)]
pub(crate) struct ResolvedRun {
    /// What it read.
    pub(crate) input: CheckedInput,
    /// Whether the model generated the target because none was given.
    pub(crate) generated: bool,
    /// The attentions with fully masked queries, and how many.
    pub(crate) fully_masked: Vec<(NodeId, usize)>,
}

impl Collect {
    pub(crate) fn new(uses: HashMap<NodeId, TensorUse>) -> Self {
        Self { uses, stats: BTreeMap::new(), kept: BTreeMap::new(), writer: None, watch: None }
    }

    /// Uses a tensor in this way where it is not kept already.
    pub(crate) fn use_also(&mut self, node: NodeId, tensor_use: TensorUse) {
        let known = self.uses.entry(node).or_insert(tensor_use);
        if *known == TensorUse::Measure {
            *known = tensor_use;
        }
    }

    /// Runs a model. Returns the attentions with fully masked queries, and how many.
    pub(crate) fn run(
        &mut self,
        prepared: &dyn Prepared,
        input: &CheckedInput,
    ) -> Result<Vec<(NodeId, usize)>, Failure> {
        Ok(prepared.run(input, self)?.fully_masked)
    }

    /// Runs a model on its input, and generates the target where none was given. The source is run first, so that the encoder
    /// runs only once.
    pub(crate) fn run_given(
        &mut self,
        ready: &Ready<'_>,
        given: ResolvedInput,
    ) -> Result<ResolvedRun, Failure> {
        let source = match given {
            ResolvedInput::Whole(input) => {
                self.tell_watch(&[Side::Source, Side::Target].map(|side| (side, input.rows(side))));
                let input = CheckedInput::new(ready.model, input)?;
                let fully_masked = self.run(&*ready.prepared, &input)?;
                return Ok(ResolvedRun { input, generated: false, fully_masked });
            }
            ResolvedInput::Source(source) => source,
        };
        let mut session = ready.session();
        let input = RunInput::of(Side::Source, source.clone());
        self.tell_watch(&[(Side::Source, input.rows(Side::Source))]);
        let input = CheckedInput::to_decode(ready.model, input)?;
        let (tensors, report) = SourceTensors::compute(&mut *session, &input, self)?;
        let target = ready.generated_target_in(&mut *session, &source, Some(&tensors))?;
        let input = RunInput::pair(source, target);
        self.tell_watch(&[(Side::Target, input.rows(Side::Target))]);
        let input = CheckedInput::new(ready.model, input)?;
        let rest = tensors.run_after(&mut *session, &input, self)?;
        let fully_masked = [report.fully_masked, rest.fully_masked].concat();
        Ok(ResolvedRun { input, generated: true, fully_masked })
    }

    /// Tells whoever draws attentions which positions are tokens.
    fn tell_watch(&mut self, sides: &[(Side, Option<&Rows>)]) {
        let Some(watch) = &mut self.watch else { return };
        for (side, rows) in sides {
            if let Some(rows) = rows {
                watch.reads(*side, rows);
            }
        }
    }

    /// Whether a tensor of so many bytes is kept.
    fn keeps(&self, node: NodeId, bytes: u64) -> bool {
        match self.uses.get(&node) {
            Some(TensorUse::Keep) => true,
            Some(TensorUse::KeepUpTo(most)) => bytes <= *most,
            Some(TensorUse::Measure) | None => false,
        }
    }
}

impl Sink for Collect {
    fn wants(&self, node: NodeId) -> bool {
        self.uses.contains_key(&node) || self.writer.as_ref().is_some_and(|w| w.wants(node))
    }

    fn held(&self, node: NodeId, own: u64) -> u64 {
        if self.keeps(node, own) { own } else { 0 }
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        let stats = match tensor.values() {
            Values::F32(values) => Stats::of_f32(values),
            Values::F64(values) => Stats::of_f64(values),
        };
        self.stats.insert(node, stats);
        if let Some(watch) = &mut self.watch {
            watch.put(node, tensor, &stats);
        }
        if self.keeps(node, bytes_of(tensor)) {
            self.kept.insert(node, tensor.clone());
        }
        self.writer.as_mut().map_or(Ok(()), |writer| writer.put(node, tensor))
    }
}

/// What the values of a tensor take in memory.
fn bytes_of(tensor: &Tensor) -> u64 {
    let each = match tensor.values() {
        Values::F32(_) => size_of::<f32>(),
        Values::F64(_) => size_of::<f64>(),
    };
    (tensor.len() * each) as u64
}

/// Refuses a layer that neither stack has. If only one has it, the walk says what is missing.
pub(crate) fn check_layer_index(graph: &Graph, index: usize) -> Result<(), Failure> {
    // A classifier without a stack has one walk, whatever the layer.
    if index == 0 && graph.has_classifier() {
        return Ok(());
    }
    if Stack::ALL.iter().any(|&stack| index < graph.layers(stack)) {
        return Ok(());
    }
    let layers = Stack::ALL.map(|s| format!("{} {}", graph.layers(s), s.name()));
    let error = format!("the model has {} layers", layers.join(" and "));
    Err(Failure::new(error, "layers are counted from 0").about(Argument::LayerIndex(index)))
}
