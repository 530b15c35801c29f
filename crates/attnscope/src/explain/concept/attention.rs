//! Ideas about attention.

use crate::answer::Page;
use crate::figures::thousands;
use attnscope_graph::{
    AttentionKind, AttentionPlace, AttentionStep, Dim, Factor, Node, Op, Role, Side, Stack,
};
use attnscope_run::{Kept, relative_bucket};

use super::super::Subject;
use crate::attention_map::{Batch, DrawnHeads, steps};
use crate::ready::Token;

/// Where the numbers of an attention are taken from.
const CROSS: AttentionPlace =
    AttentionPlace { stack: Stack::Decoder, layer: 0, kind: AttentionKind::CrossAttention };

fn scale_of(subject: &Subject<'_>) -> Option<Factor> {
    match subject.at(CROSS.step(AttentionStep::Scores))?.op {
        Op::Scores { scale, .. } => Some(scale),
        _ => None,
    }
}

pub(super) fn scaled(subject: &Subject<'_>, page: &mut Page) {
    let width = subject.size(Dim::Head(Stack::Decoder));
    page.formula("attention(q, k, v) = softmax(q·kᵀ × scale + mask)·v");
    page.words(format!(
        "A score is a sum of {width} products, one for each of a head's features. If queries and keys are independent \
         with mean 0 and variance 1, the sum has variance {width}: the wider the head, the larger the scores, until \
         the softmax puts all weight on one key and gives no gradient to the others. Dividing by √{width} brings the variance back \
         to 1."
    ));
    match scale_of(subject) {
        Some(Factor::One) => page.words(
            "This model does not scale its scores: it was trained without a scale, its weights compensate for it, \
             and adding one would break it.",
        ),
        Some(scale) => {
            let value = scale.value(&subject.sizes).map_or_else(String::new, |v| format!(" = {v:.6}"));
            page.words(format!("This model multiplies by {}{value}.", scale.text(&subject.sizes, false)))
        }
        None => page,
    };
    let Some((with, without)) = sharpness(subject) else { return };
    page.words(format!("On this input, {CROSS}, mean over heads and queries of the strongest key's weight:"));
    let row = |name: &str, x: f64| vec![name.to_owned(), format!("{x:.3}")];
    page.table(
        &["scores", "#strongest weight"],
        vec![row("as the model has them", with), row("not scaled", without)],
    );
}

/// The mean strongest weight of a row, as it is and as it would be with the products unscaled.
fn sharpness(subject: &Subject<'_>) -> Option<(f64, f64)> {
    let factor = scale_of(subject).filter(|&f| f != Factor::One)?.value(&subject.sizes)?;
    let kept = |step| subject.kept(CROSS.step(step));
    let (scores, masked) = (kept(AttentionStep::Scores)?, kept(AttentionStep::MaskedScores)?);
    let keys = *scores.shape.last()?;
    let rows = scores.values.chunks(keys).zip(masked.values.chunks(keys));
    let peak = |gain: f64| {
        let of_row = |(scores, masked): (&[f64], &[f64])| {
            let x: Vec<f64> = scores.iter().zip(masked).map(|(s, m)| m + s * (gain - 1.0)).collect();
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            1.0 / x.iter().map(|v| (v - most).exp()).sum::<f64>()
        };
        let peaks: Vec<f64> = rows.clone().map(of_row).filter(|p| p.is_finite()).collect();
        peaks.iter().sum::<f64>() / peaks.len().max(1) as f64
    };
    Some((peak(1.0), peak(1.0 / factor)))
}

