//! The snapshots: a walk through one forward pass, from token ids to logits, with one layer of each stack opened. An
//! encoder-decoder has 43, whose numbers are fixed, so they are not everywhere in the order of computation;
//! [`computed_before`] says where. The walk through a model of one stack is derived from its graph.

use crate::dim::{Dim, Stack};
use crate::graph::{Graph, NodeId, WeightId};
use crate::op::Op;
use crate::role::{
    AttentionKind, AttentionStep, BlockStep, EntryStep, FeedForwardStep, HeadStep, LayerStep, RecurrentStep,
    Role,
};

/// How many there are.
pub const SNAPSHOTS: usize = 43;

/// The rows and columns of a table, or the logits of a token, that are shown.
const CORNER: usize = 5;
const FIRST: usize = 10;

/// One stop of the walk.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// From 1.
    pub number: usize,
    /// What it is, in a few words.
    pub what: &'static str,
    /// What is looked at.
    pub view: View,
}

/// What a snapshot looks at.
#[derive(Debug, Clone, PartialEq)]
pub enum View {
    /// Whole tensors: the first is the one that is measured, the others belong with it.
    Nodes(Vec<NodeId>),
    /// A row of a batch: one sentence's ids.
    Row(NodeId),
    /// The corner of a weight, 5 by 5.
    Corner(WeightId),
    /// The first ten logits of the last token of a row.
    FirstLogits(NodeId),
    /// A node that this model, or this layer of it, does not have.
    Absent(String),
}

/// Which sentence of a batch a snapshot shows where it cannot show all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// The row of the batch.
    pub row: usize,
    /// The position of the row's last target token.
    pub last: usize,
}

/// A row of the table. `{n}` stands for the layer.
type Row = (usize, &'static str, &'static str);

/// Number, path, what it is. Rows that show more than one whole node are handled in [`view`].
const TABLE: [Row; SNAPSHOTS] = [
    (1, "src.ids", "source token ids"),
    (2, "tgt.ids", "target token ids, as the decoder reads them"),
    (3, "src.embed.weight", "corner of the source embedding table"),
    (4, "src.embed", "source embeddings after lookup"),
    (5, "src.embed_pos", "source embeddings with positions"),
    (6, "encoder.{n}.in", "input of the encoder layer"),
    (7, "encoder.{n}.self_attn.q", "encoder queries"),
    (8, "encoder.{n}.self_attn.k", "encoder keys"),
    (9, "encoder.{n}.self_attn.v", "encoder values"),
    (10, "encoder.{n}.self_attn.scores", "encoder scores, scaled, before bias and mask"),
    (11, "encoder.{n}.self_attn.weights", "encoder attention weights"),
    (12, "encoder.{n}.self_attn.q_heads", "encoder queries split into heads"),
    (13, "encoder.{n}.self_attn.context", "encoder attention output, heads side by side"),
    (14, "encoder.{n}.self_attn.residual", "the two terms of the residual sum"),
    (15, "encoder.{n}.self_attn.norm", "the attention sublayer's norm"),
    (16, "encoder.{n}.ffn.in", "input of the feed-forward"),
    (17, "encoder.{n}.ffn.hidden", "first linear layer, before the activation"),
    (18, "encoder.{n}.ffn.out", "second linear layer"),
    (19, "encoder.{n}.out", "output of the encoder layer"),
    (20, "tgt.embed_pos", "target embeddings with positions"),
    (21, "decoder.{n}.self_attn.q", "decoder queries"),
    (22, "decoder.{n}.self_attn.k", "decoder keys"),
    (23, "decoder.{n}.self_attn.v", "decoder values"),
    (24, "decoder.{n}.self_attn.scores", "decoder scores, scaled, before bias and mask"),
    (25, "decoder.{n}.self_attn.mask", "causal mask: 0 is visible, −∞ is masked"),
    (26, "decoder.{n}.self_attn.weights", "decoder attention weights, after mask and softmax"),
    (27, "decoder.{n}.self_attn.q_heads", "decoder queries split into heads"),
    (28, "decoder.{n}.self_attn.context", "decoder attention output, heads side by side"),
    (29, "decoder.{n}.self_attn.norm", "the masked attention sublayer's norm"),
    (30, "decoder.{n}.cross_attn.q", "cross-attention queries, from the decoder"),
    (31, "decoder.{n}.cross_attn.k", "cross-attention keys, from the encoder"),
    (32, "decoder.{n}.cross_attn.v", "cross-attention values, from the encoder"),
    (33, "decoder.{n}.cross_attn.scores", "cross-attention scores before the softmax"),
    (34, "decoder.{n}.cross_attn.weights", "cross-attention weights: target rows, source columns"),
    (35, "decoder.{n}.cross_attn.context", "cross-attention output, heads side by side"),
    (36, "decoder.{n}.cross_attn.norm", "the cross-attention sublayer's norm"),
    (37, "decoder.{n}.ffn.in", "input of the decoder's feed-forward"),
    (38, "decoder.{n}.ffn.hidden", "first linear layer, before the activation"),
    (39, "decoder.{n}.ffn.out", "second linear layer"),
    (40, "decoder.{n}.out", "output of the decoder layer"),
    (41, "decoder.out", "what the output projection reads"),
    (42, "logits", "a score for every token of the vocabulary"),
    (43, "logits", "first logits of the last target token"),
];

