//! Where two runs diverge: the verdict first, then the nodes around it.

use attnscope::answer::{Difference, Party, input_sentence};
use attnscope::figures::{counted, exact, number, share};
use attnscope_diagnose::diff::{
    Compared, Divergence, Grounds, Judged, Kind, Relation, Report, Short, State, Unusual,
};
use attnscope_diagnose::unravel;

use crate::diff_table::{first_off, noun, table};
use crate::hint::Hint;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::tensor_table::shape_text;
use crate::wrap::{shown, wrap};

/// Names of tensors that were not compared.
const NAMES: usize = 6;

/// The comparison for a reader; `full` shows every compared node.
pub fn text(answer: &Difference, full: bool, options: Options) -> String {
    options.glyphs.lines(&lines(&answer.report, &answer.parties, full, options))
}

fn lines(report: &Report, parties: &[Party; 2], full: bool, options: Options) -> String {
    let mut out = heading(parties, options);
    out.push('\n');
    if let Some([a, b]) = &report.other_models {
        let text = format!("different models: A is a trace of family {a}, B of family {b}");
        out += &fill(&text, options, 0);
    }
    if let Some(inputs) = &report.inputs {
        out += &fill("the two runs did not read the same input", options, 0);
        return out + &fill(&input_sentence(inputs), options, 2);
    }
    match &report.first {
        Some(first) => out += &divergence(report, first, options),
        None if !report.largest.is_empty() => out += &ranked(report, options),
        None => out += &fill(&agreement(report, options), options, 0),
    }
    for sentence in short_sentences(report).into_iter().chain(unusual_sentences(report)) {
        out += &fill(&sentence, options, 0);
    }
    for remark in by_values(report, options).into_iter().chain(judged(report, options)) {
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
        let what = format!("{}, {}", party.kind, counted(party.tensors, "tensor"));
        table.row([name, &party.path, &what]);
    }
    table.render(options.width)
}

/// A text over as many lines as it needs.
pub(crate) fn fill(text: &str, options: Options, indent: usize) -> String {
    let lines = wrap(&shown(text, options.glyphs), options.width.saturating_sub(indent));
    lines.iter().map(|line| format!("{:indent$}{line}\n", "")).collect()
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
        (Kind::Drift, _) if first.past_tolerance_at.is_some() => {
            "the difference begins here and grows past the tolerance later; it is not proven to be more than rounding"
        }
        (Kind::Drift, _) if first.jumps => {
            "past the tolerance: the difference begins here, and is not proven to be more than rounding"
        }
        (Kind::Drift, _) => "drift: accumulated rounding, no single step",
    };
    let mut lines =
        vec![format!("first divergence: {} {}", first.node, shape_text(&row.shape)), verdict.to_owned()];
    if let Some(relation) = &first.relation {
        let about = first
            .cause
            .as_ref()
            .map(|cause| format!("; this happens at {cause}, which was not dumped"))
            .unwrap_or_default();
        lines.push(format!("{}{about}", relation.sentence(first.odd_one.name())));
    }
    for other in &first.also {
        let about = other
            .cause
            .as_ref()
            .map(|cause| format!("; this happens at {cause}, which was not dumped"))
            .unwrap_or_default();
        lines.push(format!("or: {}{about}", other.relation.sentence(first.odd_one.name())));
    }
    lines.extend(cell_lines(row, first));
    if let Some(past) = &first.past_tolerance_at {
        lines.push(format!("the first past the tolerance is {past}"));
    }
    if first.reads.is_empty() && first.kind == Kind::Bug && report.judged != Judged::Weights {
        lines.push(
            "neither side's inputs of it were dumped by both: another input would look the same".to_owned(),
        );
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
            "after it, these do not follow from their inputs either: {}{more}",
            shown.join(", ")
        ));
    }
    let indented = |(i, line): (usize, &String)| fill(line, options, if i == 0 { 0 } else { 2 });
    lines.iter().enumerate().map(indented).collect()
}

/// The cell that differs most, and the first that is not finite on one side.
fn cell_lines(row: &Compared, first: &Divergence) -> Vec<String> {
    if matches!(first.relation, Some(Relation::OtherShape { .. })) {
        return Vec::new();
    }
    let m = &row.measure;
    let at = |i: usize| shape_text(&unravel(i, &row.shape));
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
         of no known model. So no node is the first one; the largest differences come first."
    );
    let help = format!(
        "{} gives an order; so does a dump in one .pt or .npz that is written as modules are called.",
        Hint::Model.words(options.reader)
    );
    format!("{}{}", fill(&text, options, 0), fill(&help, options, 0))
}

