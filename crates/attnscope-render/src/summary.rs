//! The table of layers.

use attnscope::answer::{Layer, Summary, TorchSummary};
use attnscope::figures::thousands;

use crate::layout::Options;
use crate::table::{Column, Table};

/// A summary for people.
pub fn text(summary: &Summary, options: Options) -> String {
    let input = summary.input;
    let heading = format!(
        "{} · {} · batch {}{}{}",
        summary.model,
        summary.title,
        input.batch,
        input.source.map(|n| format!(", source {n}")).unwrap_or_default(),
        input.target.map(|n| format!(", target {n}")).unwrap_or_default()
    );
    let mut text = options.glyphs.text(&heading);
    text.push_str("\n\n");
    text += &layer_table(&summary.layers, options);
    text.push('\n');
    text += &totals(summary, options);
    if let Some(figures) = &summary.torch_summary {
        text.push('\n');
        text += &torch_summary(figures, options);
    }
    text
}

/// A line a layer: its shape and what it costs.
pub(crate) fn layer_table(layers: &[Layer], options: Options) -> String {
    let columns = vec![
        Column::left("Layer (type:depth-index)"),
        Column::left("Output shape"),
        Column::right("Params"),
        Column::right("Mult-adds"),
        Column::right("MACs"),
    ];
    let mut table = Table::new(columns, options.glyphs).flexible(0);
    for layer in layers {
        let indent = "  ".repeat(layer.depth.saturating_sub(1));
        let label = format!("{indent}{} ({}:{}-{})", layer.name(), layer.kind, layer.depth, layer.index);
        let or_dash = |n: u64| if n == 0 { "–".to_owned() } else { thousands(n) };
        let shape = layer.shape.as_ref().map(|shape| format!("{shape:?}")).unwrap_or_default();
        let parameters = if layer.tied { "(tied)".to_owned() } else { or_dash(layer.parameters) };
        table.row([label, shape, parameters, or_dash(layer.mult_adds), or_dash(layer.macs)]);
    }
    table.render(options.width)
}

/// The figures of lectures and notebooks, as their tool rounds them.
fn torch_summary(figures: &TorchSummary, options: Options) -> String {
    let columns = vec![Column::left(""), Column::right(""), Column::left("")];
    let mut table = Table::new(columns, options.glyphs).flexible(2);
    let mb = |n: u64| format!("{:.2}", n as f64 / f64::from(1 << 20));
    let mult_adds = format!("{:.2}", figures.mult_adds as f64 / 1e6);
    table.row([
        "Total mult-adds (M)",
        &mult_adds,
        "as torch-summary prints it: of one row, without biases of convolutions",
    ]);
    table.row([
        "Input size (MB)",
        &mb(figures.input_bytes),
        "of the batch; a MB has 2^20 bytes from here on",
    ]);
    table.row(["Forward/backward pass size (MB)", &mb(figures.forward_backward_bytes), "of one row"]);
    table.row(["Params size (MB)", &mb(figures.parameter_bytes), ""]);
    table.row(["Estimated Total Size (MB)", &mb(figures.estimated_bytes()), ""]);
    table.render(options.width)
}

fn totals(summary: &Summary, options: Options) -> String {
    let totals = &summary.totals;
    let columns = vec![Column::left(""), Column::right(""), Column::left("")];
    let mut table = Table::new(columns, options.glyphs).flexible(2);
    let (mb, m) = (|n: u64| sized(n, "B"), |n: u64| sized(n, ""));
    table.row(["Total params", &thousands(totals.parameters), "each tied weight once"]);
    if totals.buffers > 0 {
        table.row(["Buffers", &thousands(totals.buffers), "constants in the file, not parameters"]);
    }
    table.row([
        "Mult-adds",
        &m(totals.mult_adds),
        match summary.layers.iter().any(|layer| layer.kind == "Conv1d") {
            true => "as torchinfo counts: parameters × batch, of convolutions × positions; sequence length left out elsewhere",
            false => "as torchinfo counts: parameters × batch, sequence length left out",
        },
    ]);
    table.row(["MACs", &m(totals.macs), "all positions and attention products"]);
    table.row(["Input size", &mb(totals.input_bytes), "ids at 8 bytes, features at 4"]);
    table.row([
        "Forward/backward size",
        &mb(totals.forward_backward_bytes),
        "torchinfo's: twice the outputs of layers with parameters",
    ]);
    table.row(["Params size", &mb(totals.parameter_bytes), "in f32"]);
    table.row(["Estimated total size", &mb(totals.estimated_bytes()), ""]);
    table.row(["Forward memory", &mb(totals.forward_bytes), "every tensor of a traced run kept, in f32"]);
    table.render(options.width)
}

/// A number with the largest unit in which it is 1 or more: `4.64 M`, `5.16 T`, `512 B`.
pub(crate) fn sized(n: u64, unit: &str) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match UNITS.into_iter().find(|(size, _)| n as f64 >= *size) {
        Some((size, name)) => format!("{:.2} {name}{unit}", n as f64 / size),
        None => format!("{n} {unit}").trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::sized;

    #[test]
    fn a_number_has_the_unit_of_its_size() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (4_641_538, "4.64 MB"),
            (5_156_100_000_000, "5.16 TB"),
        ];
        for (n, text) in cases {
            assert_eq!(sized(n, "B"), text);
        }
        assert_eq!((sized(12, ""), sized(68_228_482, "")), ("12".into(), "68.23 M".into()));
    }
}
