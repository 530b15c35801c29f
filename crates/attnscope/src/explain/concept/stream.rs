//! Ideas about what flows from embeddings to logits.

use crate::answer::Page;
use crate::figures::{number, thousands};
use attnscope_graph::{
    Dim, EmbeddingScale, EntryStep, LayerStep, LogitScale, Node, NormKind, NormPlace, Op, Positions, Role,
    Side, Stack, words,
};

use super::super::Subject;
use crate::ready::Token;

pub(super) fn residual(subject: &Subject<'_>, page: &mut Page) {
    let wiring = &subject.model.wiring;
    let formula = match wiring.norm_place {
        NormPlace::Pre => "x ← x + sublayer(norm(x))",
        NormPlace::Post => "x ← norm(x + sublayer(x))",
        NormPlace::Both => "x ← x + norm(sublayer(norm(x)))",
    };
    page.formula(formula);
    if wiring.parallel_residual {
        page.words("Attention and feed-forward of a layer both read the stream before the layer; both are added to it.");
    }
    let width = subject.size(Dim::Model);
    page.words(format!(
        "A sublayer does not replace the stream, it adds to it: both are {width} wide, and that is why d_model never \
         changes. {}",
        way_back(subject)
    ));
    let norm = match wiring.norm {
        NormKind::Layer => "subtracts the mean of a position's features, divides by their standard deviation",
        NormKind::Rms => {
            "divides a position's features by their root mean square, without subtracting a mean"
        }
    };
    let bias = if wiring.biases.norm { ", and adds a learned bias" } else { "; it has no bias" };
    page.words(format!(
        "The norm works on each position by itself, over its {width} features: it {norm}, multiplies by a learned \
         gain{bias}. It does not mix positions, sentences or features of other positions. eps is {:e}.",
        wiring.norm_eps
    ));
    if wiring.residual_gain != 1.0 {
        page.words(format!("The residual scale of attention is {}.", wiring.residual_gain));
    }
    let rows = stream_rows(subject);
    if !rows.is_empty() {
        page.words("The stream on this input, layer by layer:");
        page.table(&["node", "shape", "#standard deviation"], rows);
    }
}

/// The norms on the path of gradients from the last layer to the embeddings.
fn way_back(subject: &Subject<'_>) -> String {
    let norms = |stack: Stack| {
        let graph = subject.graph();
        let of_stack = |node: &&Node| node.path.layer().is_some_and(|(s, _)| s == stack);
        graph.nodes().iter().filter(of_stack).filter(|n| matches!(n.op, Op::Norm { .. })).count()
    };
    let [encoder, decoder] = Stack::ALL.map(norms);
    match subject.model.wiring.norm_place {
        NormPlace::Pre | NormPlace::Both => {
            "Norms come before the sublayers, not between the sums: along the residual stream, gradients pass only \
                           through additions."
                .to_owned()
        }
        NormPlace::Post => format!(
            "Every sum is normed, so gradients pass through {decoder} norms in the decoder and {encoder} in the \
             encoder. Deep models of this kind need a warm-up of the learning rate."
        ),
    }
}

/// The stream before and after every layer.
fn stream_rows(subject: &Subject<'_>) -> Vec<Vec<String>> {
    let mut roles = Vec::new();
    for stack in Stack::ALL {
        roles.push(Role::Entry(stack.side(), EntryStep::EmbedPos));
        let layers = 0..subject.graph().layers(stack);
        roles.extend(layers.map(|n| Role::Layer(stack, n, LayerStep::Out)));
        roles.push(Role::StackOut(stack));
    }
    measured(subject, roles)
}

/// The shape and the spread of tensors that were measured.
fn measured(subject: &Subject<'_>, roles: impl IntoIterator<Item = Role>) -> Vec<Vec<String>> {
    let row = |role: Role| {
        let stats = subject.stats(role)?;
        Some(vec![role.to_string(), subject.shape_of(role), number(stats.std)])
    };
    roles.into_iter().filter_map(row).collect()
}