/// The walk through layer `layer` of every stack: the 43 of an encoder-decoder, or the stops that a model of one stack
/// has.
pub fn snapshots(graph: &Graph, layer: usize) -> Vec<Snapshot> {
    let stacks: Vec<Stack> = Stack::ALL.into_iter().filter(|&stack| graph.layers(stack) > 0).collect();
    match stacks[..] {
        [stack] => return single_stack(graph, stack, layer),
        [] if graph.has_classifier() => return single_stack(graph, Stack::Encoder, layer),
        _ => {}
    }
    let snapshot = |&(number, path, what): &Row| {
        let view = view(graph, number, &path.replace("{n}", &layer.to_string()));
        Snapshot { number, what: words(number, what, &view, graph), view }
    };
    TABLE.iter().map(snapshot).collect()
}

/// The walk through a model of one stack, in the order of computation.
fn single_stack(graph: &Graph, stack: Stack, layer: usize) -> Vec<Snapshot> {
    use AttentionStep::{Context, K, KHeads, KRot, Mask, Norm, Q, QHeads, QRot, Scores, V, VHeads, Weights};
    let entry = |step| graph.at(Role::Entry(stack.side(), step));
    let of_layer = |step| graph.at(Role::Layer(stack, layer, step));
    let attention = |step| of_layer(LayerStep::Attention(AttentionKind::SelfAttention, step));
    let feed_forward = |step| of_layer(LayerStep::FeedForward(step));
    let terms =
        attention(AttentionStep::Residual).map(|id| graph.node(id).inputs.clone()).unwrap_or_default();
    let nodes = |ids: &[Option<NodeId>]| View::Nodes(ids.iter().flatten().copied().collect());
    let one = |id: Option<NodeId>| nodes(&[id]);
    let embed = entry(EntryStep::Embed);
    let corner = embed.and_then(|id| graph.node(id).weights.first()).map(|&table| View::Corner(table));
    let logits = graph.at(Role::Logits);
    let mut stops: Vec<(View, &'static str)> = vec![
        (one(entry(EntryStep::Types)), "vectors of the token types"),
        (one(embed), "embeddings after lookup"),
        (one(entry(EntryStep::EmbedPos)), "what the first layer reads"),
        (one(of_layer(LayerStep::In)), "input of the layer"),
        (one(attention(Norm)), "the attention sublayer's norm"),
        (one(attention(Q)), "queries"),
        (one(attention(K)), "keys"),
        (one(attention(V)), "values"),
        (nodes(&[attention(QHeads), attention(KHeads), attention(VHeads)]), "queries split into heads"),
        (nodes(&[attention(QRot), attention(KRot)]), "queries after rotary positions"),
        (one(attention(Scores)), "scores, scaled, before the mask"),
        (one(attention(Mask)), "mask: 0 is visible, −∞ is masked"),
        (one(attention(Weights)), "attention weights"),
        (one(attention(Context)), "attention output, heads side by side"),
        (View::Nodes(terms), "the two terms of the residual sum"),
        (one(feed_forward(FeedForwardStep::Norm)), "the feed-forward sublayer's norm"),
        (one(feed_forward(FeedForwardStep::In)), "input of the feed-forward"),
        (one(feed_forward(FeedForwardStep::Hidden)), "first linear layer, before the activation"),
        (one(feed_forward(FeedForwardStep::Gated)), "activation times gate"),
        (one(feed_forward(FeedForwardStep::Out)), "second linear layer"),
        (one(of_layer(LayerStep::Out)), "output of the layer"),
        (one(graph.at(Role::StackOut(stack))), "output of the last layer, normed where the model does so"),
        (one(graph.at(Role::Head(HeadStep::Norm))), "the head's norm"),
        (
            one(logits),
            match graph.scores_classes() {
                true => "a score for every class",
                false => "a score for every token of the vocabulary",
            },
        ),
    ];
    for (id, node) in graph.iter() {
        if let Role::Block(_, step) = node.role {
            stops.push((one(Some(id)), block_words(step)));
        }
    }
    stops.retain(|(view, _)| !view.nodes().is_empty());
    // A view of several nodes is placed where the last of them is computed.
    stops.sort_by_key(|(view, _)| view.nodes().iter().max().copied());
    let first = entry(EntryStep::Ids).map(|ids| (View::Row(ids), "token ids"));
    let corner = corner.map(|view| (view, "corner of the embedding table"));
    let last = logits.filter(|_| !graph.scores_classes());
    let last = last.map(|logits| (View::FirstLogits(logits), "first logits of the last token"));
    let walk = first.into_iter().chain(corner).chain(stops).chain(last);
    walk.enumerate().map(|(i, (view, what))| Snapshot { number: i + 1, what, view }).collect()
}