pub(super) fn heads(subject: &Subject<'_>, page: &mut Page) {
    for stack in subject.model.architecture.stacks() {
        let [heads, head, inner] =
            [Dim::Heads(stack), Dim::Head(stack), Dim::Inner(stack)].map(|d| subject.size(d));
        page.words(format!(
            "The {}'s projections are {inner} wide: {heads} heads of {head}. Head 0 owns columns 0 to {} of q, k and \
             v, the next head the next {head}, and so on.",
            stack.name(),
            subject.sizes.get(Dim::Head(stack)).map_or_else(|| "K − 1".into(), |k| k.saturating_sub(1).to_string()),
        ));
    }
    page.words(splitting(subject));
    page.words(
        "There are several softmaxes instead of one, so that a query can attend to several places at once for \
         different reasons. The output projection mixes the heads' results.",
    );
    let rows = entropy_and_peak(subject);
    if !rows.is_empty() {
        page.words(format!("What each head of {CROSS} does on this input:"));
        page.table(&["#head", "#entropy / ln S", "#peak × S", "strongest step and key"], rows);
    }
}

/// The cost of several heads compared with one head of the whole width, for the decoder's cross-attention.
fn splitting(subject: &Subject<'_>) -> String {
    let stack = Stack::Decoder;
    let [heads, head, inner] =
        [Dim::Heads(stack), Dim::Head(stack), Dim::Inner(stack)].map(|d| subject.size(d));
    let weights = subject.at(CROSS.step(AttentionStep::Weights));
    let held = match weights.and_then(|n| subject.sizes.shape(&n.dims)) {
        Some(shape) => {
            let cells: usize = shape.iter().product();
            let one = cells / shape.get(1).copied().unwrap_or(1).max(1);
            format!(" ({} weights in {CROSS} on this input, with one head {})", count(cells), count(one))
        }
        None => String::new(),
    };
    format!(
        "Splitting needs no more products: {heads} × {head} = {inner} per pair of positions, as with one head of \
         {inner}. It needs more of everything that is one number per pair: {heads} times the scores, exponentials \
         and weights to compute and to store{held}."
    )
}

fn count(n: usize) -> String {
    thousands(n as u64)
}

/// One line per head: entropy, peak, and its strongest pair of tokens. The measures are those of `trace`.
fn entropy_and_peak(subject: &Subject<'_>) -> Vec<Vec<String>> {
    let role = CROSS.step(AttentionStep::Weights);
    let (Some(run), Some(kept)) = (&subject.run, subject.kept(role)) else { return Vec::new() };
    let batch = Batch { ready: run.ready, input: &run.input, row: 0 };
    let map = subject.graph().at(role).and_then(|id| batch.map(id, run.kept.get(&id)?, DrawnHeads::Mean));
    let Some(cross) = map else { return Vec::new() };
    let row = |(h, m): (usize, &attnscope_diagnose::HeadMeasures)| {
        let entropy = m.entropy.map_or_else(|| "–".to_owned(), |e| format!("{e:.3}"));
        vec![h.to_string(), entropy, format!("{:.2}", m.peak), pair(subject, &kept, h)]
    };
    cross.heads.iter().enumerate().map(row).collect()
}

/// The largest weight of a head of the first row, by its tokens.
fn pair(subject: &Subject<'_>, kept: &Kept, head: usize) -> String {
    let [_, _, queries, keys] = kept.shape[..] else { return String::new() };
    let cells = &kept.values[head * queries * keys..(head + 1) * queries * keys];
    let (rows, columns) = (subject.row(Side::Target, 0), subject.row(Side::Source, 0));
    let is_token = |row: &Option<Vec<Token>>, at: usize| {
        row.as_ref().is_none_or(|row| row.get(at).is_some_and(|token| !token.padding))
    };
    let visible = |&(at, _): &(usize, &f64)| is_token(&rows, at / keys) && is_token(&columns, at % keys);
    let strongest = cells.iter().enumerate().filter(visible).max_by(|a, b| a.1.total_cmp(b.1));
    let Some((at, weight)) = strongest else { return String::new() };
    let steps = rows.as_deref().map(steps).unwrap_or_default();
    let step = steps.get(at / keys).cloned().unwrap_or_else(|| format!("position {}", at / keys));
    format!("{step}: {} {weight:.2}", label(subject, Side::Source, at % keys))
}

/// The token at a position of the first row.
fn label(subject: &Subject<'_>, side: Side, at: usize) -> String {
    let token = subject.row(side, 0).and_then(|tokens| tokens.get(at).map(Token::label));
    token.unwrap_or_else(|| format!("position {at}"))
}

