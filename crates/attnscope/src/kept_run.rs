//! What a finished run still answers: its tensors, its cells, and the folder that it can be saved to.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::{Checkpoint, Dump, DumpKind, HeldTensor};
use attnscope_diagnose::cell::{Arithmetic, needed};
use attnscope_diagnose::diff::Side;
use attnscope_graph::{Dim, NodeId, Stack};
use attnscope_run::trace::{GRADIENT, TRACE_SCHEMA, Trace as SavedTrace, TraceWriter};
use attnscope_run::{LearningSink, Sink, Tensor as RunTensor};
use serde_json::Value;

use crate::answer::{Explanation, SavedNode, Tensor, Trace, TraceFile, TracedFile, TracedNode};
use crate::explain::{Ran, Subject, arithmetic, explained_cell};
use crate::failure::Failure;
use crate::input::Input;
use crate::model::Model;

impl Trace {
    /// The model that ran.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The kept tensors by their nodes' paths.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Tensor<'_>)> {
        self.nodes.iter().filter_map(|node| Some((node.path.as_str(), self.kept(node.id)?)))
    }

    /// The kept tensor of a node.
    pub fn kept(&self, node: NodeId) -> Option<Tensor<'_>> {
        self.of_node(node, self.kept.get(&node)?)
    }

    /// The kept tensor of a node, as the run has it: a clone shares its values.
    pub fn shared(&self, node: NodeId) -> Option<&RunTensor> {
        self.kept.get(&node)
    }

    /// The kept gradient of a node's tensor, likewise.
    pub fn shared_gradient(&self, node: NodeId) -> Option<&RunTensor> {
        self.gradients.get(&node)
    }

    fn of_node<'a>(&self, node: NodeId, kept: &'a RunTensor) -> Option<Tensor<'a>> {
        let model = self.model.opened().model().ok()?;
        let dims = model.graph.node(node).dims.iter().map(|dim| dim.symbol(&model.sizes)).collect();
        Some(Tensor { dims, shape: kept.shape(), values: kept.values() })
    }

    /// A tensor by its node's path, or with `grad:` before it, its gradient.
    ///
    /// ```
    /// use attnscope::{Gradients, Input, TraceOptions};
    ///
    /// let options = TraceOptions { gradients: Gradients::OfTarget, ..TraceOptions::from("decoder.out") };
    /// let input = Input::text("Two dogs play.").with_target("Zwei Hunde spielen.");
    /// let trace = attnscope::open("demo")?.trace(&input, options)?;
    /// let (output, gradient) = (trace.tensor("decoder.out")?, trace.tensor("grad:decoder.out")?);
    /// assert_eq!(output.shape, gradient.shape);
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model has no such node, or it was not kept.
    pub fn tensor(&self, path: &str) -> Result<Tensor<'_>, Failure> {
        let found = match path.strip_prefix(GRADIENT) {
            Some(of) => self.kept_gradient(self.node(of)?),
            None => self.kept(self.node(path)?),
        };
        found.ok_or_else(|| self.not_kept(path))
    }

    /// The kept gradient of a node's tensor.
    pub fn kept_gradient(&self, node: NodeId) -> Option<Tensor<'_>> {
        self.of_node(node, self.gradients.get(&node)?)
    }

    /// The arithmetic of one cell of a tensor: an index a dimension. What the node reads must have been kept, too.
    ///
    /// ```
    /// use attnscope::Input;
    ///
    /// let trace = attnscope::open("demo")?.trace(&Input::text("Two dogs play."), "*")?;
    /// let cell = trace.explain("decoder.0.cross_attn.weights", &[0, 1, 2, 3])?;
    /// assert!(cell.agrees()); // The run stored what the arithmetic gives, up to rounding.
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model has no such node or cell, or a tensor that it needs was not kept.
    pub fn explain(&self, path: &str, index: &[usize]) -> Result<Arithmetic, Failure> {
        self.about_cell(path, |subject, node| arithmetic(subject, node, index))
    }

    /// The same for a reader, as [`Model::explain`] has it; with `every_term`, the middle of many terms is not replaced by its sum.
    ///
    /// # Errors
    /// As [`Trace::explain`].
    pub fn explain_cell(
        &self,
        path: &str,
        index: &[usize],
        every_term: bool,
    ) -> Result<Explanation, Failure> {
        self.about_cell(path, |subject, node| explained_cell(subject, node, index, every_term))
    }

    /// Asks about a cell whose node's inputs were kept.
    fn about_cell<T>(
        &self,
        path: &str,
        ask: impl FnOnce(&Subject<'_>, NodeId) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let node = self.node(path)?;
        let graph = &self.model.opened().model()?.graph;
        if let Some(&missing) = needed(graph, node).iter().find(|id| !self.kept.contains_key(id)) {
            return Err(self.not_kept(graph.node(missing).path.as_str()));
        }
        let ready = self.model.ready(&Input::default())?;
        let run = Ran {
            ready: &ready,
            input: self.input.input().clone(),
            generated: self.tokens.generated,
            precision: self.precision,
            stats: BTreeMap::new(),
            kept: self.kept.clone(),
        };
        ask(&Subject::of_run(run, self.input.sizes().clone()), node)
    }

    /// Writes what was kept to a folder that does not exist yet, as a run with [`TraceOptions::save`](crate::TraceOptions::save)
    /// does.
    ///
    /// ```
    /// use attnscope::Input;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let trace = attnscope::open("demo")?.trace(&Input::text("Two dogs play."), "*")?;
    /// trace.save(&folder.path().join("run"))?;
    /// assert!(attnscope::check_trace(&folder.path().join("run"), None, &attnscope::Limits::default())?.right);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Where there is something of that name, or it cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), Failure> {
        let opened = self.model.opened();
        let shapes: Vec<(NodeId, Vec<usize>)> =
            self.kept.iter().map(|(&id, tensor)| (id, tensor.shape().to_vec())).collect();
        let with_gradient: Vec<NodeId> =
            self.gradients.keys().copied().filter(|id| self.kept.contains_key(id)).collect();
        let graph = &opened.model()?.graph;
        let mut writer = TraceWriter::create(folder, graph, &shapes, &with_gradient, self.precision)?;
        for (&id, tensor) in &self.kept {
            writer.put(id, tensor)?;
        }
        for (&id, gradient) in self.gradients.iter().filter(|(id, _)| self.kept.contains_key(id)) {
            writer.put_gradient(id, gradient)?;
        }
        let is_kept = |id| self.kept.contains_key(&id);
        let has_gradient = |id| with_gradient.contains(&id);
        Ok(writer.finish(&self.description(traced_files(&opened.checkpoint)?, &is_kept, &has_gradient)?)?)
    }

    /// The run as a comparison reads it: what a saved trace is, in memory. Its tensors are shared.
    pub(crate) fn side(&self) -> Result<Side, Failure> {
        let name = Path::new(&self.name);
        let graph = &self.model.opened().model()?.graph;
        let kept = self.kept.iter().map(|(&id, tensor)| tensor.held(graph.node(id).path.as_str()));
        let tensors: Vec<HeldTensor> = kept.collect();
        // Its model is at hand, so that its files need no checksums.
        let about = self.description(Vec::new(), &|id| self.kept.contains_key(&id), &|_| false)?;
        let trace = SavedTrace::held(name, about, Checkpoint::held(name, tensors.clone(), Vec::new())?)?;
        Ok(Side::of_trace(trace, Dump::held(name, DumpKind::Arrays, tensors)?))
    }

    /// What `trace.json` says of the run: which tensors are beside it, and which gradients.
    pub(crate) fn description(
        &self,
        files: Vec<TracedFile>,
        saved: &dyn Fn(NodeId) -> bool,
        with_gradient: &dyn Fn(NodeId) -> bool,
    ) -> Result<Value, Failure> {
        let model = self.model.opened().model()?;
        let sizes = self.input.sizes();
        let node = |(id, _)| {
            let node = TracedNode::of(model, sizes, id);
            SavedNode {
                id,
                path: node.path,
                op: node.op,
                inputs: node.inputs,
                dims: node.dims,
                shape: node.shape,
                snapshots: node.snapshots,
                saved: saved(id),
                gradient_saved: with_gradient(id),
            }
        };
        let file = TraceFile {
            schema: TRACE_SCHEMA,
            model: self.name.clone(),
            files,
            family: self.family,
            precision: self.precision.name(),
            wiring: self.wiring.clone(),
            heads: Stack::ALL.map(|stack| sizes.get(Dim::Heads(stack))),
            tokens: self.tokens.clone(),
            nodes: model.graph.iter().map(node).collect(),
            fully_masked: self.fully_masked.clone(),
            loss: self.loss,
        };
        serde_json::to_value(&file)
            .map_err(|e| Failure::new(format!("trace.json could not be written: {e}"), "please report this"))
    }

    fn node(&self, path: &str) -> Result<NodeId, Failure> {
        self.model.opened().model()?.graph.find(path).ok_or_else(|| {
            Failure::new(
                format!("{}: there is no node {path}", self.name),
                "the nodes of the model's graph have the names that a flow shows",
            )
        })
    }

    fn not_kept(&self, path: &str) -> Failure {
        Failure::new(
            format!("{}: {path} was not kept", self.name),
            "trace again with a selector that picks it",
        )
    }
}

/// The model's files, with their checksums.
pub(crate) fn traced_files(checkpoint: &Checkpoint) -> Result<Vec<TracedFile>, Failure> {
    let file = |((path, bytes), sha256): ((&Path, u64), String)| TracedFile {
        name: path.display().to_string(),
        bytes,
        sha256,
    };
    Ok(checkpoint.files().zip(checkpoint.sha256()?).map(file).collect())
}
