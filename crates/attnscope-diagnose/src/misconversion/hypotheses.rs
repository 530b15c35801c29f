//! Every repair that makes sense for a model, before anything is measured.

use attnscope_graph::{Dim, Graph, Model, Stack};

use super::edit::{RowOrder, WeightEdit, matrix, twins};
use super::sites::{
    AttentionKind, AttentionSite, FeedForwardSite, attentions, feed_forwards, has_bias, layer_norms, tables,
    twin_tables, weights_of,
};

/// The projections of an attention that can be confused.
const EXCHANGED: [[&str; 2]; 6] =
    [["q", "k"], ["q", "v"], ["k", "v"], ["q", "out"], ["k", "out"], ["v", "out"]];
/// The projections that are confused in every layer at once.
const EXCHANGED_EVERYWHERE: [[&str; 2]; 3] = [["q", "k"], ["q", "v"], ["k", "v"]];
/// Projections that are put in another order together. Within a head, the same order of q and k changes no score.
const REORDERED: [&[&str]; 6] = [&["q"], &["k"], &["v"], &["out"], &["q", "k"], &["q", "k", "v"]];

/// Repairs of the whole file: systematic mistakes, layers and tables. Without repairs of a single place.
pub(super) fn of_model(model: &Model) -> Vec<WeightEdit> {
    let sites = attentions(&model.graph);
    let mut edits = Vec::new();
    for group in groups(&sites) {
        edits.extend(transposes(model, &group));
        edits.extend(exchanges(model, &group, &EXCHANGED_EVERYWHERE));
        if group.len() == sites.len() {
            edits.extend(RowOrder::ALL.iter().flat_map(|rows| interleaves(model, &group, *rows)));
        }
    }
    edits.extend(layer_swaps(&model.graph));
    edits.extend(norm_exchanges(model));
    edits.extend(table_edits(model));
    let gated: Vec<FeedForwardSite> =
        feed_forwards(&model.graph).into_iter().filter(|site| site.is_gated).collect();
    edits.extend(gate_exchange(model, &gated.iter().collect::<Vec<_>>()).filter(|_| gated.len() > 1));
    edits
}

/// Repairs of one attention, without factors and the order of heads.
pub(super) fn of_attention(model: &Model, site: &AttentionSite) -> Vec<WeightEdit> {
    let here = [site];
    let mut edits = transposes(model, &here);
    edits.extend(exchanges(model, &here, &EXCHANGED));
    edits.extend(RowOrder::ALL.iter().flat_map(|rows| interleaves(model, &here, *rows)));
    for projection in ["q", "k", "v", "out"] {
        edits.extend(negation(&model.graph, &format!("{}.{projection}", site.path)));
    }
    edits
}

/// Repairs of one feed-forward layer.
pub(super) fn of_feed_forward(model: &Model, site: &FeedForwardSite) -> Vec<WeightEdit> {
    let mut edits: Vec<WeightEdit> = gate_exchange(model, &[site]).into_iter().collect();
    for module in ["hidden", "gate", "out"] {
        let path = format!("{}.{module}", site.path);
        edits.extend(negation(&model.graph, &path));
        edits.extend(square(model, &path).map(|weight| WeightEdit::Transpose { weights: vec![weight] }));
    }
    edits
}

/// Whole sublayers, with their norms, exchanged between two layers: every two of some that have the same place in their layer.
pub(super) fn sublayer_exchanges(model: &Model, paths: &[&str]) -> Vec<WeightEdit> {
    let mut edits = Vec::new();
    for (i, a) in paths.iter().enumerate() {
        for b in paths[i + 1..].iter().filter(|b| is_same_sublayer(a, b)) {
            let pairs = twins(&model.graph, &format!("{a}."), &format!("{b}."));
            edits.extend((!pairs.is_empty()).then_some(WeightEdit::Exchange { pairs }));
        }
    }
    edits
}

/// Whether two paths differ in the number of their layer alone: `decoder.0.cross_attn` and `decoder.1.cross_attn`.
pub(super) fn is_same_sublayer(a: &str, b: &str) -> bool {
    let of = |path: &str| -> Option<(String, String)> {
        let (stack, rest) = path.split_once('.')?;
        let (_, sublayer) = rest.split_once('.')?;
        Some((stack.to_owned(), sublayer.to_owned()))
    };
    a != b && of(a).is_some() && of(a) == of(b)
}

