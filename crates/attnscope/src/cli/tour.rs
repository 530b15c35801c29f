//! No arguments at all: the demo at a glance, and what to try next.

use attnscope_render::{Component, FlowOptions, Glyphs};

use super::{Color, Output, OutputArgs};
use crate::failure::Failure;
use crate::open::Opened;

pub(super) fn run() -> Result<(), Failure> {
    let args = OutputArgs { output: None, width: None, ascii: false, color: Color::Auto, quiet: false };
    let output = Output::new(&args);
    let opened = Opened::open("demo", None)?;
    let model = opened.encoder_decoder()?;
    let options = FlowOptions { component: Component::Full, layer: None, symbolic: false };
    let diagrams = attnscope_render::flow(model, &options)
        .map_err(|e| Failure::new(e.to_string(), "please report this"))?;
    let mut text = String::from("attnscope: a debugger for encoder-decoder Transformers\n\n");
    text += &format!(
        "This binary carries a trained model, `demo`, which translates English captions to German:\n{}\n\n",
        super::flow::headline(&opened, model)
    );
    if let Some(glance) = diagrams.first() {
        text += &attnscope_render::draw(glance, output.layout(), output.style())
            .map_err(|e| Failure::new(e.to_string(), "please report this"))?;
    }
    text += "\nNext:\n";
    for (command, what) in [
        ("attnscope flow", "the cross-attention of demo, box by box"),
        ("attnscope flow MODEL", "the same for your file or folder"),
        ("attnscope inspect MODEL", "what it is, who says so, and what is missing"),
        ("attnscope summary MODEL", "shapes, parameters and multiply-adds, layer by layer"),
        ("attnscope --help", "everything else"),
    ] {
        text += &format!("  {command:<26} {what}\n");
    }
    let text = if output.glyphs() == Glyphs::Ascii { Glyphs::Ascii.text(&text) } else { text };
    output.write(&text)
}
