//! Seven usual questions about an encoder-decoder, answered for the given model.

use crate::answer::Page;
use crate::figures::number;
use attnscope_graph::{
    AttentionKind, AttentionPlace, AttentionStep, AudioStep, Dim, EntryStep, FeedForwardStep, LayerStep, Op,
    Role, Side, Stack,
};

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

/// The first self-attention of a stack.
const fn first(stack: Stack) -> AttentionPlace {
    AttentionPlace { stack, layer: 0, kind: AttentionKind::SelfAttention }
}

/// A step of the encoder's first feed-forward.
fn feed_forward(step: FeedForwardStep) -> Role {
    Role::Layer(Stack::Encoder, 0, LayerStep::FeedForward(step))
}

/// The stages of a pass that have a shape of their own.
fn stages() -> [Role; 11] {
    let encoder = first(Stack::Encoder);
    let cross = AttentionPlace { kind: AttentionKind::CrossAttention, ..first(Stack::Decoder) };
    [
        Role::Entry(Side::Source, EntryStep::Ids),
        Role::Audio(AudioStep::Mel),
        Role::Entry(Side::Source, EntryStep::EmbedPos),
        encoder.step(AttentionStep::Q),
        encoder.step(AttentionStep::QHeads),
        encoder.step(AttentionStep::Scores),
        feed_forward(FeedForwardStep::Hidden),
        Role::StackOut(Stack::Encoder),
        cross.step(AttentionStep::Scores),
        Role::StackOut(Stack::Decoder),
        Role::Logits,
    ]
}

fn dimensions(subject: &Subject<'_>, page: &mut Page) {
    let stage = |role: Role| {
        let node = subject.at(role)?;
        let meaning = |d: &Dim| d.meaning().split(',').next().unwrap_or_default().to_owned();
        let meant = node.dims.iter().map(meaning).collect::<Vec<_>>().join(" × ");
        Some(vec![role.to_string(), subject.letters(&node.dims), subject.shape(&node.dims), meant])
    };
    page.table(&["stage", "dims", "shape", "meaning"], stages().into_iter().filter_map(stage).collect());
    page.words(
        "The batch is first and never changes. From the embeddings on, lengths change once, where the decoder takes \
         over from the encoder, and the last dimension is d_model everywhere but inside a sublayer, where it is cut \
         into heads or widened to d_ff, and at the end, where it becomes the vocabulary.",
    );
}

/// The projections of an attention, whole and split into heads.
const SPLIT: [AttentionStep; 6] = {
    use AttentionStep::{K, KHeads, Q, QHeads, V, VHeads};
    [Q, K, V, QHeads, KHeads, VHeads]
};

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
        let shapes = SPLIT.map(|step| subject.shape_of(attention.step(step)));
        rows.push([vec![attention.to_string()], shapes.to_vec()].concat());
    }
    let names = SPLIT.map(AttentionStep::name);
    page.table(&[&["attention"], &names[..]].concat(), rows);
}

fn scores(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "Row t, column s of a score matrix says how well query t fits key s. In self-attention queries and keys \
         come from the same sequence: as many queries as keys, a square. In cross-attention queries come from the \
         target and keys from the source: as many rows as target positions, as many columns as source positions, \
         square only by accident.",
    );
    let row = |attention: AttentionPlace| {
        let scores = attention.step(AttentionStep::Scores);
        let dims = subject.at(scores).map(|n| n.dims.clone()).unwrap_or_default();
        let square = match dims[..] {
            [_, _, a, b] if a == b => "always square",
            [_, _, a, b]
                if subject.sizes.get(a).is_some() && subject.sizes.get(a) == subject.sizes.get(b) =>
            {
                "square by accident"
            }
            _ => "not square",
        };
        vec![scores.to_string(), subject.letters(&dims), subject.shape(&dims), square.to_owned()]
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
    let weights = first(Stack::Decoder).step(AttentionStep::Weights);
    if let (Some(masked), Some((least, most))) = (weight_on_masked(subject), row_sums(subject, weights)) {
        page.words(format!(
            "On this input, in {weights}: the largest weight on a masked key is {masked}; every row adds up to between \
             {least:.6} and {most:.6}."
        ));
    }
    page.words(
        "`attnscope masks` proves it: it changes later tokens and shows that earlier outputs do not move.",
    );
}

/// The largest weight of the decoder's first self-attention on a key that its mask hides.
fn weight_on_masked(subject: &Subject<'_>) -> Option<f64> {
    let kept = |step| subject.kept(first(Stack::Decoder).step(step));
    let (mask, weights) = (kept(AttentionStep::Mask)?, kept(AttentionStep::Weights)?);
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
        let std = subject.stats(node.role).map_or_else(|| "not run".to_owned(), |s| number(s.std));
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
    let encoder = first(Stack::Encoder);
    for (what, role) in [
        ("embeddings", Role::Entry(Side::Source, EntryStep::Embed)),
        ("attention, heads side by side", encoder.step(AttentionStep::Context)),
        ("attention, projected back", encoder.step(AttentionStep::Out)),
        ("feed-forward, widened", feed_forward(FeedForwardStep::Hidden)),
        ("feed-forward, projected back", feed_forward(FeedForwardStep::Out)),
        ("the encoder's result", Role::StackOut(Stack::Encoder)),
        ("the decoder's result", Role::StackOut(Stack::Decoder)),
    ] {
        rows.push(vec![what.to_owned(), role.to_string(), subject.shape_of(role)]);
    }
    page.table(&["what", "node", "shape"], rows);
    page.words(format!(
        "It also allows layers to be stacked, and {}.",
        match subject.graph().has_tied_output() {
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