/// Two heads of an attention are exchanged. Whatever the right order is, one of these puts a head in its right place; the
/// search continues from there.
pub(super) fn head_orders(heads: usize) -> Vec<Vec<usize>> {
    let mut orders = Vec::new();
    for a in 0..heads {
        for b in a + 1..heads {
            let mut order: Vec<usize> = (0..heads).collect();
            order.swap(a, b);
            orders.push(order);
        }
    }
    orders
}

/// One attention's projections with their heads in another order.
pub(super) fn permuted(
    model: &Model,
    site: &AttentionSite,
    projections: &[&str],
    order: &[usize],
) -> WeightEdit {
    let weights = projections
        .iter()
        .flat_map(|projection| heads_weights(&model.graph, &format!("{}.{projection}", site.path)))
        .collect();
    WeightEdit::PermuteHeads { weights, order: order.to_vec() }
}

/// Projections whose heads can be permuted independently.
pub(super) const PERMUTED: [&[&str]; 5] = [&["q"], &["k"], &["v"], &["out"], &["q", "k"]];

/// The weights of a projection that have the heads' dimension: the output projection's bias has not.
fn heads_weights(graph: &Graph, module: &str) -> Vec<String> {
    let has_heads = |path: &String| {
        graph
            .find_weight(path)
            .is_some_and(|id| graph.weight(id).dims.iter().any(|dim| matches!(dim, Dim::Inner(_))))
    };
    weights_of(graph, module, true).into_iter().filter(has_heads).collect()
}

/// Attentions that a systematic mistake affects together.
fn groups(sites: &[AttentionSite]) -> Vec<Vec<&AttentionSite>> {
    let all: Vec<&AttentionSite> = sites.iter().collect();
    let of = |kinds: &[AttentionKind]| -> Vec<&AttentionSite> {
        sites.iter().filter(|site| kinds.contains(&site.kind)).collect()
    };
    let selves = of(&[AttentionKind::EncoderSelf, AttentionKind::DecoderSelf]);
    let mut groups = vec![all, selves];
    groups.extend(AttentionKind::ALL.map(|kind| of(&[kind])));
    let mut distinct: Vec<Vec<&AttentionSite>> = Vec::new();
    for group in groups.into_iter().filter(|group| group.len() > 1) {
        if !distinct.contains(&group) {
            distinct.push(group);
        }
    }
    distinct
}

/// A module's matrix, if it is square.
fn square(model: &Model, module: &str) -> Option<String> {
    let path = format!("{module}.weight");
    let (_, shape) = matrix(model, &path)?;
    (shape.len() == 2 && shape[0] == shape[1]).then_some(path)
}

/// Each projection transposed, and all of them.
fn transposes(model: &Model, sites: &[&AttentionSite]) -> Vec<WeightEdit> {
    let of = |projections: &[&str]| -> Option<WeightEdit> {
        let paths = sites
            .iter()
            .flat_map(|site| projections.iter().map(|projection| format!("{}.{projection}", site.path)));
        let weights = paths.map(|module| square(model, &module)).collect::<Option<Vec<_>>>()?;
        Some(WeightEdit::Transpose { weights })
    };
    let sets: [&[&str]; 5] = [&["q"], &["k"], &["v"], &["out"], &["q", "k", "v", "out"]];
    sets.into_iter().filter_map(of).collect()
}

/// Two projections exchanged, with their biases.
fn exchanges(model: &Model, sites: &[&AttentionSite], exchanged: &[[&str; 2]]) -> Vec<WeightEdit> {
    let modules = |[a, b]: &[&str; 2]| -> Vec<[String; 2]> {
        sites.iter().map(|site| [a, b].map(|name| format!("{}.{name}", site.path))).collect()
    };
    exchanged.iter().filter_map(|pair| exchange_modules(model, &modules(pair))).collect()
}

