//! `inspect`: what a checkpoint is, who says so, and what is missing.

use attnscope_checkpoint::{CheckState, Stats, TensorInfo};
use attnscope_graph::{Fact, Model, OtherKind, Recognised, TaskHead};
use attnscope_render::{Column, Table, json, thousands};
use clap::Args;
use serde_json::{Value, json as value};

use super::{ModelArgs, Output, OutputArgs, TextOrJson};
use attnscope::Failure;
use attnscope::Opened;

#[derive(Debug, Args)]
pub(super) struct Inspect {
    #[command(flatten)]
    model: ModelArgs,
    /// List every tensor: name, type, shape, bytes
    #[arg(long)]
    tensors: bool,
    /// Read every tensor too: min, max, mean, std, zeros, NaN, Inf
    #[arg(long)]
    stats: bool,
    /// The form of the result
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Inspect {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut opened = self.model.open()?;
        let stats = if self.stats { Some(statistics(&mut opened)?) } else { None };
        let output = Output::new(&self.output);
        let listed = self.tensors || self.stats;
        output.write(&match self.format {
            TextOrJson::Text => text(&output, &opened, listed, stats.as_deref()),
            TextOrJson::Json => document(&opened, listed, stats.as_deref()),
        })
    }
}

/// What each tensor holds, or why that could not be told. A damaged file is an error, an unread type is not.
fn statistics(opened: &mut Opened) -> Result<Vec<Option<Stats>>, Failure> {
    opened.checkpoint.verify()?;
    let all = opened.checkpoint.stats();
    all.into_iter()
        .map(|result| match result {
            Ok(stats) => Ok(Some(stats)),
            Err(e) if matches!(e.kind, attnscope_checkpoint::ErrorKind::Unsupported { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        })
        .collect()
}

fn text(output: &Output<'_>, opened: &Opened, listed: bool, stats: Option<&[Option<Stats>]>) -> String {
    let glyphs = output.glyphs();
    let mut sections = vec![head(output, opened)];
    match &opened.recognised {
        Recognised::EncoderDecoder(model) => {
            sections.push(facts(output, &model.facts));
            sections.push(binding(output, model));
        }
        Recognised::Other(other) => {
            let what = match other.kind {
                OtherKind::Unknown => "This is no model that is recognised",
                OtherKind::Adapter => "This is an adapter: what is added to the weights of a base model",
                OtherKind::EncoderDecoder => "This is an encoder-decoder of a family that is not known",
                OtherKind::DecoderOnly => "This is a decoder-only model, without cross-attention",
                OtherKind::EncoderOnly => "This is an encoder-only model, without cross-attention",
            };
            sections.push(glyphs.text(&format!("{what}: {}.", other.because)) + "\n");
        }
    }
    sections.extend(placeholders(output, opened));
    if listed {
        sections.push(tensors(output, opened, stats));
    }
    sections.join("\n")
}

fn head(output: &Output<'_>, opened: &Opened) -> String {
    let c = &opened.checkpoint;
    let mut table = Table::new(vec![Column::left(""), Column::left("")], output.glyphs()).flexible(1);
    table.row(["model", opened.name.as_str()]);
    let bytes: u64 = c.files().map(|(_, bytes)| bytes).sum();
    let files = c.files().count();
    let in_files = if files > 1 { format!(" in {files} files") } else { String::new() };
    table.row([
        "format",
        &format!("{}, {} bytes{in_files}, {} tensors", c.format(), thousands(bytes), c.tensors().len()),
    ]);
    if let Recognised::EncoderDecoder(model) = &opened.recognised {
        let (parameters, buffers) = model.parameters();
        let buffers = if buffers > 0 {
            format!(", and {} values in buffers", thousands(buffers))
        } else {
            String::new()
        };
        table.row(["family", &format!("{}, encoder-decoder", model.title())]);
        let prefix =
            if model.prefix.is_empty() { String::new() } else { format!(" behind {:?}", model.prefix) };
        table.row(["names", &format!("{}{prefix}", model.scheme.id)]);
        table.row(["parameters", &format!("{}{buffers}", thousands(parameters))]);
    }
    table.row(["dtypes", &dtypes(c.tensors())]);
    for check in c.checks() {
        table.row(["checksum", &format!("{}: {}", check.what, check_words(check.state))]);
    }
    let tokenizers: Vec<String> = c.tokenizer().iter().map(|t| t.name().into_owned()).collect();
    table.row([
        "tokenizer",
        &if tokenizers.is_empty() { "none found beside the weights".into() } else { tokenizers.join(", ") },
    ]);
    for shared in c.shared() {
        let names: Vec<&str> = shared.iter().map(|t| t.name.as_str()).collect();
        table.row(["shared bytes", &names.join(" = ")]);
    }
    for path in c.ignored() {
        table.row(["not opened", &path.display().to_string()]);
    }
    table.render(output.width())
}

fn check_words(state: CheckState) -> &'static str {
    match state {
        CheckState::Verified => "verified",
        CheckState::Absent => "the file has none",
        CheckState::NotComputed => "not computed, the file is large: --stats reads and verifies it",
    }
}

/// `f16 84 tensors, i64 1 tensor`.
fn dtypes(tensors: &[TensorInfo]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for tensor in tensors {
        match counts.iter_mut().find(|(name, _)| *name == tensor.dtype.name()) {
            Some((_, n)) => *n += 1,
            None => counts.push((tensor.dtype.name(), 1)),
        }
    }
    counts.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    counts.iter().map(|(name, n)| format!("{name} × {n}")).collect::<Vec<_>>().join(", ")
}

fn facts(output: &Output<'_>, facts: &[Fact]) -> String {
    let columns = vec![Column::left("Fact"), Column::left("Value"), Column::left("Who says so")];
    let mut table = Table::new(columns, output.glyphs()).flexible(2);
    let mut topic = facts.first().map(|f| f.topic);
    for fact in facts {
        if topic.replace(fact.topic) != Some(fact.topic) {
            table.row([""]);
        }
        table.row([fact.name.as_str(), &plain(&fact.value), &fact.source]);
        for (source, value) in &fact.disagree {
            table.row(["", "", &format!("! {source} says {}", plain(value))]);
        }
    }
    table.render(output.width())
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

fn binding(output: &Output<'_>, model: &Model) -> String {
    let b = &model.binding;
    let (missing, mismatched) = (b.missing().count(), b.mismatched().count());
    let head = model.task_head();
    let in_head = head.as_ref().map_or(0, |head| head.tensors.len());
    let mut text = format!(
        "Binding: {} of {} weights bound, {missing} missing, {mismatched} of the wrong shape; {} tensors unused\n",
        b.bound(),
        model.graph.weights().len(),
        b.unused.len() - in_head
    );
    let mut table =
        Table::new(vec![Column::left(""), Column::left(""), Column::left("")], output.glyphs()).flexible(1);
    for (id, name) in b.missing() {
        table.row(["missing", name, &model.graph.weight(id).path]);
    }
    for (id, tensor, expected, found) in b.mismatched() {
        let shapes = format!("{}: expected {expected:?}, found {found:?}", model.graph.weight(id).path);
        table.row(["wrong shape", &model.tensors[tensor].name, &shapes]);
    }
    for &(tensor, id) in &b.aliases {
        let same = format!("another name of {}", model.graph.weight(id).path);
        table.row(["alias", &model.tensors[tensor].name, &same]);
    }
    for &i in head.iter().flat_map(|head| &head.tensors) {
        table.row(["head", &model.tensors[i].name, &format!("{:?}", model.tensors[i].shape)]);
    }
    for (name, what) in unused(model, head.as_ref()) {
        table.row(["unused", &name, &what]);
    }
    text += &table.render(output.width());
    if let Some(head) = head {
        text += &output.glyphs().text(&format!("Note: {}.", head.sentence()));
        text.push('\n');
    }
    for obstacle in &model.obstacles {
        text += &output.glyphs().text(&format!("Draws, does not run: {obstacle}"));
        text.push('\n');
    }
    text
}

/// Tensors that no node uses; an optimizer's hundreds under one name.
fn unused(model: &Model, head: Option<&TaskHead>) -> Vec<(String, String)> {
    const LISTED: usize = 12;
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    let in_head = |i: &usize| head.is_some_and(|head| head.tensors.contains(i));
    for &i in model.binding.unused.iter().filter(|i| !in_head(i)) {
        let name = model.tensors[i].name.as_str();
        let own = !model.prefix.is_empty() && name.starts_with(&model.prefix);
        let top = if own { model.prefix.as_str() } else { name.split('.').next().unwrap_or(name) };
        match groups.iter_mut().find(|(g, _)| *g == top) {
            Some((_, members)) => members.push(i),
            None => groups.push((top, vec![i])),
        }
    }
    let mut lines = Vec::new();
    for (top, members) in groups {
        if members.len() > LISTED {
            lines.push((format!("{}.*", top.trim_end_matches('.')), format!("{} tensors", members.len())));
            continue;
        }
        lines.extend(
            members.iter().map(|&i| (model.tensors[i].name.clone(), format!("{:?}", model.tensors[i].shape))),
        );
    }
    lines
}

fn placeholders(output: &Output<'_>, opened: &Opened) -> Option<String> {
    let all = opened.checkpoint.placeholders();
    if all.is_empty() {
        return None;
    }
    let columns = vec![Column::left("Pickled object, never called"), Column::left("At"), Column::left("")];
    let mut table = Table::new(columns, output.glyphs()).flexible(1);
    for p in all {
        let called = if p.called { "asks to be called on loading" } else { "" };
        table.row([p.global.as_str(), p.place.as_str(), called]);
    }
    Some(table.render(output.width()))
}

fn tensors(output: &Output<'_>, opened: &Opened, stats: Option<&[Option<Stats>]>) -> String {
    let mut columns =
        vec![Column::left("Tensor"), Column::left("Type"), Column::left("Shape"), Column::right("Bytes")];
    if stats.is_some() {
        columns.extend(["Min", "Max", "Mean", "Std", "Zeros", "NaN", "Inf"].map(Column::right));
    }
    let mut table = Table::new(columns, output.glyphs()).flexible(0);
    for (i, t) in opened.checkpoint.tensors().iter().enumerate() {
        let mut row =
            vec![t.name.clone(), t.dtype.to_string(), format!("{:?}", t.shape), thousands(t.bytes())];
        match stats.and_then(|s| s.get(i)) {
            Some(Some(s)) => row.extend([
                number(s.min),
                number(s.max),
                number(s.mean),
                number(s.std),
                thousands(s.zeros),
                thousands(s.nan),
                thousands(s.inf),
            ]),
            Some(None) => row.push("not read".into()),
            None => {}
        }
        table.row(row);
    }
    table.render(output.width())
}

/// Four significant digits; nothing where there is no finite value to speak of.
fn number(x: f64) -> String {
    if !x.is_finite() {
        return "–".into();
    }
    // No minus sign before a zero.
    let x = x + 0.0;
    if x != 0.0 && !(1e-3..1e5).contains(&x.abs()) { format!("{x:.3e}") } else { format!("{x:.4}") }
}

fn document(opened: &Opened, listed: bool, stats: Option<&[Option<Stats>]>) -> String {
    let c = &opened.checkpoint;
    let checks: Vec<Value> = c
        .checks()
        .iter()
        .map(|k| {
            let state = match k.state {
                CheckState::Verified => "verified",
                CheckState::Absent => "absent",
                CheckState::NotComputed => "not_computed",
            };
            value!({ "what": k.what, "state": state })
        })
        .collect();
    let placeholders: Vec<Value> = c
        .placeholders()
        .iter()
        .map(|p| value!({ "global": p.global, "place": p.place, "called": p.called }))
        .collect();
    let mut root = value!({
        "schema": json::SCHEMA,
        "model": opened.name,
        "format": c.format().name(),
        "files": c.files().map(|(name, bytes)| value!({ "name": name.display().to_string(), "bytes": bytes })).collect::<Vec<_>>(),
        "tensor_count": c.tensors().len(),
        "checks": checks,
        "placeholders": placeholders,
        "tokenizer": c.tokenizer().iter().map(|t| t.name().into_owned()).collect::<Vec<_>>(),
        "shared": c.shared().iter().map(|g| g.iter().map(|t| t.name.clone()).collect()).collect::<Vec<Vec<_>>>(),
    });
    if let Value::Object(map) = &mut root {
        match &opened.recognised {
            Recognised::EncoderDecoder(model) => map.extend(model_document(model)),
            Recognised::Other(other) => {
                map.insert("kind".into(), value!(other.kind.name()));
                map.insert("because".into(), value!(other.because));
            }
        }
        if listed {
            let list =
                c.tensors().iter().enumerate().map(|(i, t)| tensor_document(t, stats.and_then(|s| s.get(i))));
            map.insert("tensors".into(), list.collect());
        }
    }
    json::pretty(&root)
}

fn model_document(model: &Model) -> serde_json::Map<String, Value> {
    let fact = |f: &Fact| {
        let disagree: Vec<Value> =
            f.disagree.iter().map(|(source, v)| value!({ "source": source, "value": v })).collect();
        value!({ "topic": f.topic.name(), "name": f.name, "value": f.value, "source": f.source, "disagree": disagree })
    };
    let (parameters, buffers) = model.parameters();
    let b = &model.binding;
    let name = |i: &usize| model.tensors[*i].name.clone();
    let weight = |id| json::weight(model, id);
    let value = value!({
        "kind": "encoder-decoder",
        "family": model.family.id,
        "names": model.scheme.id,
        "prefix": model.prefix,
        "parameters": parameters,
        "buffers": buffers,
        "wiring": model.wiring,
        "facts": model.facts.iter().map(fact).collect::<Vec<_>>(),
        "binding": {
            "bound": b.bound(),
            "missing": b.missing().map(|(id, _)| weight(id)).collect::<Vec<_>>(),
            "mismatched": b.mismatched().map(|(id, ..)| weight(id)).collect::<Vec<_>>(),
            "aliases": b.aliases.iter().map(|(t, id)| value!({ "tensor": name(t), "weight": model.graph.weight(*id).path })).collect::<Vec<_>>(),
            "unused": b.unused.iter().map(name).collect::<Vec<_>>(),
        },
        "obstacles": model.obstacles,
    });
    match value {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    }
}

fn tensor_document(t: &TensorInfo, stats: Option<&Option<Stats>>) -> Value {
    let mut entry = value!({ "name": t.name, "dtype": t.dtype.name(), "shape": t.shape, "bytes": t.bytes() });
    if let (Some(stats), Value::Object(map)) = (stats, &mut entry) {
        let stats = stats.as_ref().map(|s| {
            let finite = |x: f64| x.is_finite().then_some(x);
            value!({
                "min": finite(s.min), "max": finite(s.max), "mean": finite(s.mean), "std": finite(s.std),
                "zeros": s.zeros, "nan": s.nan, "inf": s.inf,
            })
        });
        map.insert("stats".into(), value!(stats));
    }
    entry
}
