//! The table of compared nodes: those around the first divergence, or all.

use attnscope::figures::{counted, number, share};
use attnscope_diagnose::diff::{Compared, Judged, Report, State};

use crate::diff::fill;
use crate::glyphs::Glyphs;
use crate::hint::Hint;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::tensor_table::shape_text;

/// Rows of the table before and after the first divergence, where not all are asked for.
const BEFORE: usize = 5;
const AFTER: usize = 6;

/// The nodes around the first divergence, or with `full` all; the largest differences first where no order is known.
pub(crate) fn table(report: &Report, full: bool, options: Options) -> String {
    let (from, to) = match &report.first {
        None if !report.largest.is_empty() => return by_size(report, full, options),
        _ if full => (0, report.nodes.len()),
        Some(first) => (first.row.saturating_sub(BEFORE), (first.row + 1 + AFTER).min(report.nodes.len())),
        None => return String::new(),
    };
    let mut table = node_table(report, options);
    for row in report.nodes.get(from..to).unwrap_or_default() {
        table.row(cells(report, row));
    }
    let mut out = String::new();
    if from > 0 {
        let rows = report.nodes.get(..from).unwrap_or_default();
        let text = format!("{} before, {}", counted(from, noun(report)), before(report, rows));
        out += &format!("{}\n", fill(&text, options, 0));
    }
    out += &table.render(options.width);
    if to < report.nodes.len() {
        let left = &report.nodes[to..];
        let apart = left.iter().filter(|row| matches!(row.state, State::After | State::Apart)).count();
        let s = if apart == 1 { "s" } else { "" };
        out += &format!(
            "\n{} after, {apart} of which differ{s}; {} shows them\n",
            counted(left.len(), noun(report)),
            Hint::AllNodes.words(options.reader)
        );
    }
    if options.glyphs == Glyphs::Ascii { out.replace('−', "-") } else { out }
}

/// The nodes that differ, the largest difference first; with `full` all of them, and then the others.
fn by_size(report: &Report, full: bool, options: Options) -> String {
    let mut table = node_table(report, options);
    let shown = if full { report.largest.len() } else { BEFORE + AFTER };
    report
        .largest
        .iter()
        .take(shown)
        .filter_map(|&i| report.nodes.get(i))
        .for_each(|row| table.row(cells(report, row)));
    if full {
        report
            .nodes
            .iter()
            .filter(|row| row.state != State::Apart)
            .for_each(|row| table.row(cells(report, row)));
    }
    let mut out = table.render(options.width);
    if report.largest.len() > shown {
        let all = Hint::AllNodes.words(options.reader);
        out += &match report.largest.len() - shown {
            1 => format!("\n1 more differs; {all} shows it\n"),
            more => format!("\n{more} more differ; {all} shows them\n"),
        };
    }
    if options.glyphs == Glyphs::Ascii { out.replace('−', "-") } else { out }
}

fn node_table(report: &Report, options: Options) -> Table {
    let columns = vec![
        Column::left(noun(report)),
        Column::left("shape"),
        Column::right("max |A−B|"),
        Column::right("of largest"),
        Column::left(""),
    ];
    Table::new(columns, options.glyphs)
}

fn cells(report: &Report, row: &Compared) -> [String; 5] {
    let m = &row.measure;
    let (difference, relative) = match (m.max_abs, m.apart) {
        (0.0, 0) => ("0".to_owned(), String::new()),
        (0.0, apart) => (counted(apart, "cell"), String::new()),
        (max, _) => (number(max), share(m.relative())),
    };
    let state = match row.state {
        State::Same => "same",
        State::Rounding if is_unusual(report, row) => "unusual",
        State::Rounding => "rounding",
        State::First => "◀ first",
        State::After | State::Apart => "differs",
    };
    let state = match &row.seen_as {
        Some(words) => format!("{state} ({words})"),
        None => state.to_owned(),
    };
    [row.node.clone(), shape_text(&row.shape), difference, relative, state]
}

