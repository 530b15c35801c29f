//! The tokens of an input, for readers and for programs.

use attnscope_graph::Side;
use attnscope_run::{Input, Sequence};
use serde_json::{Value, json};

use attnscope::{Ready, Token};

/// Every row of every side, with ids.
pub(super) fn tokens_text(ready: &Ready<'_>, input: &Input, generated: bool, width: usize) -> String {
    let of_side = |(side, sequence): (Side, &Sequence)| match sequence {
        Sequence::Tokens(rows) => {
            let name = name(ready, side, generated);
            tokens_lines(&name, &ready.tokens(side, rows), width)
        }
        Sequence::Features(f) => {
            let cut = ready.recorded().filter(|(seconds, window)| seconds > window);
            let cut = cut.map(|(seconds, window)| format!(": the first {window} s of {seconds:.2} s"));
            let cut = cut.unwrap_or_default();
            format!("{}  {} × {} mel bands × {} frames{cut}\n", side.word(), f.batch, f.mels, f.frames)
        }
    };
    input.sequences().map(of_side).collect()
}

/// What the tokens of a side are called: a model of one sequence has no source and no target.
fn name(ready: &Ready<'_>, side: Side, generated: bool) -> String {
    let name = if ready.model.architecture.has_cross_attention() { side.word() } else { "text" };
    if generated && side == Side::Target { format!("{name} (generated)") } else { name.to_owned() }
}

/// The same for programs.
pub(super) fn tokens_json(ready: &Ready<'_>, input: &Input, generated: bool) -> Value {
    let side = |side: Side| -> Value {
        let Some(rows) = input.rows(side) else { return Value::Null };
        let token = |t: &Token| json!({ "id": t.id, "piece": t.piece, "padding": t.padding });
        ready.tokens(side, rows).iter().map(|row| row.iter().map(token).collect::<Value>()).collect()
    };
    let mut value =
        json!({ "source": side(Side::Source), "target": side(Side::Target), "generated": generated });
    if let Some((seconds, window)) = ready.recorded() {
        value["recording"] = json!({ "seconds": seconds, "window_seconds": window });
    }
    value
}

fn tokens_lines(name: &str, rows: &[Vec<Token>], width: usize) -> String {
    let mut out = String::new();
    for (r, row) in rows.iter().enumerate() {
        let number = if rows.len() > 1 { format!(" {r}") } else { String::new() };
        let token = |t: &Token| match (&t.piece, t.padding) {
            (_, true) => "(pad)".to_owned(),
            (Some(piece), false) => format!("{} {}", attnscope_render::clean(piece), t.id),
            (None, false) => t.id.to_string(),
        };
        let tokens = row.iter().map(token).collect::<Vec<_>>().join(" · ");
        out += &attnscope_render::fill(&format!("{name}{number}  {tokens}"), width);
    }
    out
}
