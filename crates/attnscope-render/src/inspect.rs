//! What a checkpoint is, in tables.

use attnscope::answer::{
    Binding, CheckState, FactSaid, Inspection, NamedShape, OtherModel, RecognisedModel, Recognition,
    TensorEntry, WeightState,
};
use attnscope::figures::{counted, thousands};
use attnscope_checkpoint::Format;
use serde_json::Value;

use crate::glyphs::Glyphs;
use crate::hint::Hint;
use crate::layout::Options;
use crate::table::{Column, Table};

/// An inspection for people.
pub fn text(inspection: &Inspection, options: Options) -> String {
    let mut sections = vec![head(inspection, options)];
    match &inspection.recognition {
        Recognition::Model(model) => {
            sections.push(facts(&model.facts, options));
            sections.push(binding(model, options));
        }
        Recognition::Other(other) => sections.push(other_model(other, options.glyphs)),
    }
    sections.extend(placeholders(inspection, options));
    sections.extend(inspection.tensors.as_deref().map(|all| tensors(all, options)));
    sections.join("\n")
}

fn other_model(other: &OtherModel, glyphs: Glyphs) -> String {
    if let Some(family) = &other.family {
        return glyphs
            .text(&format!("This is {family}, which is not run or drawn: it needs {}.", other.because))
            + "\n";
    }
    let what = match other.kind.as_str() {
        "adapter" => "This is an adapter: changes to the weights of a base model",
        "encoder-decoder" => "This is an encoder-decoder of an unknown family",
        "decoder-only" => "This is a decoder-only model, without cross-attention",
        "encoder-only" => "This is an encoder-only model, without cross-attention",
        _ => "This file was not recognised as a model",
    };
    glyphs.text(&format!("{what}: {}.", other.because)) + "\n"
}

fn head(inspection: &Inspection, options: Options) -> String {
    let mut table = Table::new(vec![Column::left(""), Column::left("")], options.glyphs).flexible(1);
    table.row(["model", inspection.model.as_str()]);
    let files = inspection.files.len();
    let in_files = if files > 1 { format!(" in {files} files") } else { String::new() };
    let bytes = thousands(inspection.bytes());
    table.row([
        "format",
        &format!(
            "{}, {bytes} bytes{in_files}, {}",
            inspection.format,
            counted(inspection.tensor_count, "tensor")
        ),
    ]);
    if let Recognition::Model(model) = &inspection.recognition {
        let buffers = match model.buffers {
            0 => String::new(),
            buffers => format!(", and {} values in buffers", thousands(buffers)),
        };
        table.row(["family", &format!("{}, {}", model.title, model.kind)]);
        let prefix =
            if model.prefix.is_empty() { String::new() } else { format!(" behind {:?}", model.prefix) };
        table.row(["names", &format!("{}{prefix}", model.names)]);
        table.row(["parameters", &format!("{}{buffers}", thousands(model.parameters))]);
    }
    let types: Vec<String> =
        inspection.types.iter().map(|of| format!("{} × {}", of.dtype, of.count)).collect();
    table.row(["dtypes", &types.join(", ")]);
    for check in &inspection.checks {
        table.row(["checksum", &format!("{}: {}", check.what, check_words(check.state, options))]);
    }
    table.row([
        "tokenizer",
        &match inspection.tokenizer.as_slice() {
            [] if inspection.format == Format::Recipe.name() => "learned when it is trained".to_owned(),
            [] => "none found beside the weights".to_owned(),
            names => names.join(", "),
        },
    ]);
    for shared in &inspection.shared {
        table.row(["shared bytes", &shared.join(" = ")]);
    }
    for path in &inspection.ignored {
        table.row(["not opened", &path.display().to_string()]);
    }
    table.render(options.width)
}

fn check_words(state: CheckState, options: Options) -> String {
    match state {
        CheckState::Verified => "verified".to_owned(),
        CheckState::Absent => "the file has none".to_owned(),
        CheckState::NotComputed => {
            let statistics = Hint::Statistics.words(options.reader);
            format!("not computed, the file is large: {statistics} reads and verifies it")
        }
    }
}

fn facts(facts: &[FactSaid], options: Options) -> String {
    let columns = vec![Column::left("Fact"), Column::left("Value"), Column::left("Source")];
    let mut table = Table::new(columns, options.glyphs).flexible(2);
    let mut topic = facts.first().map(|fact| &fact.topic);
    for fact in facts {
        if topic.replace(&fact.topic) != Some(&fact.topic) {
            table.row([""]);
        }
        table.row([fact.name.as_str(), &plain(&fact.value), &fact.source]);
        for other in &fact.disagree {
            table.row(["", "", &format!("! {} says {}", other.source, plain(&other.value))]);
        }
    }
    table.render(options.width)
}

/// A value without JSON's quotes; a group of flags by the names of those that are on.
fn plain(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Object(flags) => {
            let on: Vec<&str> =
                flags.iter().filter(|(_, v)| **v == Value::Bool(true)).map(|(k, _)| k.as_str()).collect();
            if on.is_empty() { "none".into() } else { on.join(" ") }
        }
        Value::Number(n) => match n.as_f64() {
            Some(f) if f != 0.0 && f.abs() < 1e-3 => format!("{f:e}"),
            _ => n.to_string(),
        },
        other => other.to_string(),
    }
}