/// The number of the first node that is unusual, or the first divergence.
pub(crate) fn first_off(report: &Report) -> Option<usize> {
    let unusual = report.nodes.iter().position(|row| is_unusual(report, row));
    unusual.into_iter().chain(report.first.as_ref().map(|first| first.row)).min()
}

fn is_unusual(report: &Report, row: &Compared) -> bool {
    report.unusual.iter().any(|unusual| unusual.node == row.node)
}

/// What is said of the nodes before those in the table.
fn before(report: &Report, rows: &[Compared]) -> String {
    let unusual: Vec<&str> =
        rows.iter().filter(|row| is_unusual(report, row)).map(|row| row.node.as_str()).collect();
    match unusual.as_slice() {
        [] if rows.iter().all(|row| row.state == State::Same) => "all equal".to_owned(),
        [] => "all equal up to rounding".to_owned(),
        [node] => format!("{node} unusual; later nodes inherit its difference"),
        [node, ..] => {
            format!("{} of them unusual, the first {node}; later nodes inherit its difference", unusual.len())
        }
    }
}

/// What is compared.
pub(crate) fn noun(report: &Report) -> &'static str {
    if report.judged == Judged::Weights { "weight" } else { "node" }
}

#[cfg(test)]
mod tests {
    use attnscope::answer::{Difference, Party};
    use attnscope_diagnose::diff::{Divergence, Grain, Grounds, Kind, Measure, Order, Short, Unusual, Which};

    use super::*;

    fn row(node: &str, relative: f64, state: State) -> Compared {
        let measure = Measure { max_abs: relative, scale: 1.0, ..Measure::default() };
        let names = [node.to_owned(), node.to_owned()];
        Compared { node: node.into(), names, shape: vec![2], measure, state, seen_as: None, by_values: false }
    }

    fn first(row: usize, node: &str) -> Divergence {
        Divergence {
            row,
            node: node.into(),
            kind: Kind::Bug,
            grounds: Grounds::Recomputed,
            relation: None,
            cause: None,
            also: Vec::new(),
            odd_one: Which::B,
            reads: Vec::new(),
            jumps: true,
            past_tolerance_at: None,
        }
    }

    /// In bf16: 0.5 % of rounding, a node of 3 % that is unusual, more that carry it on, then a bug.
    fn report(is_unusual: bool) -> Report {
        let mut nodes = vec![row("a", 0.005, State::Rounding), row("b", 0.03, State::Rounding)];
        nodes.extend(["c", "d", "e", "f", "g", "h"].map(|node| row(node, 0.1, State::Rounding)));
        nodes.push(row("i", 0.4, State::First));
        let unusual = Unusual { node: "b".into(), share: 3.3, odd_one: Which::B, like: None };
        Report {
            first: Some(first(8, "i")),
            later: Vec::new(),
            unusual: if is_unusual { vec![unusual] } else { Vec::new() },
            other_models: None,
            inputs: None,
            short: vec![Short { side: Which::B, grain: Grain::Bf16, nodes: 9, looked_at: 9 }],
            nodes,
            left: [Vec::new(), Vec::new()],
            judged: Judged::All,
            only_by_values: None,
            unused_model: None,
            order: Order::Graph,
            largest: Vec::new(),
            unused_lines: Vec::new(),
            proposal: None,
        }
    }

    fn text(report: Report) -> String {
        let party = Party { path: "x".into(), kind: "arrays".into(), tensors: 9 };
        let answer = Difference { parties: [party.clone(), party], report, notes: Vec::new() };
        // Where lines are broken does not matter here.
        crate::diff::text(&answer, false, Options::default()).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_an_unusual_node_hands_on_is_not_called_rounding() {
        let said = text(report(true));
        assert!(said.contains("Differences up to 0.5 %"), "{said}");
        assert!(said.contains("3 nodes before, b unusual") && !said.contains("all equal"), "{said}");
        let said = text(report(false));
        assert!(said.contains("Differences up to 10 %"), "{said}");
        assert!(said.contains("3 nodes before, all equal up to rounding"), "{said}");
    }
}
