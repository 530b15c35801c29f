//! One run of a model: its tensors measured, kept, drawn and written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use attnscope_checkpoint::Remedy;
use attnscope_graph::{Graph, NodeId, Op, Role, Sizes};
use attnscope_run::trace::{Precision, TraceWriter};
use attnscope_run::{CheckedInput, Kept, have_gradients};

use crate::answer::{ClassifiedRow, FullyMasked, InputTokens, Trace};
use crate::attention_map::{Batch, DrawnHeads, cross_weights};
use crate::collect::{Collect, ResolvedRun, TensorUse};
use crate::device::Device;
use crate::failure::{Argument, Failure};
use crate::gradients::{CollectedGradients, GradientRun, Gradients, class_names};
use crate::input::{Input, ResolvedInput};
use crate::inspect::wiring;
use crate::kept_run::traced_files;
use crate::masks::no_row;
use crate::model::Model;
use crate::note::{Note, Notes, notes_of_input};
use crate::picked::{Pick, Picked};
use crate::ready::Ready;
use crate::report::TensorWatch;
use crate::traced_nodes::FinishedRun;

/// The options of a run. A selector alone picks nodes and keeps their values.
#[derive(Debug, Clone, Default)]
pub struct TraceOptions {
    /// What is looked at: nodes, or stops of the walk.
    pub pick: Pick,
    /// Whether the values of what is picked are kept, and part of the answer's JSON and text.
    pub with_values: bool,
    /// Whether tensors are kept for the caller, whatever JSON and text have: those that are picked, or with the whole walk all.
    pub keep: bool,
    /// With the whole walk: whether every node is measured, and not only those of the walk.
    pub measure_all: bool,
    /// The row of the batch whose attention, ids and last logits are shown.
    pub row: usize,
    /// Whether the attentions among what is picked are drawn; those of the whole walk always are.
    pub maps: Maps,
    /// Which heads of an attention are drawn; their mean where nothing is said.
    pub heads: Option<DrawnHeads>,
    /// A folder to write tensors to while they are made: all, or those that are picked.
    pub save: Option<PathBuf>,
    /// Whether the gradient of each tensor is measured, kept and written where the tensor is.
    pub gradients: Gradients,
}

/// Whether attentions are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Maps {
    /// They are not.
    #[default]
    None,
    /// If some are selected.
    Picked,
    /// Yes, and it is an error if none are selected.
    Required,
}

impl From<&str> for TraceOptions {
    fn from(selector: &str) -> Self {
        Self { pick: Pick::Nodes(selector.to_owned()), with_values: true, ..Self::default() }
    }
}

/// Runs a model.
pub(crate) fn trace(
    model: &Model,
    input: &Input,
    options: &TraceOptions,
    notes: Notes,
) -> Result<Trace, Failure> {
    Ok(trace_collecting(model, input, options, notes, |_, _| ())?.0)
}