/// What a step of a classifier's block gives.
fn block_words(step: BlockStep) -> &'static str {
    match step {
        BlockStep::ChannelsFirst => "features before positions, as a convolution reads them",
        BlockStep::ChannelsLast => "positions before features again",
        BlockStep::Conv => "windows of positions, one number a channel",
        BlockStep::Act => "after the activation",
        BlockStep::Pool => "one number a feature, positions are gone",
        BlockStep::Flatten => "all positions in one row",
        BlockStep::Linear => "a learned map",
        BlockStep::Norm => "normed",
        BlockStep::Dropout => "the same value outside of training",
        BlockStep::Recurrent(_, _, RecurrentStep::Input) => "what each position gives to the gates",
        BlockStep::Recurrent(_, _, RecurrentStep::States) => "h and c of every position",
        BlockStep::Recurrent(_, _, RecurrentStep::Hidden) => "the state after every position",
        BlockStep::Recurrent(_, _, RecurrentStep::Last) => "the state once all positions were read",
        BlockStep::BothDirections(_) | BlockStep::BothStates => "both directions side by side",
    }
}

/// The numbers under which a node is seen when its own layer is opened.
pub fn snapshot_numbers(graph: &Graph, node: NodeId) -> Vec<usize> {
    let layer = graph.node(node).path.layer().map_or(0, |(_, n)| n);
    snapshots(graph, layer).iter().filter(|s| s.view.nodes().contains(&node)).map(|s| s.number).collect()
}

