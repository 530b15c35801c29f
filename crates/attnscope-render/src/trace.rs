//! A run in print: tokens, tensors in a table or their values, attention as heatmaps with a line of measures a head.

use attnscope::AttentionMap;
use attnscope::answer::{
    ClassifiedRow, FullyMasked, SnapshotValues, TargetLoss, Tensor, Trace, TracedNode, TracedSnapshot,
};
use attnscope::figures::{counted, number};
use attnscope_run::trace::{Precision, gradient_name};

use crate::array::Array;
use crate::glyphs::clean;
use crate::heatmap::Heatmap;
use crate::heatmap_svg::attention_svg;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::tensor_table::{TensorRow, shape_text, tensor_table};
use crate::text::Style;
use crate::tokens;
use crate::wrap::wrap_plain;

/// A run for a reader; `full` prints every value where values are asked for.
pub fn text(trace: &Trace, full: bool, options: Options, style: Style) -> String {
    let mut sections = vec![heading(trace, options), tokens::text(&trace.tokens, options.width)];
    if trace.with_values {
        sections.extend(payloads(trace, options.width, full));
    } else {
        sections.push(tensor_table(&rows(trace), options));
        let order = trace.walk.as_ref().and_then(|walk| walk.order.as_deref());
        sections.extend(order.map(|note| filled(note, options)));
    }
    if !trace.classified.is_empty() {
        sections
            .push(filled(&trace.classified.iter().map(class_words).collect::<Vec<_>>().join("; "), options));
    }
    if let Some(loss) = &trace.loss {
        sections.push(filled(&loss_words(loss), options));
        match trace.with_values {
            true => sections.extend(gradient_payloads(trace, options.width, full)),
            false => sections.push(tensor_table(&gradient_rows(trace), options)),
        }
    }
    if !trace.fully_masked.is_empty() {
        let line = |FullyMasked { node, rows }: &FullyMasked| {
            format!("! {node}: {} fully masked; weights are 0\n", counted(*rows, "row"))
        };
        sections.push(trace.fully_masked.iter().map(line).collect());
    }
    if !trace.maps.is_empty() {
        sections.push(filled(&axes(trace, &Heatmap::legend(options.glyphs)), options));
    }
    sections.extend(trace.maps.iter().map(|map| attention_text(map, options, style)));
    options.glyphs.lines(&sections.join("\n"))
}

/// The attentions of a run as a picture.
pub fn svg(trace: &Trace) -> String {
    attention_svg(&format!("{}: {}", trace.name, trace.title), &trace.maps)
}

fn heading(trace: &Trace, options: Options) -> String {
    let precision = match trace.precision {
        Precision::F32 => "f32",
        Precision::F64 => "f64, reference",
    };
    options.glyphs.lines(&format!("{}: {}, {precision}\n", clean(&trace.name), trace.title))
}

fn filled(text: &str, options: Options) -> String {
    wrap_plain(text, options.width).join("\n") + "\n"
}

/// What stands across and down in heatmaps.
fn axes(trace: &Trace, legend: &str) -> String {
    let all = |is: fn(&AttentionMap) -> bool| trace.maps.iter().all(is);
    let reads_source = trace.maps.iter().any(|map| map.reads_source);
    let seconds = match trace.tokens.features {
        Some(_) if reads_source => ", the source in seconds",
        _ => "",
    };
    let (name, across) = match all(|map| map.is_cross) {
        true => ("Cross-attention", "source"),
        false => ("Attention", "keys"),
    };
    let down = match (all(|map| map.of_decoder), all(|map| !map.of_decoder)) {
        (true, _) => "the token that is read ⇒ the one to be written",
        (_, true) => "queries",
        _ => "queries, of a decoder as the token that is read ⇒ the one to be written",
    };
    format!("{name}: {across} across{seconds}; down, {down}. {legend}")
}

/// The lines of the table.
fn rows(trace: &Trace) -> Vec<TensorRow> {
    let of_node = |node: &TracedNode| TensorRow {
        number: None,
        path: node.path.clone(),
        what: node.what.to_owned(),
        dims: node.dims.clone(),
        shape: node.shape.clone().unwrap_or_default(),
        stats: node.stats,
        masks: node.is_mask,
    };
    let of_stop = |stop: &TracedSnapshot| TensorRow {
        number: Some(stop.number),
        path: stop.node.clone(),
        what: match stop.beside_names.is_empty() {
            true => stop.what.to_owned(),
            false => format!("{}, with {}", stop.what, stop.beside_names.join(", ")),
        },
        dims: stop.dims.clone(),
        shape: stop.shown.as_ref().map(|(shape, _)| shape.clone()).unwrap_or_default(),
        stats: stop.shown.as_ref().map(|(_, stats)| *stats),
        masks: stop.is_mask,
    };
    match &trace.walk {
        None => trace.nodes.iter().map(of_node).collect(),
        Some(walk) => walk.stops.iter().map(of_stop).collect(),
    }
}