/// Runs a model. `prepare` may ask for more of its tensors than the options do, and gets what was looked at back.
pub(crate) fn trace_collecting(
    model: &Model,
    input: &Input,
    options: &TraceOptions,
    mut notes: Notes,
    prepare: impl FnOnce(&Graph, &mut Collect),
) -> Result<(Trace, Option<TensorWatch>), Failure> {
    let recognised = model.opened().model()?;
    // Invalid options are refused before weights are read.
    let picked = options.pick.of(&recognised.graph)?;
    let drawn = drawn(recognised, &picked, options)?;
    let ready = model.ready(input)?;
    let given = input.read(&ready)?;
    if options.row >= given.batch() {
        return Err(no_row(options.row, given.batch()));
    }
    let gradient_run = GradientRun::prepare(model, &ready, input, &given, &options.gradients)?;
    let has_gradient = match gradient_run {
        Some(_) => have_gradients(&recognised.graph),
        None => vec![false; recognised.graph.nodes().len()],
    };
    let mut wanted = uses(&recognised.graph, &picked, &drawn, options);
    let scores = class_scores(recognised);
    if let Some(scores) = scores.and_then(|id| wanted.get_mut(&id)) {
        *scores = TensorUse::Keep;
    }
    let mut collected = Collect::new(wanted);
    prepare(&recognised.graph, &mut collected);
    let ResolvedRun { input: checked, generated, fully_masked } = match (&options.save, model.device()) {
        (None, Device::Cpu) => {
            let ran = collected.run_given(&ready, given)?;
            notes.add(notes_of_input(&ready, ran.input.input(), ran.generated));
            ran
        }
        // The size on disk is announced before the run, and another device does not share the CPU's tensors.
        (save, device) => {
            let (given, generated) = match given {
                ResolvedInput::Whole(input) => (input, false),
                // On the CPU: the slow device is for the tensors that are shown.
                given => given.input(&model.clone().on(Device::Cpu).ready(input)?)?,
            };
            notes.add(notes_of_input(&ready, &given, generated));
            let checked = CheckedInput::new(recognised, given)?;
            if let Some(folder) = save {
                let saved = Saved { graph: &recognised.graph, picked: &picked, has_gradient: &has_gradient };
                collected.writer =
                    Some(saved.writer(folder, checked.sizes(), precision(device), &mut notes)?);
            }
            let fully_masked = collected.run(&*ready.prepared, &checked)?;
            ResolvedRun { input: checked, generated, fully_masked }
        }
    };
    let (given, sizes) = (checked.input(), checked.sizes());
    let mut of_gradients = uses(&recognised.graph, &picked, &[], options);
    of_gradients.retain(|id, _| has_gradient[id.index()]);
    let mut gradients = CollectedGradients::new(of_gradients, collected.writer.take());
    let loss = gradient_run.map(|run| run.run(&checked, &mut gradients)).transpose()?;
    let writer = gradients.writer.take();
    let run = FinishedRun {
        ready: &ready,
        input: given,
        sizes,
        picked: &picked,
        collected: &collected,
        gradients: &gradients.stats,
        row: options.row,
    };
    let path = |id: NodeId| recognised.graph.node(id).path.to_string();
    let fully_masked =
        fully_masked.into_iter().map(|(id, rows)| FullyMasked { node: path(id), rows }).collect();
    let batch = Batch { ready: &ready, input: given, row: options.row };
    let answer = Trace {
        name: model.opened().name.clone(),
        title: recognised.title(),
        family: recognised.family.id,
        wiring: wiring(recognised),
        precision: precision(model.device()),
        tokens: InputTokens::of(&ready, given, generated),
        nodes: run.nodes(),
        walk: run.walk()?,
        fully_masked,
        maps: batch.maps(&drawn, &collected.kept, options.heads.unwrap_or(DrawnHeads::Mean)),
        row: options.row,
        with_values: options.with_values,
        notes: Vec::new(),
        model: model.clone(),
        input: checked.clone(),
        kept: BTreeMap::new(),
        gradients: BTreeMap::new(),
        loss,
        classified: scores
            .and_then(|id| collected.kept.get(&id))
            .map_or_else(Vec::new, |scores| classified(&ready, scores)),
    };
    if let (Some(folder), Some(writer)) = (&options.save, writer) {
        let nodes = picked.nodes();
        let is_picked = |id: NodeId| picked.is_whole_walk() || nodes.contains(&id);
        let saved = |id| is_picked(id) && run.collected.stats.contains_key(&id);
        let with_gradient = |id| is_picked(id) && run.gradients.contains_key(&id);
        writer.finish(&answer.description(
            traced_files(&ready.opened.checkpoint)?,
            &saved,
            &with_gradient,
        )?)?;
        notes.add([Note::Saved(folder.clone())]);
    }
    let Collect { kept, watch, .. } = collected;
    Ok((Trace { kept, gradients: gradients.kept, notes: notes.all, ..answer }, watch))
}

/// The scores of a classifier that has two classes or more.
fn class_scores(model: &attnscope_graph::Model) -> Option<NodeId> {
    model.architecture.text_classifier().filter(|classifier| classifier.classes > 1)?;
    model.graph.at(Role::Logits)
}

/// What the scores of a classifier, [row, class], say.
fn classified(ready: &Ready<'_>, scores: &attnscope_run::Tensor) -> Vec<ClassifiedRow> {
    let count = scores.shape().last().copied().unwrap_or(1).max(1);
    let names = class_names(ready);
    let name = |class: usize| names.iter().find(|(n, _)| *n as usize == class).map(|(_, name)| name.clone());
    let classes: Vec<String> =
        (0..count).map(|class| name(class).unwrap_or_else(|| class.to_string())).collect();
    let values: Vec<f64> = scores.values().iter().collect();
    let row = |row: &[f64]| {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = row.iter().map(|score| (score - most).exp()).sum();
        let class = row.iter().position(|&score| score == most).unwrap_or(0);
        ClassifiedRow {
            class,
            name: name(class),
            probabilities: row.iter().map(|score| (score - most).exp() / total).collect(),
            classes: classes.clone(),
        }
    };
    values.chunks(count).map(row).collect()
}

pub(crate) fn precision(device: Device) -> Precision {
    match device {
        Device::Cpu => Precision::F32,
        Device::Reference => Precision::F64,
    }
}

