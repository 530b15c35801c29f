//! Seven usual questions about an encoder-decoder, answered for the given model.

use crate::answer::Page;
use crate::figures::number;
use attnscope_graph::{Dim, Op, Stack};

use super::concept::{mask_rows, output, row_sums};
use super::{Concept, Subject};

pub(super) const QUESTIONS: &[Concept] = &[
    Concept {
        id: "q1",
        title: "what do the dimensions mean at each stage?",
        of_two_stacks: true,
        tell: dimensions,
    },
    Concept {
        id: "q2",
        title: "why do q, k and v agree in width, and how do heads split it?",
        of_two_stacks: true,
        tell: widths,
    },
    Concept {
        id: "q3",
        title: "what are score matrices, and when are they square?",
        of_two_stacks: true,
        tell: scores,
    },
    Concept { id: "q4", title: "why and how does the decoder mask?", of_two_stacks: true, tell: mask },
    Concept { id: "q5", title: "how do residuals and norms keep shapes?", of_two_stacks: true, tell: shapes },
    Concept { id: "q6", title: "why does d_model stay constant?", of_two_stacks: true, tell: constant },
    Concept {
        id: "q7",
        title: "how does the projection reach the vocabulary?",
        of_two_stacks: true,
        tell: output,
    },
];

/// The stages of a pass that have a shape of their own.
const STAGES: [&str; 11] = [
    "src.ids",
    "audio.mel",
    "src.embed_pos",
    "encoder.0.self_attn.q",
    "encoder.0.self_attn.q_heads",
    "encoder.0.self_attn.scores",
    "encoder.0.ffn.hidden",
    "encoder.out",
    "decoder.0.cross_attn.scores",
    "decoder.out",
    "logits",
];

fn dimensions(subject: &Subject<'_>, page: &mut Page) {
    let stage = |path: &str| {
        let node = subject.find(path)?;
        let meaning = |d: &Dim| d.meaning().split(',').next().unwrap_or_default().to_owned();
        let meant = node.dims.iter().map(meaning).collect::<Vec<_>>().join(" × ");
        Some(vec![path.to_owned(), subject.letters(&node.dims), subject.shape(&node.dims), meant])
    };
    page.table(&["stage", "dims", "shape", "meaning"], STAGES.into_iter().filter_map(stage).collect());
    page.words(
        "The batch is first and never changes. From the embeddings on, lengths change once, where the decoder takes \
         over from the encoder, and the last dimension is d_model everywhere but inside a sublayer, where it is cut \
         into heads or widened to d_ff, and at the end, where it becomes the vocabulary.",
    );
}

fn widths(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "A score is a dot product of a query and a key: it exists only if both have the same width. Values need not \
         share it, but their heads are put side by side and projected back to d_model, so models give them the same.",
    );
    for stack in Stack::ALL {
        let [heads, head, inner] =
            [Dim::Heads(stack), Dim::Head(stack), Dim::Inner(stack)].map(|d| subject.size(d));
        page.formula(format!("{}: {inner} = {heads} heads × {head}", stack.name()));
    }
    let mut rows = Vec::new();
    for attention in subject.attentions() {
        let shapes = ["q", "k", "v", "q_heads", "k_heads", "v_heads"]
            .map(|leaf| subject.shape_of(&format!("{attention}.{leaf}")));
        rows.push([vec![attention], shapes.to_vec()].concat());
    }
    page.table(&["attention", "q", "k", "v", "q_heads", "k_heads", "v_heads"], rows);
}

fn scores(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "Row t, column s of a score matrix says how well query t fits key s. In self-attention queries and keys \
         come from the same sequence: as many queries as keys, a square. In cross-attention queries come from the \
         target and keys from the source: as many rows as target positions, as many columns as source positions, \
         square only by accident.",
    );
    let row = |attention: String| {
        let path = format!("{attention}.scores");
        let dims = subject.find(&path).map(|n| n.dims.clone()).unwrap_or_default();
        let square = match dims[..] {
            [_, _, a, b] if a == b => "always square",
            [_, _, a, b]
                if subject.sizes.get(a).is_some() && subject.sizes.get(a) == subject.sizes.get(b) =>
            {
                "square by accident"
            }
            _ => "not square",
        };
        vec![path, subject.letters(&dims), subject.shape(&dims), square.to_owned()]
    };
    let rows = subject.attentions().into_iter().map(row).collect();
    page.table(&["scores", "dims", "shape", ""], rows);
}