/// `Class positive: positive 93.1 %, negative 6.9 %`
fn class_words(row: &ClassifiedRow) -> String {
    let shares: Vec<String> = row
        .classes
        .iter()
        .zip(&row.probabilities)
        .map(|(class, share)| format!("{} {:.1} %", clean(class), 100.0 * share))
        .collect();
    let class = row.classes.get(row.class).map(|class| clean(class)).unwrap_or_default();
    format!("Class {class} ({}, softmax of the scores)", shares.join(", "))
}

fn loss_words(loss: &TargetLoss) -> String {
    let TargetLoss { nll, targets } = loss;
    format!("Gradients of the mean NLL of {}, {} nats:", counted(*targets, "target"), number(*nll))
}

/// The gradients that were measured, in the order of their tensors.
fn gradient_rows(trace: &Trace) -> Vec<TensorRow> {
    let row = |node: &TracedNode| {
        Some(TensorRow {
            number: None,
            path: gradient_name(&node.path),
            what: String::new(),
            dims: node.dims.clone(),
            shape: node.shape.clone().unwrap_or_default(),
            stats: Some(node.gradient?),
            masks: false,
        })
    };
    trace.nodes.iter().filter_map(row).collect()
}

/// The values of every kept gradient, each under its name.
fn gradient_payloads(trace: &Trace, width: usize, full: bool) -> Vec<String> {
    let print = |node: &TracedNode| {
        let Tensor { shape, values, .. } = trace.kept_gradient(node.id)?;
        let array = Array { shape, values: &values.as_f64(), whole: false };
        Some(format!("{} {}\n{}", gradient_name(&node.path), shape_text(shape), array.text(width, full)))
    };
    trace.nodes.iter().filter_map(print).collect()
}

/// The values of everything that was picked, each under its name.
fn payloads(trace: &Trace, width: usize, full: bool) -> Vec<String> {
    let print = |title: String, shape: &[usize], values: &[f64], whole: bool| {
        let array = Array { shape, values, whole };
        format!("{title} {}\n{}", shape_text(shape), array.text(width, full))
    };
    let of_node = |node: &TracedNode, number: &str| {
        let Tensor { shape, values, .. } = trace.kept(node.id)?;
        Some(print(format!("{number}{}", node.path), shape, &values.as_f64(), node.is_ids))
    };
    let of_stop = |stop: &TracedSnapshot| match (&stop.values, &stop.shown) {
        (SnapshotValues::Absent, _) => vec![format!("#{} {}: absent\n", stop.number, stop.node)],
        (SnapshotValues::Nodes(ids), _) => {
            let node = |id| trace.nodes.iter().find(|node| node.id == id);
            let number = format!("#{} ", stop.number);
            ids.iter().filter_map(|&id| of_node(node(id)?, &number)).collect()
        }
        (SnapshotValues::Cut { values, print_all }, Some((shape, _))) => {
            let title = format!("#{} {}, {}", stop.number, stop.node, stop.what);
            vec![print(title, shape, values, *print_all)]
        }
        (SnapshotValues::Cut { .. }, None) => Vec::new(),
    };
    match &trace.walk {
        None => trace.nodes.iter().filter_map(|node| of_node(node, "")).collect(),
        Some(walk) => walk.stops.iter().flat_map(of_stop).collect(),
    }
}

/// An attention: titles and heatmaps, a line a head.
pub fn attention_text(map: &AttentionMap, options: Options, style: Style) -> String {
    let mut out = String::new();
    for (what, values) in &map.panels {
        out += &format!("{}, {what}\n\n", map.path);
        out += &Heatmap { rows: &map.rows, columns: &map.columns, values }.text(options, style);
        out.push('\n');
    }
    let mut table = Table::new(
        vec![
            Column::right("head"),
            Column::right("entropy / ln S"),
            Column::right("peak × S"),
            Column::right("on end token"),
        ],
        options.glyphs,
    );
    let or_none = |x: Option<f64>| x.map_or_else(|| "–".to_owned(), |x| format!("{x:.3}"));
    for (h, head) in map.heads.iter().enumerate() {
        table.row([
            h.to_string(),
            or_none(head.entropy),
            format!("{:.2}", head.peak),
            or_none(head.end_share),
        ]);
    }
    out + &table.render(options.width)
}