pub(super) fn positions(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "Attention sees a set: without positions, a sentence with its tokens in another order would give the same \
         weights, with their rows and columns in that other order. So the position of each token must be encoded.",
    );
    let wiring = &subject.model.wiring;
    for side in subject.model.architecture.sides() {
        let rows = subject.sizes.get(Dim::Positions(side));
        let how = match wiring.positions(side) {
            Positions::Table => match rows {
                Some(rows) => format!("a table of {rows} learned or stored vectors, one per position"),
                None => "a table of vectors, one per position".to_owned(),
            },
            Positions::SinusoidHalves => {
                "sines in the first half of the width, cosines in the second".to_owned()
            }
            Positions::SinusoidInterleaved => "sines and cosines alternating".to_owned(),
            Positions::SinusoidFairseq => {
                "sines in the first half, cosines in the second, as fairseq spaces them".to_owned()
            }
            Positions::Rotary => {
                "nothing is added; pairs of features of queries and keys are rotated by their position"
                    .to_owned()
            }
            Positions::None if wiring.relative_bias => {
                "nothing is added; distances enter as a bias on the scores".to_owned()
            }
            Positions::None => "nothing is added".to_owned(),
        };
        page.words(format!("{}: {how}.", capital(side.word())));
    }
    if wiring.positions(Side::Source).is_sinusoid() || wiring.positions(Side::Target).is_sinusoid() {
        let sides = [Side::Source, Side::Target];
        let fairseq = sides.iter().any(|&s| wiring.positions(s) == Positions::SinusoidFairseq);
        let width = subject.size(Dim::Model);
        page.formula(match fairseq {
            true => format!("angle of frequency j at position p = p / 10000^(j/({width}/2 − 1))"),
            false => format!("angle of frequency j at position p = p / 10000^(2j/{width})"),
        });
    }
    if wiring.position_offset > 0 {
        page.words(format!(
            "Position 0 takes row {}: the rows before it are never used.",
            wiring.position_offset
        ));
    }
    if wiring.embedding_scale == EmbeddingScale::SqrtDModel {
        page.words(format!(
            "Embeddings are multiplied by √{} before positions are added, so that positions do not dominate them.",
            subject.size(Dim::Model)
        ));
    }
    let steps = [EntryStep::Embed, EntryStep::Positions, EntryStep::EmbedPos];
    let of_side = |side| steps.map(|step| Role::Entry(side, step));
    let rows = measured(subject, [Side::Source, Side::Target].into_iter().flat_map(of_side));
    if !rows.is_empty() {
        page.table(&["node", "shape", "#standard deviation"], rows);
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

pub(super) fn forcing(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "In training and in a trace the decoder reads the whole target at once, shifted by one: at each position it \
         reads the tokens so far and predicts the next. The causal mask hides the answer from it. In generation it \
         reads its own tokens, one at a time; the numbers are the same.",
    );
    let causal = subject.graph().is_causal(Stack::Decoder);
    let shift = subject.model.shifts_target();
    page.facts([
        (
            "causal mask",
            Some(if causal { "on" } else { "off: a position can read its own answer" }.to_owned()),
        ),
        (
            "shift",
            Some(
                if shift { "on" } else { "off: a position reads the token that it should predict" }
                    .to_owned(),
            ),
        ),
    ]);
    let (Some(read), best) = (subject.tokens(Side::Target), best_tokens(subject)) else { return };
    let row = |(t, token): (usize, &Token)| {
        let next = read.get(t + 1).map_or_else(|| "(the end)".to_owned(), Token::label);
        let (best, share) = best.get(t).cloned().unwrap_or_default();
        vec![t.to_string(), token.label(), next, best, share]
    };
    page.table(
        &["#position", "reads", "comes next", "the model's own choice", "#probability"],
        read.iter().enumerate().map(row).collect(),
    );
}

