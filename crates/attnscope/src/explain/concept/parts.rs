//! Ideas about the parts around attention: embeddings, feed-forwards, generation.

use crate::answer::Page;
use crate::figures::{number, thousands};
use attnscope_graph::{Activation, Dim, FeedForwardStep, LayerStep, Op, Role, Side, Stack, words};
use attnscope_run::generate::Limit;

use super::super::Subject;
use super::stream::piece;

pub(super) fn embeddings(subject: &Subject<'_>, page: &mut Page) {
    let width = subject.size(Dim::Model);
    page.words(format!(
        "A token is a number without meaning: 7 is not more than 6. A table holds a row of {width} numbers for each \
         token, and a token is replaced by its row. What the rows mean is learned."
    ));
    let (mut rows, mut tables) = (Vec::new(), Vec::new());
    for node in subject.graph().nodes().iter().filter(|node| matches!(node.op, Op::Embed { .. })) {
        let Some(&table) = node.weights.first() else { continue };
        let weight = subject.graph().weight(table);
        tables.push(table);
        rows.push(vec![
            node.path.to_string(),
            words::formula(node, &subject.sizes, false),
            format!("{} {}", weight.path, subject.shape(&weight.dims)),
            subject.shape(&node.dims),
            subject.stats(node.role).map_or_else(|| "not run".to_owned(), |s| number(s.std)),
        ]);
    }
    page.table(&["node", "formula", "table", "shape", "#standard deviation"], rows);
    let lookups = match tables.as_slice() {
        _ if subject.model.architecture.stacks.len() == 1 => "",
        [source, target] if source == target => "Source and target share one table. ",
        [_, _] => "Source and target have a table each. ",
        _ => "Only the target has a table: the source is audio, whose frames are vectors already. ",
    };
    let logits = subject.graph().at(Role::Logits).map(|id| subject.graph().node(id));
    let tied = match logits.map(|logits| subject.graph().borrows_weights(logits)) {
        Some(true) if lookups.is_empty() => "The output projection uses the same table again.",
        Some(true) => "The output projection uses the target's table again.",
        Some(false) => "The output projection has a matrix of its own.",
        None => "The model has no output projection.",
    };
    page.words(format!("{lookups}{tied}"));
}

/// The nodes of a feed-forward, where the model has them.
const FEED_FORWARD: [FeedForwardStep; 6] = {
    use FeedForwardStep::{Act, Gate, Gated, Hidden, In, Out};
    [In, Hidden, Act, Gate, Gated, Out]
};

pub(super) fn feed_forward(subject: &Subject<'_>, page: &mut Page) {
    // Where there is no stack, no node has such a role.
    let first = subject.model.architecture.stacks().next().unwrap_or(Stack::Encoder);
    let of_first = |step| Role::Layer(first, 0, LayerStep::FeedForward(step));
    let maps = match subject.at(of_first(FeedForwardStep::Gate)) {
        Some(_) => {
            "Three linear maps: the first, after a non-linearity, is multiplied with the second, and the third maps back to d_model"
        }
        None => "Two linear maps with a non-linearity between them",
    };
    page.words(format!(
        "{maps}, at every position by itself: no position reads another here; that is the task of attention."
    ));
    let row = |step| {
        let node = subject.at(of_first(step))?;
        Some(vec![
            node.path.to_string(),
            words::formula(node, &subject.sizes, false),
            subject.shape(&node.dims),
        ])
    };
    page.table(&["node", "formula", "shape"], FEED_FORWARD.into_iter().filter_map(row).collect());
    if let Some([attention, feed_forward]) = parameters(subject) {
        page.words(format!(
            "Over all layers, feed-forwards have {} parameters and attentions {}.",
            thousands(feed_forward),
            thousands(attention)
        ));
    }
    let act = of_first(FeedForwardStep::Act);
    let cells = subject.at(act).and_then(|n| Some(subject.sizes.shape(&n.dims)?.iter().product::<usize>()));
    if let (Some(stats), Some(cells), Some(Activation::Relu)) =
        (subject.stats(act), cells, subject.graph().activation(first, 0))
    {
        let share = 100.0 * stats.zeros as f64 / cells.max(1) as f64;
        page.words(format!("On this input {share:.1} % of {act} are 0: ReLU keeps only positive numbers."));
    }
}

/// The parameters of all attentions and of all feed-forwards.
fn parameters(subject: &Subject<'_>) -> Option<[u64; 2]> {
    let graph = subject.graph();
    let mut counts = [0u64; 2];
    for node in graph.nodes().iter().filter(|node| matches!(node.op, Op::Linear)) {
        let count = &mut counts[usize::from(node.role.feed_forward().is_some())];
        for &id in &node.weights {
            let elements: usize = subject.sizes.shape(&graph.weight(id).dims)?.iter().product();
            *count = count.checked_add(elements as u64)?;
        }
    }
    Some(counts)
}

pub(super) fn decoding(subject: &Subject<'_>, page: &mut Page) {
    page.words(
        "A sentence is generated token by token: the decoder reads the tokens so far, the logits of its last \
         position give the probability of each next token, one is chosen and appended. Greedy search takes the most \
         likely. Beam search \
         keeps the best few sentences at every step, because the most likely token need not begin the most likely \
         sentence.",
    );
    page.words(match subject.graph().is_causal(Stack::Decoder) {
        true => {
            "The encoder runs once. Keys and values of earlier positions are kept: with a causal mask later tokens \
             cannot change them."
        }
        false => {
            "The encoder runs once. This model has no causal mask: a later token changes the keys and values of \
             earlier positions, so every step computes all of them again, and what it reads differs from training."
        }
    });
    let Some(run) = &subject.run else {
        page.words("With an input, the generation settings of this model are shown.");
        return;
    };
    let settings = run.ready.settings();
    let names = |ids: &[u32]| {
        let name = |&id: &u32| format!("{} ({id})", piece(run.ready, id as usize));
        (!ids.is_empty()).then(|| ids.iter().map(name).collect::<Vec<_>>().join(", "))
    };
    page.facts([
        ("begins with", names(&settings.start)),
        ("ends with", names(&settings.ends)),
        ("beams", Some(if settings.beams == 1 { "1: greedy".into() } else { settings.beams.to_string() })),
        (
            "score",
            (settings.beams > 1)
                .then(|| format!("sum of log-probabilities / length^{}", settings.length_penalty)),
        ),
        (
            "at most",
            Some(match settings.limit {
                Limit::New(n) => format!("{n} new tokens"),
                Limit::Total(n) => format!("{n} tokens with the first ones"),
            }),
        ),
    ]);
    let vocabulary = subject.size(Dim::Vocab(Side::Target));
    page.words(format!(
        "Every step chooses among {vocabulary} tokens. `attnscope generate` shows what was generated, with its scores."
    ));
}