/// The smaller numbers whose tensors are computed from this snapshot's: where there are some, the walk is not in the
/// order of computation.
pub fn computed_before(graph: &Graph, walk: &[Snapshot], snapshot: &Snapshot) -> Vec<usize> {
    let earlier: Vec<&Snapshot> = walk.iter().filter(|s| s.number < snapshot.number).collect();
    // One term of a residual sum has its own snapshot, and was computed there.
    let is_new = |id: &NodeId| earlier.iter().all(|s| !s.view.nodes().contains(id));
    let own: Vec<NodeId> = snapshot.view.nodes().iter().copied().filter(is_new).collect();
    let uses = |s: &&&Snapshot| {
        s.view.nodes().iter().any(|&user| own.iter().any(|&source| graph.is_made_of(user, source)))
    };
    earlier.iter().filter(uses).map(|s| s.number).collect()
}

/// Where a walk's numbers are not in the order of computation, in a sentence; nothing where they are.
pub fn order_note(graph: &Graph, walk: &[Snapshot]) -> Option<String> {
    let late = |s: &Snapshot| Some((s.number, *computed_before(graph, walk, s).first()?));
    let late: Vec<String> =
        walk.iter().filter_map(late).map(|(late, early)| format!("{late} before {early}")).collect();
    (!late.is_empty()).then(|| {
        format!(
            "The numbers are fixed, the same for every model, and not everywhere in the order of computation: here {}.",
            late.join(", ")
        )
    })
}

fn view(graph: &Graph, number: usize, path: &str) -> View {
    // An audio model has features instead of ids, and convolutions instead of a table.
    if let (1, Some(mel)) = (number, graph.find("audio.mel")) {
        return View::Nodes(vec![mel]);
    }
    if number == 3 {
        let first = graph.find("audio.conv1").or_else(|| graph.find("src.embed"));
        let weight = first.and_then(|id| graph.node(id).weights.first().copied());
        return weight.map_or_else(|| View::Absent(path.to_owned()), View::Corner);
    }
    let Some(node) = graph.find(path) else { return View::Absent(path.to_owned()) };
    match (number, &graph.node(node).op) {
        (1 | 2, _) => View::Row(node),
        (43, _) => View::FirstLogits(node),
        (14, Op::Residual { .. }) => View::Nodes(graph.node(node).inputs.clone()),
        (12 | 27, _) => {
            let beside = ["k_heads", "v_heads"].map(|leaf| path.replace("q_heads", leaf));
            View::Nodes([node].into_iter().chain(beside.iter().filter_map(|p| graph.find(p))).collect())
        }
        _ => View::Nodes(vec![node]),
    }
}

