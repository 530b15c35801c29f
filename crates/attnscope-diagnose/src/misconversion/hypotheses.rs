//! Every repair that makes sense for a model, before anything is measured.

use attnscope_graph::{
    AttentionKind, AttentionPlace, AttentionStep, Dim, EntryStep, FeedForwardStep, Graph, Model, Op, Role,
    Rotary, RotaryPairs, Stack, WeightRole,
};

use super::edit::{RowOrder, WeightEdit, matrix, twins};
use super::sites::{
    FeedForwardSite, Sublayer, attentions, feed_forwards, has, layer_norms, tables, twin_tables, weights_of,
};
use AttentionStep::{K, Out, Q, V};

/// The projections of an attention that can be confused.
const EXCHANGED: [[AttentionStep; 2]; 6] = [[Q, K], [Q, V], [K, V], [Q, Out], [K, Out], [V, Out]];
/// The projections that are confused in every layer at once.
const EXCHANGED_EVERYWHERE: [[AttentionStep; 2]; 3] = [[Q, K], [Q, V], [K, V]];
/// Projections that are put in another order together. Within a head, the same order of q and k changes no score, unless they are
/// rotated.
const REORDERED: [&[AttentionStep]; 6] = [&[Q], &[K], &[V], &[Out], &[Q, K], &[Q, K, V]];

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
    edits.extend(gate_exchange(model, &gated).filter(|_| gated.len() > 1));
    edits
}

/// Repairs of one attention, without factors and the order of heads.
pub(super) fn of_attention(model: &Model, site: AttentionPlace) -> Vec<WeightEdit> {
    let here = [site];
    let mut edits = transposes(model, &here);
    edits.extend(exchanges(model, &here, &EXCHANGED));
    edits.extend(RowOrder::ALL.iter().flat_map(|rows| interleaves(model, &here, *rows)));
    for projection in [Q, K, V, Out] {
        edits.extend(negation(&model.graph, site.step(projection)));
    }
    edits
}

/// Repairs of one feed-forward layer.
pub(super) fn of_feed_forward(model: &Model, site: FeedForwardSite) -> Vec<WeightEdit> {
    let mut edits: Vec<WeightEdit> = gate_exchange(model, &[site]).into_iter().collect();
    for step in [FeedForwardStep::Hidden, FeedForwardStep::Gate, FeedForwardStep::Out] {
        let module = site.step(step);
        edits.extend(negation(&model.graph, module));
        edits.extend(square(model, module).map(|weight| WeightEdit::Transpose { weights: vec![weight] }));
    }
    edits
}

/// Whole sublayers, with their norms, exchanged between two layers: every two of some that have the same place in their layer.
pub(super) fn sublayer_exchanges(model: &Model, sublayers: &[Sublayer]) -> Vec<WeightEdit> {
    let mut edits = Vec::new();
    for (i, &a) in sublayers.iter().enumerate() {
        for b in sublayers[i + 1..].iter().filter(|b| a.is_of_another_layer(**b)) {
            let pairs = twins(&model.graph, |owner| Sublayer::of(owner) == Some(a), b.layer);
            edits.extend((!pairs.is_empty()).then_some(WeightEdit::Exchange { pairs }));
        }
    }
    edits
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
    site: AttentionPlace,
    projections: &[AttentionStep],
    order: &[usize],
) -> WeightEdit {
    let modules = projections.iter().map(|&projection| site.step(projection));
    let weights = modules.flat_map(|module| heads_weights(&model.graph, module)).collect();
    WeightEdit::PermuteHeads { weights, order: order.to_vec() }
}

/// Projections whose heads can be permuted independently.
pub(super) const PERMUTED: [&[AttentionStep]; 5] = [&[Q], &[K], &[V], &[Out], &[Q, K]];

/// The weights of a projection that have the heads' dimension: the output projection's bias has not.
fn heads_weights(graph: &Graph, module: Role) -> Vec<WeightRole> {
    let has_heads = |role: &WeightRole| {
        graph.weight_at(*role).is_some_and(|id| {
            graph.weight(id).dims.iter().any(|dim| matches!(dim, Dim::Inner(_) | Dim::KvInner(_)))
        })
    };
    weights_of(graph, module, true).into_iter().filter(has_heads).collect()
}

/// Attentions that a systematic mistake affects together.
fn groups(sites: &[AttentionPlace]) -> Vec<Vec<AttentionPlace>> {
    let of = |kind: AttentionKind, stacks: &[Stack]| -> Vec<AttentionPlace> {
        let is_of = |site: &AttentionPlace| site.kind == kind && stacks.contains(&site.stack);
        sites.iter().copied().filter(is_of).collect()
    };
    let groups = [
        sites.to_vec(),
        of(AttentionKind::SelfAttention, &Stack::ALL),
        of(AttentionKind::SelfAttention, &[Stack::Encoder]),
        of(AttentionKind::SelfAttention, &[Stack::Decoder]),
        of(AttentionKind::CrossAttention, &Stack::ALL),
    ];
    let mut distinct: Vec<Vec<AttentionPlace>> = Vec::new();
    for group in groups.into_iter().filter(|group| group.len() > 1) {
        if !distinct.contains(&group) {
            distinct.push(group);
        }
    }
    distinct
}

/// A module's matrix, if it is square.
fn square(model: &Model, module: Role) -> Option<WeightRole> {
    let (_, shape) = matrix(model, module.weight())?;
    (shape.len() == 2 && shape[0] == shape[1]).then_some(module.weight())
}