fn binding(model: &RecognisedModel, options: Options) -> String {
    let binding = &model.binding;
    let mut text = format!(
        "Binding: {} of {} weights bound, {} missing, {} of the wrong shape; {} tensors unused\n",
        binding.bound,
        binding.weights,
        binding.missing.len(),
        binding.mismatched.len(),
        binding.unused_shapes.len()
    );
    text += &bound_table(model, binding, options);
    if let Some(head) = &model.head {
        text += &options.glyphs.text(&format!("Note: {}.", head.sentence));
        text.push('\n');
    }
    for obstacle in &model.obstacles {
        text += &options.glyphs.text(&format!("Can be drawn, but not run: {obstacle}"));
        text.push('\n');
    }
    text
}

/// Every weight and tensor that is not simply bound.
fn bound_table(model: &RecognisedModel, binding: &Binding, options: Options) -> String {
    let columns = vec![Column::left(""), Column::left(""), Column::left("")];
    let mut table = Table::new(columns, options.glyphs).flexible(1);
    for weight in binding.missing.iter().chain(&binding.mismatched) {
        let path = &weight.path;
        match &weight.state {
            WeightState::Missing { tensor } => table.row(["missing", tensor, path]),
            WeightState::Mismatched { tensor, expected, shape } => {
                let shapes = format!("{path}: expected {expected:?}, found {shape:?}");
                table.row(["wrong shape", tensor, &shapes]);
            }
            WeightState::Bound { .. } => {}
        }
    }
    for alias in &binding.aliases {
        table.row(["alias", &alias.tensor, &format!("another name of {}", alias.weight)]);
    }
    for tensor in model.head.iter().flat_map(|head| &head.tensors) {
        table.row(["head", &tensor.name, &format!("{:?}", tensor.shape)]);
    }
    for (name, what) in unused(&binding.unused_shapes, &model.prefix) {
        table.row(["unused", &name, &what]);
    }
    table.render(options.width)
}

/// Tensors that no node uses; an optimizer's hundreds are one line.
fn unused(tensors: &[NamedShape], prefix: &str) -> Vec<(String, String)> {
    const LISTED: usize = 12;
    let mut groups: Vec<(&str, Vec<&NamedShape>)> = Vec::new();
    for tensor in tensors {
        let name = tensor.name.as_str();
        let own = !prefix.is_empty() && name.starts_with(prefix);
        let top = if own { prefix } else { name.split('.').next().unwrap_or(name) };
        match groups.iter_mut().find(|(group, _)| *group == top) {
            Some((_, members)) => members.push(tensor),
            None => groups.push((top, vec![tensor])),
        }
    }
    let mut lines = Vec::new();
    for (top, members) in groups {
        if members.len() > LISTED {
            lines.push((format!("{}.*", top.trim_end_matches('.')), format!("{} tensors", members.len())));
            continue;
        }
        lines.extend(members.iter().map(|tensor| (tensor.name.clone(), format!("{:?}", tensor.shape))));
    }
    lines
}

fn placeholders(inspection: &Inspection, options: Options) -> Option<String> {
    if inspection.placeholders.is_empty() {
        return None;
    }
    let columns = vec![Column::left("Pickled object, never called"), Column::left("At"), Column::left("")];
    let mut table = Table::new(columns, options.glyphs).flexible(1);
    for object in &inspection.placeholders {
        let called = if object.called { "asks to be called on loading" } else { "" };
        table.row([object.global.as_str(), object.place.as_str(), called]);
    }
    Some(table.render(options.width))
}

fn tensors(tensors: &[TensorEntry], options: Options) -> String {
    let mut columns =
        vec![Column::left("Tensor"), Column::left("Type"), Column::left("Shape"), Column::right("Bytes")];
    if tensors.iter().any(|tensor| tensor.stats.is_some()) {
        columns.extend(["Min", "Max", "Mean", "Std", "Zeros", "NaN", "Inf"].map(Column::right));
    }
    let mut table = Table::new(columns, options.glyphs).flexible(0);
    for tensor in tensors {
        let mut row = vec![
            tensor.name.clone(),
            tensor.dtype.clone(),
            format!("{:?}", tensor.shape),
            thousands(tensor.bytes),
        ];
        match tensor.stats {
            Some(Some(stats)) => {
                row.extend([stats.min, stats.max, stats.mean, stats.std].map(number));
                row.extend([stats.zeros, stats.nan, stats.inf].map(thousands));
            }
            Some(None) => row.push("not read".into()),
            None => {}
        }
        table.row(row);
    }
    table.render(options.width)
}

/// Four significant digits; a dash where there is no finite value.
fn number(x: Option<f64>) -> String {
    let Some(x) = x else { return "–".into() };
    // No minus sign before a zero.
    let x = x + 0.0;
    if x != 0.0 && !(1e-3..1e5).contains(&x.abs()) { format!("{x:.3e}") } else { format!("{x:.4}") }
}
