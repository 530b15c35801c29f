//! Ideas about the blocks of text classifiers: recurrent layers, convolutions, pools, dropout.

use attnscope_graph::{Op, words};

use super::super::Subject;
use crate::answer::Page;

pub(super) fn recurrent(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "A recurrent layer reads a text position by position and keeps a state: what it made of all positions until then. \
         In a plain one (RNN) the new state h is a tanh of the input and the old h. An LSTM has a second state c, to which \
         is only added and from which is only forgotten, so that a gradient reaches positions far back; gates between 0 \
         and 1 say how much is added, kept and shown.",
    );
    page.formula(
        "c = f × c₋₁ + i × g,  h = o × tanh(c);  i, f, o are sigmoids and g a tanh of x·W + h₋₁·U + b",
    );
    nodes(subject, page, "recurrent layer", |op| matches!(op, Op::Recur { .. }));
}

pub(super) fn convolution(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "A window slides along the positions. Each output channel has one weight for every channel at every place in the \
         window, the same wherever the window stands, so that a pattern is found anywhere; with a stride above 1 the \
         window skips positions, and fewer are left.",
    );
    page.formula(
        "y[o, t] = b[o] + Σ over channels c and taps j of w[o, c, j] × x[c, t·stride + j − padding]",
    );
    nodes(subject, page, "convolution", |op| matches!(op, Op::Conv1d { .. }));
}

pub(super) fn pooling(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "A pool makes one vector of all positions, whatever their number: the largest value of each feature (whether a \
         pattern is anywhere), their mean (how much of it there is), or one position's. A mean leaves out padding.",
    );
    nodes(subject, page, "pool", |op| matches!(op, Op::Pool { .. } | Op::LastState { .. }));
}

pub(super) fn dropout(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "While a model learns, dropout sets a share p of values to 0, others at every step, and multiplies the rest by \
         1 / (1 − p), so that their mean stays: no value can rely on one other. When the model is run, nothing is dropped. \
         Within attention and feed-forward layers it is a part of training alone, and no node: a config or a recipe has its p.",
    );
    nodes(subject, page, "node for dropout", |op| matches!(op, Op::Dropout { .. }));
}

/// Where the model has such an operation.
fn nodes(subject: &Subject<'_>, page: &mut Page, what: &str, is_one: impl Fn(&Op) -> bool) {
    let graph = subject.graph();
    let found = graph.nodes().iter().filter(|node| is_one(&node.op));
    let row = |node: &attnscope_graph::Node| {
        let read = node.inputs.first().map_or_else(String::new, |&id| subject.shape(&graph.node(id).dims));
        vec![
            node.path.to_string(),
            words::formula(node, &subject.sizes, false),
            read,
            subject.shape(&node.dims),
        ]
    };
    let rows: Vec<Vec<String>> = found.map(row).collect();
    if rows.is_empty() {
        page.words(format!("This model has no {what}."));
    } else {
        page.table(&["node", "formula", "reads", "shape"], rows);
    }
}