/// The most likely token at each position of the first row, with its probability.
fn best_tokens(subject: &Subject<'_>) -> Vec<(String, String)> {
    let (Some(logits), Some(run)) = (subject.kept(Role::Logits), &subject.run) else { return Vec::new() };
    let Some(&vocabulary) = logits.shape.last() else { return Vec::new() };
    let positions = logits.shape.get(1).copied().unwrap_or(0);
    let of_row = |row: &[f64]| {
        ranked(row).first().map(|&(id, p)| (piece(run.ready, id), format!("{p:.3}"))).unwrap_or_default()
    };
    logits.values.chunks(vocabulary.max(1)).take(positions).map(of_row).collect()
}

pub(super) fn piece(ready: &crate::ready::Ready<'_>, id: usize) -> String {
    let id = u32::try_from(id).unwrap_or(u32::MAX);
    let piece = ready.tokenizer.as_ref().and_then(|t| t.piece(Side::Target, id));
    piece.unwrap_or_else(|| id.to_string())
}

/// Ids with their probabilities, the likeliest first.
fn ranked(logits: &[f64]) -> Vec<(usize, f64)> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| (x - most).exp()).sum();
    let mut all: Vec<(usize, f64)> = logits.iter().map(|x| (x - most).exp() / sum).enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// Tokens shown of a distribution.
const BEST: usize = 5;

pub(crate) fn output(subject: &Subject<'_>, page: &mut Page) {
    let wiring = &subject.model.wiring;
    let graph = subject.graph();
    let Some(logits) = graph.at(Role::Logits).map(|id| graph.node(id)) else {
        page.words("This model has no output projection: the output of its last layer is its result.");
        return;
    };
    let width = subject.size(Dim::Model);
    let vocabulary = logits.dims.last().map_or_else(String::new, |&dim| subject.size(dim));
    let formula = words::formula(logits, &subject.sizes, false);
    let reads = logits.inputs.first().map(|&id| graph.node(id));
    page.formula(format!(
        "logits = {formula}, x = {}; probability = softmax(logits)",
        reads.map_or("", |node| node.path.as_str())
    ));
    page.words(format!(
        "Each position's {width} numbers are compared with {vocabulary} rows, one per token: {} products per position. \
         The shape goes from {} to {}.",
        product_text(subject),
        reads.map_or_else(String::new, |node| subject.shape(&node.dims)),
        subject.shape(&logits.dims),
    ));
    let tied = match (graph.borrows_weights(logits), subject.model.architecture.has_cross_attention()) {
        (true, true) => "W is the target embedding table itself: input and output use the same vectors.",
        (true, false) => "W is the embedding table itself: input and output use the same vectors.",
        (false, _) => "W is a separate matrix, not the embedding table.",
    };
    let scale = match wiring.logit_scale {
        LogitScale::None => String::new(),
        LogitScale::RsqrtDModel => format!(" Before the product the stream is multiplied by 1/√{width}."),
    };
    page.words(format!("{tied}{scale}"));
    let Some((run, logits)) = subject.run.as_ref().zip(subject.kept(Role::Logits)) else { return };
    let Some(&[_, positions, vocabulary]) = logits.shape.get(..3).and_then(|s| s.first_chunk::<3>()) else {
        return;
    };
    let side = subject.model.architecture.sides().next_back().unwrap_or(Side::Target);
    let last = subject.tokens(side).map_or(positions, |t| t.len()).min(positions).saturating_sub(1);
    let row = &logits.values[last * vocabulary..(last + 1) * vocabulary];
    let line = |&(id, p): &(usize, f64)| {
        vec![piece(run.ready, id), id.to_string(), number(row[id]), format!("{p:.4}")]
    };
    page.words(match subject.model.architecture.has(Stack::Decoder) {
        true => format!("On this input, what comes after position {last}:"),
        false => format!("On this input, what stands at position {last}:"),
    });
    page.table(
        &["token", "#id", "#logit", "#probability"],
        ranked(row).iter().take(BEST).map(line).collect(),
    );
}

fn product_text(subject: &Subject<'_>) -> String {
    let sizes = [Dim::Model, Dim::Vocab(Side::Target)].map(|d| subject.sizes.get(d));
    match sizes {
        [Some(width), Some(vocabulary)] => thousands((width * vocabulary) as u64),
        _ => "D × V".to_owned(),
    }
}
