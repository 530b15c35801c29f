//! `flow`: the drawing.

use attnscope::{Component, Failure, FlowOptions};
use attnscope_graph::Selector;
use attnscope_render::{LayoutError, dot, flow, mermaid};
use clap::{Args, ValueEnum};

use super::{ModelArgs, Output, OutputArgs};

#[derive(Debug, Args)]
pub(super) struct Flow {
    #[command(flatten)]
    model: ModelArgs,
    /// What to draw; `full` is the whole model at a glance, then its cross-attention
    #[arg(long, value_enum, default_value_t = Part::Full)]
    component: Part,
    /// The layers to draw: a glob over node paths such as `decoder.1`, `encoder.*.ffn`
    #[arg(long, value_name = "SELECTOR")]
    layer: Option<String>,
    /// Letters instead of numbers
    #[arg(long)]
    symbolic: bool,
    /// The form of the drawing
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Svg,
    Mermaid,
    Dot,
    Html,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Part {
    Full,
    Encoder,
    Decoder,
    SelfAttn,
    CrossAttn,
    Ffn,
}

impl Part {
    fn component(self) -> Component {
        match self {
            Self::Full => Component::Full,
            Self::Encoder => Component::Encoder,
            Self::Decoder => Component::Decoder,
            Self::SelfAttn => Component::SelfAttention,
            Self::CrossAttn => Component::CrossAttention,
            Self::Ffn => Component::FeedForward,
        }
    }
}

impl Flow {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output)?;
        let answer = self.model.model()?.on_note(output.listener()).flow(&FlowOptions {
            component: self.component.component(),
            layer: self.layer.clone().map(Selector::new),
            symbolic: self.symbolic,
        })?;
        let text = match self.format {
            Format::Text => flow::text(&answer, output.layout(), output.style()).map_err(layout_failed)?,
            Format::Svg => flow::svg(&answer).map_err(layout_failed)?,
            Format::Mermaid => mermaid(&flow::headline(&answer), &flow::diagrams(&answer)),
            Format::Dot => dot(&flow::headline(&answer), &flow::diagrams(&answer)),
            Format::Html => flow::page(&answer, &output.json_line(&answer)?).map_err(layout_failed)?,
            Format::Json => return output.write_json(&answer),
        };
        output.write(&text)
    }
}

pub(super) fn layout_failed(e: LayoutError) -> Failure {
    Failure::new(
        format!("the drawing failed: {e}"),
        "please report this with the output of `attnscope inspect`",
    )
}
