//! Where two runs part: the verdict first, then the nodes around it.

use attnscope::Party;
use attnscope_diagnose::diff::{
    Compared, Divergence, Explanation, Grounds, InputDifference, Judged, Kind, Order, Relation, Report,
    Short, State, Unusual,
};
use attnscope_graph::Side;
use serde_json::{Value, json};

use crate::glyphs::Glyphs;
use crate::json::SCHEMA;
use crate::layout::Options;
use crate::plural::counted;
use crate::table::{Column, Table};
use crate::trace::{number, shape_text};
use crate::wrap::{shown, wrap};

/// Rows of the table before and after the first divergence, where not all are asked for.
const BEFORE: usize = 5;
const AFTER: usize = 6;
/// Names of tensors that were not compared.
const NAMES: usize = 6;

/// The comparison for a reader; `full` shows every compared node.
pub fn text(report: &Report, parties: &[Party; 2], full: bool, options: Options) -> String {
    let mut out = heading(parties, options);
    out.push('\n');
    if let Some(inputs) = &report.inputs {
        out += &fill("the two runs did not read the same input", options, 0);
        return out + &fill(&input_sentence(inputs), options, 2);
    }
    match &report.first {
        Some(first) => out += &divergence(report, first, options),
        None if !report.largest.is_empty() => out += &ranked(report, options),
        None => out += &fill(&agreement(report), options, 0),
    }
    for sentence in short_sentences(report).into_iter().chain(unusual_sentences(report)) {
        out += &fill(&sentence, options, 0);
    }
    for remark in by_values(report).into_iter().chain(judged(report)) {
        out += &fill(&remark, options, 0);
    }
    let table = table(report, full, options);
    if !table.is_empty() {
        out += &format!("\n{table}");
    }
    out += &not_compared(report, options);
    out += &unused_lines(report, options);
    out + &proposal(report, options)
}

fn heading(parties: &[Party; 2], options: Options) -> String {
    let mut table =
        Table::new(vec![Column::left(""), Column::left(""), Column::left("")], options.glyphs).flexible(1);
    for (name, party) in ["A", "B"].into_iter().zip(parties) {
        let what = format!("{}, {} tensors", party.kind, party.tensors);
        table.row([name, &party.path, &what]);
    }
    table.render(options.width)
}