/// Modules exchanged two by two, with their biases where both have one.
fn exchange_modules(model: &Model, modules: &[[String; 2]]) -> Option<WeightEdit> {
    let graph = &model.graph;
    let pair = |[a, b]: &[String; 2]| {
        let with_bias = has_bias(graph, a) && has_bias(graph, b);
        weights_of(graph, a, with_bias).into_iter().zip(weights_of(graph, b, with_bias)).map(<[_; 2]>::from)
    };
    let pairs: Vec<[String; 2]> = modules.iter().flat_map(pair).collect();
    let shape = |path: &str| matrix(model, path).map(|(_, shape)| shape);
    let fits = pairs.iter().all(|[a, b]| shape(a).is_some() && shape(a) == shape(b));
    (fits && !pairs.is_empty()).then_some(WeightEdit::Exchange { pairs })
}

fn interleaves(model: &Model, sites: &[&AttentionSite], rows: RowOrder) -> Vec<WeightEdit> {
    let of = |projections: &&[&str]| WeightEdit::Interleave {
        weights: sites
            .iter()
            .flat_map(|site| projections.iter().map(|projection| format!("{}.{projection}", site.path)))
            .flat_map(|module| heads_weights(&model.graph, &module))
            .collect(),
        rows,
    };
    let is_visible = |projections: &&&[&str]| !rows.is_within_head() || projections.len() == 1;
    REORDERED.iter().filter(is_visible).map(of).collect()
}

/// A module with the other sign, including its bias.
fn negation(graph: &Graph, module: &str) -> Option<WeightEdit> {
    let weights = weights_of(graph, module, true);
    (!weights.is_empty()).then_some(WeightEdit::Negate { weights })
}

fn layer_swaps(graph: &Graph) -> Vec<WeightEdit> {
    let mut edits = Vec::new();
    for stack in Stack::ALL {
        let layers = graph.layers(stack);
        for a in 0..layers {
            edits.extend((a + 1..layers).map(|b| WeightEdit::SwapLayers { stack, layers: [a, b] }));
        }
    }
    edits
}

/// Norms of one layer exchanged, and the same in every layer of a stack.
fn norm_exchanges(model: &Model) -> Vec<WeightEdit> {
    let layers = layer_norms(&model.graph);
    let mut edits = Vec::new();
    for (_, norms) in &layers {
        for (i, a) in norms.iter().enumerate() {
            for b in &norms[i + 1..] {
                edits.extend(exchange_modules(model, &[[a.clone(), b.clone()]]));
            }
        }
    }
    for stack in Stack::ALL {
        let of_stack: Vec<&Vec<String>> =
            layers.iter().filter(|(of, _)| *of == stack).map(|(_, norms)| norms).collect();
        let count = of_stack.iter().map(|norms| norms.len()).min().unwrap_or(0);
        for a in 0..count {
            for b in a + 1..count {
                let modules: Vec<[String; 2]> =
                    of_stack.iter().map(|norms| [norms[a].clone(), norms[b].clone()]).collect();
                edits.extend(exchange_modules(model, &modules).filter(|_| modules.len() > 1));
            }
        }
    }
    edits
}

/// Tables moved by a row, and tables of the two stacks exchanged.
fn table_edits(model: &Model) -> Vec<WeightEdit> {
    let mut edits: Vec<WeightEdit> =
        twin_tables(model).into_iter().map(|twins| WeightEdit::Exchange { pairs: vec![twins] }).collect();
    for table in tables(&model.graph) {
        edits.extend([1, -1].map(|rows| WeightEdit::Roll { weights: vec![table.clone()], rows }));
    }
    let both: Vec<String> =
        tables(&model.graph).into_iter().filter(|table| table.ends_with(".positions.weight")).collect();
    if both.len() > 1 {
        edits.extend([1, -1].map(|rows| WeightEdit::Roll { weights: both.clone(), rows }));
    }
    edits
}

/// The gate of gated feed-forward layers and the projection that is activated.
fn gate_exchange(model: &Model, sites: &[&FeedForwardSite]) -> Option<WeightEdit> {
    if sites.is_empty() || sites.iter().any(|site| !site.is_gated) {
        return None;
    }
    let modules: Vec<[String; 2]> =
        sites.iter().map(|site| ["hidden", "gate"].map(|name| format!("{}.{name}", site.path))).collect();
    exchange_modules(model, &modules)
}