/// What was computed in a shorter type, and what that explains.
fn short_sentences(report: &Report) -> Vec<String> {
    // Nodes after an unusual one inherit its difference, which no type explains.
    let explained = |row: &&Compared| row.state == State::Rounding;
    let sound = first_off(report).unwrap_or(report.nodes.len());
    let most = report
        .nodes
        .iter()
        .take(sound)
        .filter(explained)
        .map(|row| row.measure.relative())
        .fold(0.0, f64::max);
    let sentence = |short: &Short| {
        let (side, grain, nodes) = (short.side.name(), short.grain.name(), short.nodes);
        let hold = if nodes == 1 { "holds" } else { "hold" };
        if !short.is_everywhere() {
            let of = short.looked_at;
            return format!(
                "{nodes} of the {of} tensors of {side} that were examined {hold} only values that {grain} has."
            );
        }
        format!(
            "{side} was computed in {grain}: {nodes} of its tensors {hold} only values that this type has. Differences up to {} of the \
             largest value are explained by it.",
            share(most)
        )
    };
    report.short.iter().map(sentence).collect()
}

/// Nodes near their bounds in one sentence; those with an explanation in separate sentences.
fn unusual_sentences(report: &Report) -> Vec<String> {
    let (like, near): (Vec<&Unusual>, Vec<&Unusual>) = report.unusual.iter().partition(|u| u.like.is_some());
    let place = |unusual: &Unusual| format!("{} ({:.1} × its bound)", unusual.node, unusual.share);
    let one = |unusual: &&Unusual| {
        let relation = unusual.like.as_ref()?.sentence(unusual.odd_one.name());
        Some(format!("unusual, not proven: {}: all cells together show that {relation}", place(unusual)))
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

fn agreement(report: &Report, options: Options) -> String {
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
            "{verdict}; {} of theirs {were} not compared. {compared} matched by their values alone, so that \
             their agreement is no evidence. Say which names belong together with {}.",
            counted(left, "tensor"),
            Hint::NameMap.words(options.reader),
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

/// How many nodes were paired by equal values, besides those paired by name.
fn by_values(report: &Report, options: Options) -> Option<String> {
    let found = report.nodes.iter().filter(|row| row.by_values).count();
    let nodes = counted(found, "node");
    (found > 0 && report.only_by_values.is_none()).then(|| {
        format!(
            "{nodes} matched by their values and not by name, so that their agreement is no evidence (`by its values` in {}).",
            Hint::AllNodes.words(options.reader)
        )
    })
}

/// What the verdict is based on, where not everything was compared.
fn judged(report: &Report, options: Options) -> Option<String> {
    if let Some(why) = &report.unused_model {
        return Some(format!(
            "The given model does not fit and was not used: {why}. Nodes with weights could not be computed again."
        ));
    }
    let model = Hint::Model.words(options.reader);
    match report.judged {
        Judged::All | Judged::Weights => None,
        Judged::WithoutWeights => Some(format!(
            "The model was not found, so nodes with weights could not be computed again; give it with {model}."
        )),
        Judged::NotRebuilt => Some(format!(
            "The graph of the trace cannot be rebuilt, or does not fit its tokens, so nothing could be computed again from its \
             inputs; {model} may help."
        )),
        Judged::NoTrace => Some(format!(
            "Neither side is a trace, so nothing could be computed again from its inputs; {model} helps where \
             the dumps hold the token ids."
        )),
    }
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

/// Lines of a map, not wrapped, so that they can be copied.
fn proposal(report: &Report, options: Options) -> String {
    let Some(proposal) = &report.proposal else { return String::new() };
    let [paired, unmatched] = proposal.tensors;
    let text = format!(
        "{unmatched} tensors have unknown names. For {paired} of them this map may fit; it was not used. Check it, and {}:",
        Hint::ProposedLines.words(options.reader)
    );
    let guesses = proposal.lines.iter().any(|line| line.starts_with('#'));
    let remark =
        "A line that begins with # is based only on similar values or on the place, and has no effect.";
    let text = if guesses { format!("{text} {remark}") } else { text };
    let lines: String =
        proposal.lines.iter().map(|line| format!("{}\n", shown(line, options.glyphs))).collect();
    format!("\n{}\n{lines}", fill(&text, options, 0))
}