fn mask(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "The decoder is trained on whole sentences at once. Without a mask, position t would read token t+1, which \
         is the one it must predict, and learn to copy. −∞ is added to the scores of later keys before the softmax, \
         so that their weight is exactly 0.",
    );
    page.table(&["attention", "hides", "shape", "#visible", "#masked"], mask_rows(subject));
    let path = "decoder.0.self_attn.weights";
    if let (Some(masked), Some((least, most))) = (weight_on_masked(subject), row_sums(subject, path)) {
        page.words(format!(
            "On this input, in {path}: the largest weight on a masked key is {masked}; every row adds up to between \
             {least:.6} and {most:.6}."
        ));
    }
    page.words(
        "`attnscope masks` proves it: it changes later tokens and shows that earlier outputs do not move.",
    );
}

/// The largest weight of the decoder's first self-attention on a key that its mask hides.
fn weight_on_masked(subject: &Subject<'_>) -> Option<f64> {
    let (mask, weights) =
        (subject.kept("decoder.0.self_attn.mask")?, subject.kept("decoder.0.self_attn.weights")?);
    let [_, heads, queries, keys] = weights.shape[..] else { return None };
    let cells = queries * keys;
    // The mask is [batch, 1, query, key]: the same for every head.
    let of_cell = |i: usize| mask.values.get(i / (heads * cells) * cells + i % cells).copied();
    let masked = |(i, &w): (usize, &f64)| of_cell(i).filter(|&m| m != 0.0).map(|_| w);
    Some(weights.values.iter().enumerate().filter_map(masked).fold(0.0, f64::max))
}

fn shapes(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "A residual adds two tensors cell by cell, so a sublayer must return a tensor of the same shape. A norm \
         rescales the features of each position by numbers computed from that position alone: none is dropped or \
         moved. It normalises over the features of a position, not over positions or the batch.",
    );
    let graph = subject.graph();
    let mut rows = Vec::new();
    for node in graph.nodes() {
        let first_layer = node.path.layer().is_some_and(|(_, n)| n == 0);
        if !first_layer || !matches!(node.op, Op::Residual { .. } | Op::Norm { .. }) {
            continue;
        }
        let inputs: Vec<String> = node.inputs.iter().map(|&i| subject.shape(&graph.node(i).dims)).collect();
        let std = subject.stats(node.path.as_str()).map_or_else(|| "not run".to_owned(), |s| number(s.std));
        rows.push(vec![node.path.to_string(), inputs.join(" + "), subject.shape(&node.dims), std]);
    }
    page.table(&["node", "in", "out", "#standard deviation"], rows);
}

fn constant(subject: &Subject<'_>, page: &mut Page) {
    let wide = as_wide_as_the_stream(subject);
    let total: usize = wide.iter().map(|(_, n)| n).sum();
    let kinds: Vec<String> = wide.iter().map(|(what, n)| format!("{n} {what}")).collect();
    page.words(format!(
        "Every layer adds to the stream it was given, and a sum needs equal widths: of the {} tensors of this model, \
         {total} are d_model = {} wide at the end ({}). Wider or narrower tensors exist only inside a sublayer, and \
         its last projection maps back to d_model.",
        subject.graph().nodes().len(),
        subject.size(Dim::Model),
        kinds.join(", ")
    ));
    let mut rows = Vec::new();
    for (what, path) in [
        ("embeddings", "src.embed"),
        ("attention, heads side by side", "encoder.0.self_attn.context"),
        ("attention, projected back", "encoder.0.self_attn.out"),
        ("feed-forward, widened", "encoder.0.ffn.hidden"),
        ("feed-forward, projected back", "encoder.0.ffn.out"),
        ("the encoder's result", "encoder.out"),
        ("the decoder's result", "decoder.out"),
    ] {
        rows.push(vec![what.to_owned(), path.to_owned(), subject.shape_of(path)]);
    }
    page.table(&["what", "node", "shape"], rows);
    page.words(format!(
        "It also allows layers to be stacked, and {}.",
        match subject.model.wiring.tied_output {
            true => "one table to be both embedding and output projection, as here",
            false => "one table to be both embedding and output projection, although here they are two",
        }
    ));
}

/// The tensors whose last dimension is as wide as d_model, by what that dimension is.
fn as_wide_as_the_stream(subject: &Subject<'_>) -> Vec<(&'static str, usize)> {
    let width = subject.sizes.get(Dim::Model);
    let mut counts = vec![("of the stream", 0)];
    for &dim in subject.graph().nodes().iter().filter_map(|node| node.dims.last()) {
        let what = match dim {
            Dim::Model => "of the stream",
            Dim::Inner(_) => "with an attention's heads side by side",
            Dim::Head(_) => "within a head",
            Dim::FeedForward(_) => "within a feed-forward",
            Dim::Vocab(_) => "over the vocabulary",
            // A sentence whose length equals d_model is an accident of the input.
            _ => continue,
        };
        if dim != Dim::Model && (width.is_none() || subject.sizes.get(dim) != width) {
            continue;
        }
        match counts.iter_mut().find(|(known, _)| *known == what) {
            Some((_, n)) => *n += 1,
            None => counts.push((what, 1)),
        }
    }
    counts
}
