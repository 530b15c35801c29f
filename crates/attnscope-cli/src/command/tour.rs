//! Without arguments: the demo in one or two screens, and what to try next.

use attnscope::answer::{Flow, Trace};
use attnscope::{DEMO_SOURCE, Failure, FlowOptions, Input, Maps, Pick, TraceOptions};
use attnscope_render::trace::attention_text;
use attnscope_render::{Heatmap, draw, flow};

use super::{Output, OutputArgs};

/// What to try, and what it shows.
const NEXT: [(&str, &str); 11] = [
    ("attnscope flow MODEL", "draw your file or folder: how data flows"),
    ("attnscope inspect MODEL", "what it is, the source of each fact, and what is missing"),
    ("attnscope trace --src TEXT", "a run in 43 snapshots; --save DIR saves every tensor"),
    ("attnscope explain 34 --at 0,3,5,4", "the arithmetic of one cell of it"),
    ("attnscope masks", "the three masks, drawn and proved"),
    ("attnscope doctor MODEL", "what is wrong with it, and why"),
    ("attnscope diff A B", "where two implementations diverge"),
    ("attnscope generate --src TEXT", "translate or transcribe"),
    ("attnscope report -o demo.html", "all of this as a page; `serve` shows it live"),
    ("attnscope train toy --out run", "train a model, with its attention watched"),
    ("attnscope --help", "everything else"),
];

pub(super) fn run() -> Result<(), Failure> {
    let args = OutputArgs::usual();
    let output = Output::new(&args)?;
    let model = attnscope::open("demo")?;
    let flow = model.flow(&FlowOptions::default())?;
    let options = TraceOptions {
        pick: Pick::Nodes("decoder.*.cross_attn.weights".to_owned()),
        maps: Maps::Picked,
        ..TraceOptions::default()
    };
    let trace = model.trace(&Input::text(DEMO_SOURCE), options)?;
    let mut text = String::from("attnscope: a debugger for Transformers\n\n");
    text += &format!(
        "This binary carries a trained model, `demo`, which translates English captions to German:\n{}\n\n",
        flow::headline(&flow)
    );
    text += &format!("  {DEMO_SOURCE}\n  {}\n\n", sentence(&trace)?);
    text += &drawing(&flow, &output)?;
    text += &attention(&trace, &output);
    text += "\nNext:\n";
    for (command, what) in NEXT {
        text += &format!("  {command:<34} {what}\n");
    }
    output.write(&output.glyphs_text(&text))
}

/// What the decoder generated, as text.
fn sentence(trace: &Trace) -> Result<String, Failure> {
    let row = trace.tokens.target.iter().flatten().next().map(Vec::as_slice).unwrap_or_default();
    let ids: Vec<u32> = row.iter().filter(|token| !token.padding).map(|token| token.id).collect();
    let tokenizer = trace.model().opened().tokenizer()?;
    Ok(tokenizer.map(|tokenizer| tokenizer.decode(&ids, true)).unwrap_or_default())
}

/// The model at a glance.
fn drawing(flow: &Flow, output: &Output<'_>) -> Result<String, Failure> {
    let Some(glance) = flow::diagrams(flow).into_iter().next() else { return Ok(String::new()) };
    draw(&glance, output.layout(), output.style()).map_err(super::flow::layout_failed)
}

/// The last cross-attention: it shows best what the decoder reads.
fn attention(trace: &Trace, output: &Output<'_>) -> String {
    let Some(cross) = trace.maps.last() else { return String::new() };
    let legend = Heatmap::legend(output.glyphs());
    let map = attention_text(cross, output.layout(), output.style());
    let what = "Where the decoder looks in the English sentence: the token that it reads ⇒ the one that it generates.";
    format!("\n{what}\n{legend}\n\n{map}")
}