/// The table is written for text models; two rows differ in an audio model.
fn words(number: usize, what: &'static str, view: &View, graph: &Graph) -> &'static str {
    match (number, view) {
        (1, View::Nodes(_)) => "log-mel features",
        (3, View::Corner(_)) if graph.find("audio.conv1").is_some() => {
            "corner of the first convolution's kernel"
        }
        (4, _) if graph.find("audio.mel").is_some() => "audio frames after the convolutions",
        (5, _) if graph.find("audio.mel").is_some() => "audio frames with positions",
        _ => what,
    }
}

impl View {
    /// The nodes that it reads.
    pub fn nodes(&self) -> &[NodeId] {
        match self {
            Self::Nodes(nodes) => nodes,
            Self::Row(node) | Self::FirstLogits(node) => std::slice::from_ref(node),
            Self::Corner(_) | Self::Absent(_) => &[],
        }
    }

    /// The name under which it is shown: a node's path, a weight's path.
    pub fn path<'g>(&'g self, graph: &'g Graph) -> &'g str {
        match self {
            Self::Nodes(nodes) => nodes.first().map_or("", |&id| graph.node(id).path.as_str()),
            Self::Row(node) | Self::FirstLogits(node) => graph.node(*node).path.as_str(),
            Self::Corner(weight) => &graph.weight(*weight).path,
            Self::Absent(path) => path,
        }
    }

    /// Its dimensions as letters; a corner or a slice has numbers, which `shape` gives.
    pub fn dims(&self, graph: &Graph) -> Vec<Dim> {
        match self {
            Self::Nodes(nodes) => nodes.first().map_or(Vec::new(), |&id| graph.node(id).dims.clone()),
            Self::Row(node) => graph.node(*node).dims.iter().skip(1).copied().collect(),
            Self::Corner(weight) => graph.weight(*weight).dims.iter().take(2).copied().collect(),
            Self::FirstLogits(node) => graph.node(*node).dims.last().copied().into_iter().collect(),
            Self::Absent(_) => Vec::new(),
        }
    }

    /// Its shape, from the shape of the tensor that it is cut out of.
    pub fn shape(&self, whole: &[usize]) -> Vec<usize> {
        match self {
            Self::Nodes(_) => whole.to_vec(),
            Self::Row(_) => whole.iter().skip(1).copied().collect(),
            Self::Corner(_) => whole.iter().take(2).map(|&n| n.min(CORNER)).collect(),
            Self::FirstLogits(_) => whole.last().map(|&n| n.min(FIRST)).into_iter().collect(),
            Self::Absent(_) => Vec::new(),
        }
    }

    /// The indices of its values in the tensor that it is cut out of, row-major.
    pub fn places(&self, whole: &[usize], cut: Cut) -> Vec<usize> {
        match (self, whole) {
            (Self::Nodes(_), _) => (0..whole.iter().product()).collect(),
            (Self::Row(_), [_, rest @ ..]) => {
                let size: usize = rest.iter().product();
                (cut.row * size..(cut.row + 1) * size).collect()
            }
            (Self::Corner(_), [rows, columns, depth @ ..]) => {
                let depth: usize = depth.iter().product();
                let row = |r| (0..CORNER.min(*columns)).map(move |c| (r * columns + c) * depth);
                (0..CORNER.min(*rows)).flat_map(row).collect()
            }
            (Self::FirstLogits(_), [_, classes]) => {
                (cut.row * classes..cut.row * classes + FIRST.min(*classes)).collect()
            }
            (Self::FirstLogits(_), [_, length, vocabulary]) => {
                let start = (cut.row * length + cut.last.min(length.saturating_sub(1))) * vocabulary;
                (start..start + FIRST.min(*vocabulary)).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Front, Side, Sizes, Stack, Wiring, build};

    fn toy_sizes() -> Sizes {
        let mut sizes = Sizes::default().with_lengths(1, 6, 5);
        sizes.set(Dim::Model, 128);
        sizes.set(Dim::Vocab(Side::Source), 6);
        sizes.set(Dim::Vocab(Side::Target), 5);
        for stack in Stack::ALL {
            sizes.set(Dim::Heads(stack), 4);
            sizes.set(Dim::Inner(stack), 128);
            sizes.set(Dim::FeedForward(stack), 256);
        }
        sizes
    }

    /// The shapes of the toy model in the lecture, row by row.
    #[test]
    fn the_toys_shapes_are_those_of_the_walk() {
        let wiring = Wiring { shared_embeddings: false, tied_output: false, ..Wiring::VASWANI };
        let graph = build(&Architecture::encoder_decoder(2, 2), &wiring);
        let sizes = toy_sizes();
        let (wide, narrow) = (vec![1, 6, 128], vec![1, 5, 128]);
        let expected = |number| match number {
            1 => vec![6],
            2 | 43 => vec![5],
            3 => vec![5, 5],
            10 | 11 => vec![1, 4, 6, 6],
            12 => vec![1, 4, 6, 32],
            17 => vec![1, 6, 256],
            4..=9 | 13..=16 | 18 | 19 | 31 | 32 => wide.clone(),
            24 | 26 => vec![1, 4, 5, 5],
            25 => vec![1, 1, 5, 5],
            27 => vec![1, 4, 5, 32],
            33 | 34 => vec![1, 4, 5, 6],
            38 => vec![1, 5, 256],
            42 => vec![1, 5, 5],
            _ => narrow.clone(),
        };
        for layer in 0..2 {
            let walk = snapshots(&graph, layer);
            assert_eq!(walk.iter().map(|s| s.number).collect::<Vec<_>>(), (1..=43).collect::<Vec<_>>());
            for snapshot in walk {
                let dims = match &snapshot.view {
                    View::Corner(weight) => &graph.weight(*weight).dims,
                    view => &graph.node(view.nodes()[0]).dims,
                };
                let whole = sizes.shape(dims).unwrap();
                let shape = snapshot.view.shape(&whole);
                assert_eq!(shape, expected(snapshot.number), "{} of layer {layer}", snapshot.number);
                assert_eq!(
                    snapshot.view.places(&whole, Cut { row: 0, last: 4 }).len(),
                    shape.iter().product::<usize>()
                );
                assert!(
                    snapshot
                        .view
                        .places(&whole, Cut { row: 0, last: 4 })
                        .iter()
                        .all(|&i| i < whole.iter().product())
                );
            }
        }
    }

    #[test]
    fn every_model_has_the_walk_and_says_what_it_has_not() {
        let audio = Wiring { front: Front::Audio, ..Wiring::VASWANI };
        let no_mask =
            Wiring { causal_mask: crate::Switch::Off, padding_mask: crate::Switch::Off, ..Wiring::VASWANI };
        for (wiring, absent) in [(audio, vec![]), (no_mask, vec![25]), (Wiring::VASWANI, vec![])] {
            let graph = build(&Architecture::encoder_decoder(2, 1), &wiring);
            let missing = |layer| -> Vec<usize> {
                let gone = |s: &Snapshot| matches!(s.view, View::Absent(_));
                snapshots(&graph, layer).iter().filter(|s| gone(s)).map(|s| s.number).collect()
            };
            assert_eq!(missing(0), absent);
            assert_eq!(missing(1), (21..=40).collect::<Vec<_>>());
        }
    }

    /// Heads are split before they are scored; a norm in front of a sublayer comes before everything in it.
    #[test]
    fn the_numbers_are_in_the_order_of_computation_but_for_those_that_are_said() {
        let late = |norm_place| {
            let graph =
                build(&Architecture::encoder_decoder(1, 1), &Wiring { norm_place, ..Wiring::VASWANI });
            let walk = snapshots(&graph, 0);
            let of = |s: &Snapshot| (s.number, computed_before(&graph, &walk, s));
            walk.iter().map(of).filter(|(_, before)| !before.is_empty()).collect::<Vec<_>>()
        };
        let split = [(12, vec![10, 11]), (27, vec![24, 26])];
        assert_eq!(late(crate::NormPlace::Post), split);
        let norms =
            [(15, (7..=14).collect()), (29, vec![21, 22, 23, 24, 26, 27, 28]), (36, vec![30, 33, 34, 35])];
        let mut pre = [split.to_vec(), norms.to_vec()].concat();
        pre.sort();
        assert_eq!(late(crate::NormPlace::Pre), pre);
    }

    #[test]
    fn a_node_knows_its_numbers_in_every_layer() {
        let graph = build(&Architecture::encoder_decoder(2, 2), &Wiring::VASWANI);
        for (path, numbers) in [
            ("encoder.1.self_attn.k_heads", vec![12]),
            ("encoder.1.in", vec![6, 14]),
            ("decoder.0.cross_attn.weights", vec![34]),
            ("logits", vec![42, 43]),
            ("decoder.1.self_attn.out", vec![]),
        ] {
            assert_eq!(snapshot_numbers(&graph, graph.find(path).unwrap()), numbers, "{path}");
        }
    }
}