/// Each projection transposed, and all of them.
fn transposes(model: &Model, sites: &[AttentionPlace]) -> Vec<WeightEdit> {
    let of = |projections: &[AttentionStep]| -> Option<WeightEdit> {
        let weights = modules(sites, projections).map(|module| square(model, module));
        Some(WeightEdit::Transpose { weights: weights.collect::<Option<Vec<_>>>()? })
    };
    let sets: [&[AttentionStep]; 5] = [&[Q], &[K], &[V], &[Out], &[Q, K, V, Out]];
    sets.into_iter().filter_map(of).collect()
}

/// Some projections of some attentions, attention by attention.
fn modules(sites: &[AttentionPlace], projections: &[AttentionStep]) -> impl Iterator<Item = Role> {
    sites.iter().flat_map(move |site| projections.iter().map(move |&projection| site.step(projection)))
}

/// Two projections exchanged, with their biases.
fn exchanges(model: &Model, sites: &[AttentionPlace], exchanged: &[[AttentionStep; 2]]) -> Vec<WeightEdit> {
    let modules = |pair: [AttentionStep; 2]| -> Vec<[Role; 2]> {
        sites.iter().map(|site| pair.map(|projection| site.step(projection))).collect()
    };
    exchanged.iter().filter_map(|&pair| exchange_modules(model, &modules(pair))).collect()
}

/// Modules exchanged two by two, with their biases where both have one.
fn exchange_modules(model: &Model, modules: &[[Role; 2]]) -> Option<WeightEdit> {
    let graph = &model.graph;
    let pair = |&[a, b]: &[Role; 2]| {
        let with_bias = has(graph, a.bias()) && has(graph, b.bias());
        weights_of(graph, a, with_bias).into_iter().zip(weights_of(graph, b, with_bias)).map(<[_; 2]>::from)
    };
    let pairs: Vec<[WeightRole; 2]> = modules.iter().flat_map(pair).collect();
    let shape = |role: WeightRole| matrix(model, role).map(|(_, shape)| shape);
    let fits = pairs.iter().all(|&[a, b]| shape(a).is_some() && shape(a) == shape(b));
    (fits && !pairs.is_empty()).then_some(WeightEdit::Exchange { pairs })
}

fn interleaves(model: &Model, sites: &[AttentionPlace], rows: RowOrder) -> Vec<WeightEdit> {
    let of = |projections: &&[AttentionStep]| WeightEdit::Interleave {
        weights: modules(sites, projections).flat_map(|module| heads_weights(&model.graph, module)).collect(),
        rows,
    };
    let is_visible = |projections: &&&[AttentionStep]| {
        !rows.is_within_head()
            || projections.len() == 1
            || (***projections == [Q, K] && is_turned_otherwise(model, sites, rows))
    };
    REORDERED.iter().filter(is_visible).map(of).collect()
}

/// Whether q and k with their rows in another order, the same in both, have other scores: rotary positions turn pairs of rows. In
/// all attentions at once one of the orders is no mistake of the weights: it is the other `rotary_layout`.
fn is_turned_otherwise(model: &Model, sites: &[AttentionPlace], rows: RowOrder) -> bool {
    let rotary = |site: &AttentionPlace| {
        let id = model.graph.at(site.step(AttentionStep::QRot))?;
        match model.graph.node(id).op {
            Op::Rotate { rotary, .. } => Some(rotary),
            _ => None,
        }
    };
    let all: Vec<Rotary> = sites.iter().filter_map(rotary).collect();
    // Where a share of the features is rotated, no converter moves rows.
    if all.is_empty() || all.len() < sites.len() || all.iter().any(|rotary| rotary.share != 1.0) {
        return false;
    }
    let is_layout = all.iter().all(|rotary| match rotary.pairs {
        RotaryPairs::Halves => rows == RowOrder::PairsToHalves,
        RotaryPairs::Neighbours => rows == RowOrder::HalvesToPairs,
    });
    !(is_layout && sites.len() == attentions(&model.graph).len())
}

/// A module with the other sign, including its bias.
fn negation(graph: &Graph, module: Role) -> Option<WeightEdit> {
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
        for (i, &a) in norms.iter().enumerate() {
            for &b in &norms[i + 1..] {
                edits.extend(exchange_modules(model, &[[a, b]]));
            }
        }
    }
    for stack in Stack::ALL {
        let of_stack: Vec<&Vec<Role>> =
            layers.iter().filter(|(of, _)| *of == stack).map(|(_, norms)| norms).collect();
        let count = of_stack.iter().map(|norms| norms.len()).min().unwrap_or(0);
        for a in 0..count {
            for b in a + 1..count {
                let modules: Vec<[Role; 2]> = of_stack.iter().map(|norms| [norms[a], norms[b]]).collect();
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
        edits.extend([1, -1].map(|rows| WeightEdit::Roll { weights: vec![table], rows }));
    }
    let of_positions = |table: &WeightRole| matches!(table.owner, Role::Entry(_, EntryStep::Positions));
    let both: Vec<WeightRole> = tables(&model.graph).into_iter().filter(of_positions).collect();
    if both.len() > 1 {
        edits.extend([1, -1].map(|rows| WeightEdit::Roll { weights: both.clone(), rows }));
    }
    edits
}

/// The gate of gated feed-forward layers and the projection that is activated.
fn gate_exchange(model: &Model, sites: &[FeedForwardSite]) -> Option<WeightEdit> {
    if sites.is_empty() || sites.iter().any(|site| !site.is_gated) {
        return None;
    }
    let pair = [FeedForwardStep::Hidden, FeedForwardStep::Gate];
    let modules: Vec<[Role; 2]> = sites.iter().map(|site| pair.map(|step| site.step(step))).collect();
    exchange_modules(model, &modules)
}