/// How a run in this precision rounds.
pub(crate) fn rounding_of(precision: Precision) -> attnscope_diagnose::rounding::Precision {
    match precision {
        Precision::F32 => attnscope_diagnose::rounding::Precision::F32,
        Precision::F64 => attnscope_diagnose::rounding::Precision::F64,
    }
}

/// Tensors of a run as formulas read them.
pub(crate) fn in_f64(
    kept: &BTreeMap<NodeId, attnscope_run::Tensor>,
    wanted: &BTreeSet<NodeId>,
) -> BTreeMap<NodeId, Kept> {
    kept.iter().filter(|(id, _)| wanted.contains(id)).map(|(id, tensor)| (*id, tensor.to_f64())).collect()
}

/// What is done with each tensor.
fn uses(
    graph: &Graph,
    picked: &Picked,
    drawn: &[NodeId],
    options: &TraceOptions,
) -> HashMap<NodeId, TensorUse> {
    let of_picked = |id: NodeId| {
        let keep = options.keep || options.with_values || picked.cuts(id);
        (id, if keep { TensorUse::Keep } else { TensorUse::Measure })
    };
    let mut uses: HashMap<NodeId, TensorUse> = picked.nodes().into_iter().map(of_picked).collect();
    if (options.measure_all || options.keep) && picked.is_whole_walk() {
        let of_others = if options.keep { TensorUse::Keep } else { TensorUse::Measure };
        for (id, _) in graph.iter() {
            uses.entry(id).or_insert(of_others);
        }
    }
    uses.extend(drawn.iter().map(|&id| (id, TensorUse::Keep)));
    uses
}

/// What is written to disk.
struct Saved<'a> {
    graph: &'a Graph,
    picked: &'a Picked,
    /// Of each node, whether its gradient is written, too.
    has_gradient: &'a [bool],
}

impl Saved<'_> {
    /// Begins to write a trace, and says how large it will be.
    fn writer(
        &self,
        folder: &Path,
        sizes: &Sizes,
        precision: Precision,
        notes: &mut Notes,
    ) -> Result<TraceWriter, Failure> {
        let nodes = match self.picked.is_whole_walk() {
            true => self.graph.iter().map(|(id, _)| id).collect(),
            false => self.picked.nodes(),
        };
        let shape = |&id: &NodeId| Some((id, sizes.shape(&self.graph.node(id).dims)?));
        let planned: Vec<(NodeId, Vec<usize>)> = nodes.iter().filter_map(shape).collect();
        let with_gradient = planned.iter().map(|(id, _)| *id).filter(|id| self.has_gradient[id.index()]);
        let gradients: Vec<NodeId> = with_gradient.collect();
        let writer = TraceWriter::create(folder, self.graph, &planned, &gradients, precision)?;
        let (tensors, bytes) = (planned.len() + gradients.len(), writer.bytes());
        notes.add([Note::Saving { tensors, bytes, folder: folder.to_owned() }]);
        Ok(writer)
    }
}

/// The attentions that are drawn: with the whole walk every cross-attention, else those that were picked.
fn drawn(
    model: &attnscope_graph::Model,
    picked: &Picked,
    options: &TraceOptions,
) -> Result<Vec<NodeId>, Failure> {
    let graph = &model.graph;
    let is_weights = |id: &NodeId| matches!(graph.node(*id).op, Op::Normalise(_));
    let drawn: Vec<NodeId> = match picked.is_whole_walk() {
        true if model.architecture.has_cross_attention() => cross_weights(graph),
        // A model of one stack has no cross-attention to show: the self-attention of the layer that is walked through.
        true => picked.nodes().into_iter().filter(is_weights).collect(),
        false if options.maps == Maps::None => Vec::new(),
        false => picked.nodes().into_iter().filter(is_weights).collect(),
    };
    if drawn.is_empty() && (options.maps == Maps::Required || options.heads.is_some()) {
        return Err(Failure::new(
            "no attention is picked, so there is nothing to draw",
            Remedy::PickAttention,
        ));
    }
    if let Some(DrawnHeads::One(head)) = options.heads {
        let heads = |id: &NodeId| model.sizes.get(*graph.node(*id).dims.get(1)?);
        if let Some((id, heads)) = drawn.iter().find_map(|id| Some((id, heads(id)?)).filter(|h| head >= h.1))
        {
            let error = format!("{} has {heads} heads", graph.node(*id).path);
            return Err(Failure::new(error, "heads are counted from 0").about(Argument::Head(head)));
        }
    }
    Ok(drawn)
}
