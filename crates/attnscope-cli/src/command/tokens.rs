//! The tokens of an input, for readers and for programs.

use attnscope_graph::Side;
use attnscope_run::{Input, Source};
use serde_json::{Value, json};

use attnscope::{Ready, Token};

/// Every row of both sides, with ids.
pub(super) fn tokens_text(ready: &Ready<'_>, input: &Input, generated: bool, width: usize) -> String {
    let source = match &input.source {
        Source::Tokens(rows) => tokens_lines("source", &ready.tokens(Side::Source, rows), width),
        Source::Features(f) => {
            let cut = ready.recorded().filter(|(seconds, window)| seconds > window);
            let cut = cut.map(|(seconds, window)| format!(": the first {window} s of {seconds:.2} s"));
            let cut = cut.unwrap_or_default();
            format!("source  {} × {} mel bands × {} frames{cut}\n", f.batch, f.mels, f.frames)
        }
    };
    let name = if generated { "target (generated)" } else { "target" };
    source + &tokens_lines(name, &ready.tokens(Side::Target, &input.target), width)
}

/// The same for programs.
pub(super) fn tokens_json(ready: &Ready<'_>, input: &Input, generated: bool) -> Value {
    let side = |tokens: Vec<Vec<Token>>| -> Value {
        let token = |t: &Token| json!({ "id": t.id, "piece": t.piece, "padding": t.padding });
        tokens.iter().map(|row| row.iter().map(token).collect::<Value>()).collect()
    };
    let source = match &input.source {
        Source::Tokens(rows) => side(ready.tokens(Side::Source, rows)),
        Source::Features(_) => Value::Null,
    };
    let target = side(ready.tokens(Side::Target, &input.target));
    let mut value = json!({ "source": source, "target": target, "generated": generated });
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
