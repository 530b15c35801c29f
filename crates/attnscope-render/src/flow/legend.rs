//! The letters of the shapes and their numbers.

use attnscope_graph::{Dim, Model, Side, Stack};

/// A line for each letter that the model's shapes use, joined: `D = 128 d_model · H = 4 heads · …`.
pub fn legend(model: &Model) -> String {
    let dims = [
        Dim::Batch,
        Dim::Source,
        Dim::Target,
        Dim::Model,
        Dim::Heads(Stack::Encoder),
        Dim::Heads(Stack::Decoder),
        Dim::KvHeads(Stack::Encoder),
        Dim::KvHeads(Stack::Decoder),
        Dim::Head(Stack::Encoder),
        Dim::Head(Stack::Decoder),
        Dim::FeedForward(Stack::Encoder),
        Dim::FeedForward(Stack::Decoder),
        Dim::Vocab(Side::Source),
        Dim::Vocab(Side::Target),
        Dim::Types,
        Dim::RotaryPairs(Stack::Decoder),
        Dim::Mels,
        Dim::Frames,
    ];
    let used = |dim: &Dim| {
        let in_nodes = model.graph.nodes().iter().any(|n| n.dims.contains(dim));
        in_nodes || model.graph.weights().iter().any(|w| w.dims.contains(dim))
    };
    let mut parts: Vec<String> = Vec::new();
    for dim in dims.into_iter().filter(used) {
        let symbol = dim.symbol(&model.sizes);
        let meaning = dim.meaning().split(',').next().unwrap_or_default();
        let part = match (model.sizes.get(dim), dim) {
            (Some(n), _) => format!("{symbol} = {n} {meaning}"),
            (None, Dim::Heads(_) | Dim::Head(_)) => format!("{symbol} unknown {meaning}"),
            (None, _) => format!("{symbol} {meaning}"),
        };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join(" · ")
}

/// Breaks a line of parts separated by ` · ` (or ` . ` in ASCII) to a width.
pub fn fill(text: &str, width: usize) -> String {
    let separator = if text.contains(" · ") { " · " } else { " . " };
    let mut out = String::new();
    let mut column = 0;
    for part in text.split(separator) {
        let needed = unicode_width::UnicodeWidthStr::width(part);
        if column > 0 && column + 3 + needed > width {
            out.push('\n');
            column = 0;
        }
        if column > 0 {
            out.push_str(separator);
            column += 3;
        }
        out.push_str(part);
        column += needed;
    }
    out.push('\n');
    out
}
