//! The graph for programs.

use attnscope_graph::{Model, Node, Selector, Slot, WeightId};
use serde_json::{Value, json};

use crate::flow::Component;

/// The number of the schema that is described in docs/json.md.
pub const SCHEMA: u32 = 1;

/// `flow --format json`: the nodes of a component, or those of them that a selector picks.
pub fn flow(name: &str, model: &Model, component: Component, selector: Option<&Selector>) -> String {
    let picked = |n: &&Node| component.holds(model, n) && selector.is_none_or(|s| s.matches(&n.path));
    let nodes: Vec<Value> = model.graph.nodes().iter().filter(picked).map(|n| node(model, n)).collect();
    let value = json!({
        "schema": SCHEMA,
        "model": name,
        "family": model.family.id,
        "wiring": model.wiring,
        "nodes": nodes,
    });
    pretty(&value)
}

/// A value as it is written: indented, with a line break at the end.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn node(model: &Model, node: &Node) -> Value {
    let inputs: Vec<&str> = node.inputs.iter().map(|&i| model.graph.node(i).path.as_str()).collect();
    let dims: Vec<String> = node.dims.iter().map(|d| d.symbol(&model.sizes)).collect();
    let shape: Vec<Option<usize>> = node.dims.iter().map(|&d| model.sizes.get(d)).collect();
    let weights: Vec<Value> = node.weights.iter().map(|&w| weight(model, w)).collect();
    json!({
        "path": node.path.as_str(),
        "op": node.op.name(),
        "inputs": inputs,
        "dims": dims,
        "shape": shape,
        "formula": attnscope_graph::words::formula(node, &model.sizes, false),
        "what": attnscope_graph::words::sentence(node),
        "weights": weights,
    })
}

/// A weight of the graph with the tensor that it is.
pub fn weight(model: &Model, id: WeightId) -> Value {
    let path = &model.graph.weight(id).path;
    match model.binding.slot(id) {
        Slot::Bound(found) => json!({
            "path": path,
            "state": "bound",
            "tensor": model.tensors[found.tensor].name,
            "rows": found.rows.as_ref().map(|r| [r.start, r.end]),
            "dtype": model.tensors[found.tensor].dtype,
            "shape": found.shape(&model.tensors),
        }),
        Slot::Missing { name } => json!({ "path": path, "state": "missing", "tensor": name }),
        Slot::Mismatched { found, expected, shape } => json!({
            "path": path,
            "state": "mismatched",
            "tensor": model.tensors[found.tensor].name,
            "expected": expected,
            "shape": shape,
        }),
    }
}