pub(super) fn masks(subject: &Subject<'_>, page: &mut Page) {
    page.formula("masked_scores = scores + mask, mask = 0 where visible, −∞ where masked");
    page.words(
        "e^−∞ is 0: a masked key gets no weight, and the others' weights still add up to 1. Multiplying the scores by 0 \
         instead leaves e^0 = 1 for every masked key; multiplying the weights by 0 after the softmax leaves rows that \
         no longer add up to 1.",
    );
    page.table(&["attention", "hides", "shape", "#visible", "#masked"], mask_rows(subject));
    page.words(
        "A causal mask belongs to the decoder's self-attention alone. In cross-attention the whole source is known, \
         and hiding its end from early target positions is a mistake. `attnscope masks` draws them for your input \
         and proves them on the model.",
    );
}

/// A line for each attention of the first layers: what is hidden, and how many cells that is.
pub(crate) fn mask_rows(subject: &Subject<'_>) -> Vec<Vec<String>> {
    let row = |attention: AttentionPlace| {
        let mask = attention.step(AttentionStep::Mask);
        let name = attention.to_string();
        let Some(node) = subject.at(mask) else {
            return vec![name, "nothing".into(), "no mask".into(), String::new(), String::new()];
        };
        let kind = match node.op {
            Op::Mask(kind) => kind.to_string(),
            _ => String::new(),
        };
        let count = |n: Option<usize>| n.map_or_else(|| "not run".to_owned(), |n| n.to_string());
        let masked = subject.stats(mask).map(|stats| stats.inf as usize);
        let cells = subject.sizes.shape(&node.dims).map(|shape| shape.iter().product::<usize>());
        let visible = cells.zip(masked).map(|(cells, masked)| cells - masked);
        vec![name, kind, subject.shape(&node.dims), count(visible), count(masked)]
    };
    subject.attentions().into_iter().map(row).collect()
}

pub(super) fn cross(subject: &Subject<'_>, page: &mut Page) {
    page.formula("q from the decoder, k and v from encoder.out");
    page.words(
        "Each target position looks for what it needs in the source. The keys and values are computed once per \
         source and used at every step of decoding; the queries change with every generated token.",
    );
    let steps = {
        use AttentionStep::{Context, K, Q, Scores, V, Weights};
        [Q, K, V, Scores, Weights, Context]
    };
    let shape = |step: AttentionStep| {
        let role = CROSS.step(step);
        let letters = subject.at(role).map(|n| subject.letters(&n.dims)).unwrap_or_default();
        vec![role.to_string(), letters, subject.shape_of(role)]
    };
    page.table(&["node", "dims", "shape"], steps.map(shape).to_vec());
    let rows = strongest_keys(subject);
    if !rows.is_empty() {
        page.words("Where each step looks most, in the last layer, mean of its heads:");
        page.table(&["reads ⇒ predicts", "strongest source position", "#weight"], rows);
    }
    page.words(
        "Weights say where a head looks, not what the output depends on: `attnscope doctor` measures that.",
    );
}

/// For each target position of the last layer, the source position with most weight.
fn strongest_keys(subject: &Subject<'_>) -> Vec<Vec<String>> {
    let last = subject.graph().layers(Stack::Decoder).saturating_sub(1);
    let weights = AttentionPlace { layer: last, ..CROSS }.step(AttentionStep::Weights);
    let Some(kept) = subject.kept(weights) else { return Vec::new() };
    let [_, heads, queries, keys] = kept.shape[..] else { return Vec::new() };
    let targets = subject.row(Side::Target, 0).unwrap_or_default();
    let names = steps(&targets);
    let row = |t: usize| {
        let mean = |s: usize| {
            (0..heads).map(|h| kept.values[(h * queries + t) * keys + s]).sum::<f64>() / heads.max(1) as f64
        };
        let best = (0..keys).map(|s| (s, mean(s))).max_by(|a, b| a.1.total_cmp(&b.1));
        let (s, weight) = best.unwrap_or((0, f64::NAN));
        let step = names.get(t).cloned().unwrap_or_else(|| t.to_string());
        vec![step, label(subject, Side::Source, s), format!("{weight:.3}")]
    };
    let is_token = |t: &usize| targets.get(*t).is_some_and(|token| !token.padding);
    (0..queries).filter(is_token).map(row).collect()
}

