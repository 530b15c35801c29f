//! A run for programs, and what is written beside its tensors.

use attnscope_graph::{NodeId, Snapshot, snapshot_numbers};
use attnscope_render::json;
use attnscope_render::trace::{AttentionMap, measures_json, stats_json};
use attnscope_run::trace::TRACE_SCHEMA;
use serde_json::{Value, json};

use super::Ran;
use super::collect::Collect;
use super::picked::Picked;
use attnscope::Failure;
use attnscope::answer::InputTokens;

impl Ran<'_> {
    fn node_json(&self, id: NodeId) -> Value {
        let graph = &self.ready.model.graph;
        let node = graph.node(id);
        let inputs: Vec<&str> = node.inputs.iter().map(|&i| graph.node(i).path.as_str()).collect();
        json!({
            "path": node.path.as_str(),
            "op": node.op.name(),
            "inputs": inputs,
            "dims": self.dims(&node.dims),
            "shape": self.sizes.shape(&node.dims),
            "snapshots": snapshot_numbers(graph, id),
        })
    }

    /// `trace.json`.
    pub(super) fn about(&self, sink: &Collect) -> Result<Value, Failure> {
        let checkpoint = &self.ready.opened.checkpoint;
        let files: Vec<Value> = checkpoint
            .files()
            .zip(checkpoint.sha256()?)
            .map(|((path, bytes), sha256)| json!({ "name": path.display().to_string(), "bytes": bytes, "sha256": sha256 }))
            .collect();
        let saved = |id: &NodeId| match (&self.trace.layer, &self.trace.snapshots) {
            (None, None) => true,
            _ => self.picked.nodes().contains(id),
        };
        let node = |(id, _): (NodeId, &attnscope_graph::Node)| {
            let mut node = self.node_json(id);
            node["saved"] = json!(saved(&id) && sink.stats.contains_key(&id));
            node
        };
        Ok(json!({
            "schema": TRACE_SCHEMA,
            "model": self.ready.opened.name,
            "files": files,
            "family": self.ready.model.family.id,
            "precision": if self.trace.reference { "f64" } else { "f32" },
            "wiring": self.ready.model.wiring,
            "heads": attnscope_graph::Stack::ALL.map(|s| self.sizes.get(attnscope_graph::Dim::Heads(s))),
            "tokens": InputTokens::of(self.ready, self.input, self.generated),
            "nodes": self.ready.model.graph.iter().map(node).collect::<Vec<_>>(),
            "blind": self.blind_json(),
        }))
    }

    /// Attentions with queries that may see nothing.
    fn blind_json(&self) -> Value {
        let path = |id: NodeId| self.ready.model.graph.node(id).path.as_str();
        self.blind.iter().map(|&(id, rows)| json!({ "node": path(id), "rows": rows })).collect()
    }

    pub(super) fn json(&self, sink: &Collect) -> Value {
        let graph = &self.ready.model.graph;
        let nodes = |id: NodeId| {
            let mut node = self.node_json(id);
            node["stats"] = sink.stats.get(&id).map(stats_json).unwrap_or(Value::Null);
            if let (true, Some(kept)) = (self.trace.payload, sink.kept.get(&id)) {
                node["values"] = json!(kept.values);
            }
            node
        };
        let all: Vec<NodeId> = match self.picked {
            Picked::Nodes(nodes) => nodes.clone(),
            Picked::Walk(_) => graph.iter().map(|(id, _)| id).collect(),
        };
        let mut value = json!({
            "schema": json::SCHEMA,
            "model": self.ready.opened.name,
            "family": self.ready.model.family.id,
            "wiring": self.ready.model.wiring,
            "tokens": InputTokens::of(self.ready, self.input, self.generated),
            "nodes": all.into_iter().map(nodes).collect::<Vec<_>>(),
        });
        if let Picked::Walk(walk) = self.picked {
            value["snapshots"] = walk.iter().map(|s| self.snapshot_json(sink, s)).collect();
        }
        value["blind"] = self.blind_json();
        if self.trace.is_whole_walk() {
            let cross = |c: &AttentionMap| {
                let heads: Vec<Value> =
                    c.heads.iter().enumerate().map(|(h, m)| measures_json(h, m)).collect();
                json!({ "node": c.path, "row": self.trace.row, "heads": heads })
            };
            let has_cross = self.ready.model.architecture.has_cross_attention();
            let key = if has_cross { "cross_attention" } else { "self_attention" };
            value[key] = self.maps(sink).iter().map(cross).collect();
        }
        value
    }

    fn snapshot_json(&self, sink: &Collect, snapshot: &Snapshot) -> Value {
        let graph = &self.ready.model.graph;
        let shown = self.snapshot_values(sink, snapshot);
        let beside: Vec<&str> =
            snapshot.view.nodes().iter().skip(1).map(|&id| graph.node(id).path.as_str()).collect();
        let mut value = json!({
            "number": snapshot.number,
            "node": snapshot.view.path(graph),
            "beside": beside,
            "what": snapshot.what,
            "dims": self.dims(&snapshot.view.dims(graph)),
            "shape": shown.as_ref().map(|s| s.shape.clone()),
            "stats": shown.as_ref().map(|s| stats_json(&s.stats)),
            "computed_before": self.computed_before(snapshot),
        });
        if let (true, Some(shown)) = (self.trace.payload, shown) {
            value["values"] = json!(shown.values);
        }
        value
    }
}
