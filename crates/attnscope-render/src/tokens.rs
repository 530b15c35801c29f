//! The tokens of an input, for readers.

use attnscope::Token;
use attnscope::answer::{FeatureShape, InputTokens};

use crate::flow::fill;
use crate::glyphs::clean;

/// More padding than this in a row is counted: a classifier pads every text to one length.
const SOME_PADDING: usize = 3;

/// Every row of every side, with ids.
pub fn text(tokens: &InputTokens, width: usize) -> String {
    let [source, target] = if tokens.two_sides { ["source", "target"] } else { ["text", "text"] };
    let mut out = match (&tokens.source, tokens.features) {
        (Some(rows), _) => lines(source, rows, width),
        (None, Some(FeatureShape { batch, mels, frames, .. })) => {
            let cut = tokens.recording.filter(|read| read.seconds > read.window_seconds);
            let cut =
                cut.map(|read| format!(": the first {} s of {:.2} s", read.window_seconds, read.seconds));
            format!("source  {batch} × {mels} mel bands × {frames} frames{}\n", cut.unwrap_or_default())
        }
        (None, None) => String::new(),
    };
    if let Some(rows) = &tokens.target {
        let name = if tokens.generated { format!("{target} (generated)") } else { target.to_owned() };
        out += &lines(&name, rows, width);
    }
    out
}

fn lines(name: &str, rows: &[Vec<Token>], width: usize) -> String {
    let mut out = String::new();
    for (r, row) in rows.iter().enumerate() {
        let number = if rows.len() > 1 { format!(" {r}") } else { String::new() };
        let token = |t: &Token| match (&t.piece, t.padding) {
            (_, true) => "(pad)".to_owned(),
            (Some(piece), false) => format!("{} {}", clean(piece), t.id),
            (None, false) => t.id.to_string(),
        };
        let mut shown = Vec::new();
        for run in row.chunk_by(|a, b| a.padding && b.padding) {
            match run.len() {
                n if n > SOME_PADDING => shown.push(format!("(pad) × {n}")),
                _ => shown.extend(run.iter().map(token)),
            }
        }
        let tokens = shown.join(" · ");
        out += &fill(&format!("{name}{number}  {tokens}"), width);
    }
    out
}
