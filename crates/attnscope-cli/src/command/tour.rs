//! No arguments at all: the demo at work, in one screen or two, and what to try next.

use attnscope_render::trace::attention_text;
use attnscope_render::{Component, FlowOptions, Heatmap};
use attnscope_run::{Input, Keep, Native, Rows};

use super::{Color, Output, OutputArgs};
use crate::attention::{Batch, DrawnHeads, cross_weights};
use attnscope::{DEMO_SOURCE, Failure, Opened, Ready};

/// What to try, and what it shows.
const NEXT: [(&str, &str); 9] = [
    ("attnscope flow MODEL", "draw your file or folder: what is wired to what"),
    ("attnscope inspect MODEL", "what it is, who says so, and what is missing"),
    ("attnscope trace --src TEXT", "a run in 43 snapshots; --save DIR keeps every tensor"),
    ("attnscope explain 34 --at 0,3,5,4", "the arithmetic of one cell of it"),
    ("attnscope masks", "the three masks, drawn and proved"),
    ("attnscope doctor MODEL", "what is wrong with it, and why"),
    ("attnscope diff A B", "where two implementations part"),
    ("attnscope generate --src TEXT", "translate or transcribe"),
    ("attnscope --help", "everything else"),
];

pub(super) fn run() -> Result<(), Failure> {
    let args = OutputArgs { output: None, width: None, ascii: false, color: Color::Auto, quiet: false };
    let output = Output::new(&args);
    let opened = Opened::open("demo", None)?;
    let ready = Ready::new(&opened)?;
    let mut text = String::from("attnscope: a debugger for encoder-decoder Transformers\n\n");
    text += &format!(
        "This binary carries a trained model, `demo`, which translates English captions to German:\n{}\n\n",
        super::flow::headline(&opened, ready.model)
    );
    let source = ready.source(&[DEMO_SOURCE])?;
    let target = ready.written(&source)?;
    text += &format!("  {DEMO_SOURCE}\n  {}\n\n", sentence(&ready, &target)?);
    text += &drawing(&ready, &output)?;
    text += &attention(&ready, Input::pair(source, target), &output)?;
    text += "\nNext:\n";
    for (command, what) in NEXT {
        text += &format!("  {command:<34} {what}\n");
    }
    output.write(&output.glyphs_text(&text))
}

/// What the decoder wrote, as text.
fn sentence(ready: &Ready<'_>, target: &Rows) -> Result<String, Failure> {
    let ids = target.tokens().into_iter().next().unwrap_or_default();
    Ok(ready.tokenizer()?.decode(&ids, true))
}

fn drawing(ready: &Ready<'_>, output: &Output<'_>) -> Result<String, Failure> {
    let options = FlowOptions { component: Component::Full, layer: None, symbolic: false };
    let report = |e: String| Failure::new(e, "please report this");
    let diagrams = attnscope_render::flow(ready.model, &options).map_err(|e| report(e.to_string()))?;
    let Some(glance) = diagrams.first() else { return Ok(String::new()) };
    attnscope_render::draw(glance, output.layout(), output.style()).map_err(|e| report(e.to_string()))
}

/// The last cross-attention: the clearest of what the decoder reads.
fn attention(ready: &Ready<'_>, input: Input, output: &Output<'_>) -> Result<String, Failure> {
    let last = cross_weights(&ready.model.graph).last().copied();
    let mut keep = Keep::new(|id| Some(id) == last);
    Native::new().run(ready.model, &ready.weights, &input, &mut keep)?;
    let batch = Batch { ready, input: &input, row: 0 };
    let drawn = batch.maps(&last.into_iter().collect::<Vec<_>>(), &keep.tensors, DrawnHeads::Mean);
    let legend = Heatmap::legend(output.glyphs());
    let Some(cross) = drawn.first() else { return Ok(String::new()) };
    let map = attention_text(cross, output.layout(), output.style());
    let what =
        "Where the decoder looks in the English sentence: the token that it reads ⇒ the one that it writes.";
    Ok(format!("\n{what}\n{legend}\n\n{map}"))
}