/// A text over as many lines as it needs.
fn fill(text: &str, options: Options, indent: usize) -> String {
    let lines = wrap(&shown(text, options.glyphs), options.width.saturating_sub(indent));
    lines.iter().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// A number with all that matters when it stands beside a near one.
fn exact(x: f64) -> String {
    match x.abs() {
        _ if x.is_nan() => "NaN".into(),
        _ if x.is_infinite() => if x > 0.0 { "∞" } else { "−∞" }.into(),
        0.0 => "0".into(),
        a if !(1e-4..1e7).contains(&a) => format!("{x:.6e}"),
        _ => {
            let text = format!("{x:.7}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// A part of the largest value.
fn share(relative: f64) -> String {
    match relative {
        r if r >= 0.1 => format!("{:.0} %", 100.0 * r),
        r if r >= 1e-3 => format!("{:.1} %", 100.0 * r),
        r => format!("{r:.1e}"),
    }
}

/// The place of a cell: `(0,3,1)`.
fn place(shape: &[usize], mut at: usize) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (i, &length) in shape.iter().enumerate().rev() {
        place[i] = at % length.max(1);
        at /= length.max(1);
    }
    place
}

fn divergence(report: &Report, first: &Divergence, options: Options) -> String {
    let Some(row) = report.nodes.get(first.row) else { return String::new() };
    let verdict = match (first.kind, first.grounds) {
        (Kind::Bug, Grounds::Recomputed) => "a bug: it does not follow from its inputs",
        (Kind::Bug, Grounds::Growth) => "a bug: the difference jumps here",
        (Kind::Bug, Grounds::Weights) => "other weights, not another rounding of them",
        (Kind::Drift, Grounds::Weights) => {
            "drift: differences that are small everywhere, as of a quantisation or further training"
        }
        (Kind::Drift, _) if first.jumps => {
            "past the tolerance: the difference is new here, and is not proven to be more than rounding"
        }
        (Kind::Drift, _) => "drift: rounding that has grown, no step",
    };
    let mut lines =
        vec![format!("first divergence: {} {}", first.node, shape_text(&row.shape)), verdict.to_owned()];
    if let Some(relation) = &first.relation {
        let about = first.cause.as_ref().map(|cause| format!(", at {cause} on the way")).unwrap_or_default();
        lines.push(format!("{}{about}", relation.sentence(first.odd_one.name())));
    }
    for other in &first.also {
        let about = other.cause.as_ref().map(|cause| format!(", at {cause} on the way")).unwrap_or_default();
        lines.push(format!("or: {}{about}", other.relation.sentence(first.odd_one.name())));
    }
    lines.extend(cell_lines(row, first));
    if first.reads.is_empty() && first.kind == Kind::Bug && report.judged != Judged::Weights {
        lines.push("nothing before it was dumped by both: another input would look the same".to_owned());
    }
    if !first.reads.is_empty() {
        let agree = match (first.kind, report.judged) {
            (Kind::Bug, Judged::NoTrace | Judged::NotRebuilt) => "what comes before it agrees",
            (Kind::Bug, _) => "its inputs agree",
            (Kind::Drift, _) => "it is computed from",
        };
        lines.push(format!("{agree}: {}", first.reads.join(", ")));
    }
    if !report.later.is_empty() {
        let shown: Vec<&str> = report.later.iter().take(NAMES).map(String::as_str).collect();
        let more = if report.later.len() > NAMES { ", …" } else { "" };
        lines.push(format!(
            "after it, these do not follow from their inputs, either: {}{more}",
            shown.join(", ")
        ));
    }
    let indented = |(i, line): (usize, &String)| fill(line, options, if i == 0 { 0 } else { 2 });
    lines.iter().enumerate().map(indented).collect()
}

/// The cell that differs most, and the first that is no number on one side.
fn cell_lines(row: &Compared, first: &Divergence) -> Vec<String> {
    if matches!(first.relation, Some(Relation::OtherShape { .. })) {
        return Vec::new();
    }
    let m = &row.measure;
    let at = |i: usize| shape_text(&place(&row.shape, i));
    let mut lines = Vec::new();
    if m.max_abs > 0.0 {
        lines.push(format!(
            "largest difference {} ({} of the largest value) at {}: A {}, B {}",
            number(m.max_abs),
            share(m.relative()),
            at(m.at),
            exact(m.a),
            exact(m.b)
        ));
    }
    match m.first_apart {
        Some((cell, [a, b])) => {
            let are = if m.apart == 1 { "1 cell is".to_owned() } else { format!("{} cells are", m.apart) };
            lines.push(format!(
                "{are} NaN or infinite on one side alone, the first at {}: A {}, B {}",
                at(cell),
                exact(a),
                exact(b)
            ));
        }
        // A weight that one file does not have.
        None if m.apart > 0 => lines.push(format!("{} values", m.apart)),
        None => {}
    }
    lines
}

/// What differs, where nothing says what was computed first.
fn ranked(report: &Report, options: Options) -> String {
    let (count, all) = (report.largest.len(), report.nodes.len());
    let text = format!(
        "{count} of {all} nodes differ. No order of computation is known: the tensors are listed by name, and the names are those \
         of no known model. So none is called the first; the largest differences come first."
    );
    let help = "--model FILE gives an order; so does a dump in one .pt or .npz that is written as modules are called.";
    format!("{}{}", fill(&text, options, 0), fill(help, options, 0))
}

fn input_sentence(inputs: &InputDifference) -> String {
    match inputs {
        InputDifference::Ids { side, row, position, ids: [a, b] } => {
            let of = if *side == Side::Source { "source" } else { "target" };
            format!(
                "{of}, row {row}, position {position}: id {a} in A, {b} in B; nothing after that can agree"
            )
        }
        InputDifference::Length { what, lengths: [a, b] } => format!("{what}: {a} in A, {b} in B"),
        InputDifference::Audio { relative } => {
            format!("other audio, or other features of it: they differ by {} of their size", share(*relative))
        }
    }
}

/// What was computed in a shorter type, and what that explains.
fn short_sentences(report: &Report) -> Vec<String> {
    let explained = |row: &&Compared| row.state == State::Rounding;
    let most = report.nodes.iter().filter(explained).map(|row| row.measure.relative()).fold(0.0, f64::max);
    let sentence = |short: &Short| {
        let (side, grain, nodes) = (short.side.name(), short.grain.name(), short.nodes);
        let hold = if nodes == 1 { "holds" } else { "hold" };
        if !short.is_everywhere() {
            let of = short.looked_at;
            return format!(
                "{nodes} of {of} tensors of {side} that were looked at {hold} values of {grain} alone."
            );
        }
        format!(
            "{side} was computed in {grain}: {nodes} of its tensors {hold} values of that type alone. Differences up to {} of the \
             largest value are explained by it.",
            share(most)
        )
    };
    report.short.iter().map(sentence).collect()
}

/// Nodes near their bounds in one sentence; those that are like something known in one of their own.
fn unusual_sentences(report: &Report) -> Vec<String> {
    let (like, near): (Vec<&Unusual>, Vec<&Unusual>) = report.unusual.iter().partition(|u| u.like.is_some());
    let place = |unusual: &Unusual| format!("{} ({:.1} × its bound)", unusual.node, unusual.share);
    let one = |unusual: &&Unusual| {
        let relation = unusual.like.as_ref()?.sentence(unusual.odd_one.name());
        Some(format!("unusual, not proven: {}: all cells together say that {relation}", place(unusual)))
    };
    let mut all: Vec<String> = like.iter().take(NAMES).filter_map(one).collect();
    let names: Vec<String> = near.iter().take(NAMES).map(|unusual| place(unusual)).collect();
    let more = if near.len() > NAMES { ", …" } else { "" };
    if !names.is_empty() {
        let names = names.join(", ");
        all.push(format!("unusual, not proven: outside the bound of rounding, but not far: {names}{more}"));
    }
    all
}

/// What is compared.
fn noun(report: &Report) -> &'static str {
    if report.judged == Judged::Weights { "weight" } else { "node" }
}

fn agreement(report: &Report) -> String {
    let count = report.nodes.len();
    let compared = counted(count, noun(report));
    let same = report.nodes.iter().filter(|n| n.state == State::Same).count();
    let furthest = report.nodes.iter().max_by(|a, b| a.measure.relative().total_cmp(&b.measure.relative()));
    let verdict = match report.unusual.is_empty() {
        _ if report.only_by_values.is_some() => "what was compared agrees",
        true => "no difference beyond rounding",
        false => "no difference that is proven to be more than rounding",
    };
    if let Some(left) = report.only_by_values {
        let were = if left == 1 { "was" } else { "were" };
        return format!(
            "{verdict}; {} of theirs {were} not compared. {compared} found by their values alone, which is the equality that is \
             then tested: it proves nothing. Say which names belong together with --map FILE.",
            counted(left, "tensor"),
        );
    }
    match furthest {
        Some(row) if same < count => format!(
            "{verdict}: {compared} compared, {same} the same bit for bit, {} apart by rounding, at \
             most {} of the largest value ({})",
            count - same,
            share(row.measure.relative()),
            row.node
        ),
        _ => format!("no difference: {compared} compared, all the same bit for bit"),
    }
}

/// What was paired by the equality that is then tested, beside what was paired by name.
fn by_values(report: &Report) -> Option<String> {
    let found = report.nodes.iter().filter(|row| row.by_values).count();
    let nodes = counted(found, "node");
    (found > 0 && report.only_by_values.is_none()).then(|| {
        format!("{nodes} found by values alone, not by name: that they agree proves nothing (`by its values` in --full).")
    })
}

/// What the verdict rests on, where it is not everything.
fn judged(report: &Report) -> Option<String> {
    if let Some(why) = &report.unused_model {
        return Some(format!(
            "The model that was given does not fit and was not used: {why}. Nodes with weights could not be computed again."
        ));
    }
    let remark = match report.judged {
        Judged::All | Judged::Weights => None,
        Judged::WithoutWeights => Some(
            "The model is not at hand, so nodes with weights could not be computed again; --model FILE gives it.",
        ),
        Judged::NotRebuilt => Some(
            "The graph of the trace cannot be rebuilt, or does not fit its tokens, so nothing could be computed again from its \
             inputs; --model FILE may help.",
        ),
        Judged::NoTrace => Some(
            "Neither side is a trace of ours, so nothing could be computed again from its inputs; --model FILE helps where the \
             dumps hold the token ids.",
        ),
    };
    remark.map(str::to_owned)
}

fn table(report: &Report, full: bool, options: Options) -> String {
    let (from, to) = match &report.first {
        None if !report.largest.is_empty() => return by_size(report, full, options),
        _ if full => (0, report.nodes.len()),
        Some(first) => (first.row.saturating_sub(BEFORE), (first.row + 1 + AFTER).min(report.nodes.len())),
        None => return String::new(),
    };
    let mut table = node_table(report, options);
    for row in report.nodes.get(from..to).unwrap_or_default() {
        table.row(cells(row));
    }
    let mut out = String::new();
    if from > 0 {
        out += &format!("{} before, all equal but for rounding\n\n", counted(from, noun(report)));
    }
    out += &table.render(options.width);
    if to < report.nodes.len() {
        let left = &report.nodes[to..];
        let apart = left.iter().filter(|row| row.state == State::After).count();
        let s = if apart == 1 { "s" } else { "" };
        out += &format!(
            "\n{} after, {apart} of which differ{s}; --full shows them\n",
            counted(left.len(), noun(report))
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
        .for_each(|row| table.row(cells(row)));
    if full {
        report.nodes.iter().filter(|row| row.state != State::Apart).for_each(|row| table.row(cells(row)));
    }
    let mut out = table.render(options.width);
    if report.largest.len() > shown {
        out += &match report.largest.len() - shown {
            1 => "\n1 more differs; --full shows it\n".to_owned(),
            more => format!("\n{more} more differ; --full shows them\n"),
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

fn cells(row: &Compared) -> [String; 5] {
    let m = &row.measure;
    let (difference, relative) = match (m.max_abs, m.apart) {
        (0.0, 0) => ("0".to_owned(), String::new()),
        (0.0, apart) => (counted(apart, "cell"), String::new()),
        (max, _) => (number(max), share(m.relative())),
    };
    let state = match row.state {
        State::Same => "same",
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

fn not_compared(report: &Report, options: Options) -> String {
    let line = |(name, left): (&str, &Vec<String>)| {
        let shown: Vec<&str> = left.iter().take(NAMES).map(String::as_str).collect();
        let more = if left.len() > NAMES { ", …" } else { "" };
        let text = format!("not compared, of {name}: {} ({}{more})", left.len(), shown.join(", "));
        fill(&text, options, 0)
    };
    let left: Vec<String> =
        ["A", "B"].into_iter().zip(&report.left).filter(|(_, l)| !l.is_empty()).map(line).collect();
    if left.is_empty() { String::new() } else { format!("\n{}", left.concat()) }
}

fn unused_lines(report: &Report, options: Options) -> String {
    let line = |line: &attnscope_diagnose::diff::UnusedLine| {
        let [a, b] = &line.names;
        fill(&format!("line {} of the map matched nothing ({a} = {b}): {}", line.line, line.why), options, 0)
    };
    let lines: Vec<String> = report.unused_lines.iter().map(line).collect();
    if lines.is_empty() { String::new() } else { format!("\n{}", lines.concat()) }
}

/// Lines of a map, whole however wide: they are to be copied.
fn proposal(report: &Report, options: Options) -> String {
    let Some(proposal) = &report.proposal else { return String::new() };
    let [paired, unmatched] = proposal.tensors;
    let text = format!(
        "{unmatched} tensors have names that mean no node. For {paired} of them this map may fit; it was not used. Read it, put \
         what is right into a file, and give it with --map FILE:"
    );
    let lines: String =
        proposal.lines.iter().map(|line| format!("{}\n", shown(line, options.glyphs))).collect();
    format!("\n{}\n{lines}", fill(&text, options, 0))
}

/// The comparison for programs.
pub fn json(report: &Report, [a, b]: &[Party; 2]) -> Value {
    let side = |party: &Party| json!({ "path": party.path, "kind": party.kind, "tensors": party.tensors });
    let nodes: Vec<Value> = report.nodes.iter().map(node_json).collect();
    json!({
        "schema": SCHEMA,
        "a": side(a),
        "b": side(b),
        "first_divergence": report.first.as_ref().map(|first| first_json(report, first)),
        "later_bugs": report.later,
        "unusual": report.unusual.iter().map(unusual_json).collect::<Vec<Value>>(),
        "inputs": if report.inputs.is_some() { "different" } else { "same" },
        "input_difference": report.inputs.as_ref().map(input_json),
        "precision": report.short.iter().map(short_json).collect::<Vec<Value>>(),
        "judged": match report.judged {
            Judged::All => "all",
            Judged::WithoutWeights => "without_weights",
            Judged::NoTrace => "nothing",
            Judged::NotRebuilt => "not_rebuilt",
            Judged::Weights => "weights",
        },
        "only_by_values": report.only_by_values,
        "unused_model": report.unused_model,
        "order": report.order.name(),
        "largest_differences": ranked_json(report),
        "map": {
            "unused": report.unused_lines.iter().map(unused_json).collect::<Vec<Value>>(),
            "proposed": report.proposal.as_ref().map(|p| &p.lines),
        },
        "nodes": nodes,
        "not_compared": { "a": report.left[0], "b": report.left[1] },
    })
}

/// Where no order is known: what differs, the largest first.
fn ranked_json(report: &Report) -> Option<Vec<&str>> {
    let names = || report.largest.iter().filter_map(|&i| report.nodes.get(i)).map(|row| row.node.as_str());
    (report.order == Order::Unknown).then(|| names().collect())
}

fn unused_json(line: &attnscope_diagnose::diff::UnusedLine) -> Value {
    json!({ "line": line.line, "names": line.names, "why": line.why })
}

fn unusual_json(unusual: &Unusual) -> Value {
    let side = unusual.odd_one.name();
    let like = unusual.like.as_ref().map(
        |like| json!({ "relation": like.name(), "detail": like.detail(), "sentence": like.sentence(side) }),
    );
    json!({ "node": unusual.node, "share": unusual.share, "side": side, "like": like })
}

fn short_json(short: &Short) -> Value {
    json!({ "side": short.side.name(), "computed_in": short.grain.name(), "tensors": short.nodes, "looked_at": short.looked_at })
}

fn input_json(inputs: &InputDifference) -> Value {
    let sentence = input_sentence(inputs);
    match inputs {
        InputDifference::Ids { side, row, position, ids: [a, b] } => json!({
            "kind": "ids", "side": if *side == Side::Source { "source" } else { "target" },
            "row": row, "position": position, "a": a, "b": b, "sentence": sentence,
        }),
        InputDifference::Length { what, lengths: [a, b] } => {
            json!({ "kind": "length", "what": what, "a": a, "b": b, "sentence": sentence })
        }
        InputDifference::Audio { relative } => {
            json!({ "kind": "audio", "relative": relative, "sentence": sentence })
        }
    }
}

fn first_json(report: &Report, first: &Divergence) -> Value {
    let row = report.nodes.get(first.row);
    let mut value = json!({
        "node": first.node,
        "max_abs": row.map(|r| r.measure.max_abs),
        "relation": first.relation.as_ref().map(|r| r.name()),
        "kind": first.kind.name(),
        "detail": first.relation.as_ref().map(|r| r.detail()),
        "sentence": first.relation.as_ref().map(|r| r.sentence(first.odd_one.name())),
        "cause": first.cause,
        "also": first.also.iter().map(|other| also_json(other, first)).collect::<Vec<Value>>(),
        "grounds": match first.grounds {
            Grounds::Recomputed => "recomputed",
            Grounds::Growth => "growth",
            Grounds::Weights => "weights",
        },
        "reads": first.reads,
        "jumps": first.jumps,
    });
    if let Some(row) = row {
        let m = &row.measure;
        value["cell"] = json!({ "at": place(&row.shape, m.at), "a": m.a, "b": m.b });
        // Infinities and NaN are written out: JSON has no numbers for them.
        let apart = |(at, [a, b]): (usize, [f64; 2])| json!({ "at": place(&row.shape, at), "a": exact(a), "b": exact(b) });
        value["not_finite"] = m.first_apart.map_or(Value::Null, apart);
    }
    value
}

/// Another explanation that fits as well.
fn also_json(other: &Explanation, first: &Divergence) -> Value {
    json!({
        "relation": other.relation.name(),
        "detail": other.relation.detail(),
        "sentence": other.relation.sentence(first.odd_one.name()),
        "cause": other.cause,
    })
}

fn node_json(row: &Compared) -> Value {
    let m = &row.measure;
    let name = |name: &String| if name.is_empty() { Value::Null } else { json!(name) };
    json!({
        "node": row.node,
        "a": name(&row.names[0]),
        "b": name(&row.names[1]),
        "shape": row.shape,
        "max_abs": m.max_abs,
        "relative": m.relative(),
        "apart": m.apart,
        "state": row.state.name(),
        "seen_as": row.seen_as,
        "by_values": row.by_values,
    })
}