/// The distances, key minus query, for which a bias is shown.
const DISTANCES: [i64; 9] = [-16, -8, -4, -1, 0, 1, 4, 8, 16];

pub(super) fn relative(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "Instead of adding positions to embeddings, a model can add to each score a number that depends on the \
         distance between query and key, learned, one per head. Small distances have a bucket each; larger ones \
         share buckets whose size grows with the logarithm of the distance.",
    );
    page.formula("masked_scores = scores + table[bucket(key − query), head] + mask");
    let bias = |node: &Node| match node.op {
        Op::RelativeBias { buckets, max_distance, .. } => Some((buckets, max_distance)),
        _ => None,
    };
    let Some((buckets, max_distance)) = subject.graph().nodes().iter().find_map(bias) else {
        page.words("This model has no relative bias; `attnscope explain positions` explains how the order of tokens is encoded.");
        return;
    };
    page.words(format!(
        "This model has {buckets} buckets, and every distance from {max_distance} on is in the last. The encoder uses half of them for \
         each direction; the decoder, which sees no later positions, uses all of them for earlier ones."
    ));
    for stack in Stack::ALL {
        let rows = bias_rows(subject, stack);
        if !rows.is_empty() {
            page.words(format!(
                "The {}'s bias by distance, one number per head, at most {SHOWN_HEADS}:",
                stack.name()
            ));
            page.table(&["#key − query", "#bucket", "bias of each head"], rows);
        }
    }
}

/// Heads whose bias is shown.
const SHOWN_HEADS: usize = 4;

fn bias_rows(subject: &Subject<'_>, stack: Stack) -> Vec<Vec<String>> {
    let Some(run) = &subject.run else { return Vec::new() };
    let of_stack = |node: &'_ Node| match node.op {
        Op::RelativeBias { stack: own, max_distance, .. } if own == stack => {
            Some((node.weights.first().copied(), max_distance))
        }
        _ => None,
    };
    let Some((weight, max_distance)) = subject.graph().nodes().iter().find_map(of_stack) else {
        return Vec::new();
    };
    let (Some(weight), Some(heads)) = (weight, subject.sizes.get(Dim::Heads(stack))) else {
        return Vec::new();
    };
    let Ok(table) = run.ready.weights().get(weight) else { return Vec::new() };
    let buckets = table.len() / heads.max(1);
    let row = |distance: i64| {
        let query = 16_usize;
        let key = query.checked_add_signed(isize::try_from(distance).ok()?)?;
        let bucket = relative_bucket(stack, query, key, buckets, max_distance);
        let bias = (0..heads.min(SHOWN_HEADS))
            .map(|h| format!("{:+.3}", table.get(bucket * heads + h).copied().unwrap_or(f32::NAN)));
        Some(vec![format!("{distance:+}"), bucket.to_string(), bias.collect::<Vec<_>>().join("  ")])
    };
    let seen = |d: &i64| stack == Stack::Encoder || *d <= 0;
    DISTANCES.into_iter().filter(seen).filter_map(row).collect()
}

/// What the normaliser does to a row, where a sum is mentioned.
pub(crate) fn row_sums(subject: &Subject<'_>, weights: Role) -> Option<(f64, f64)> {
    if !subject.graph().has_softmax() {
        return None;
    }
    let kept = subject.kept(weights)?;
    let keys = *kept.shape.last()?;
    let sums: Vec<f64> = kept.values.chunks(keys).map(|row| row.iter().sum()).collect();
    let least = sums.iter().copied().fold(f64::INFINITY, f64::min);
    let most = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some((least, most))
}
