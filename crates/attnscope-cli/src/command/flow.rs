//! `flow`: the drawing.

use attnscope_graph::{Model, Selector};
use attnscope_render::{Component, Diagram, FlowOptions, LayoutError, Options, html};
use clap::{Args, ValueEnum};

use super::{ModelArgs, Output, OutputArgs};
use attnscope::Failure;
use attnscope::Opened;

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
        let opened = self.model.open()?;
        let model = opened.model()?;
        let output = Output::new(&self.output);
        let options = FlowOptions {
            component: self.component.component(),
            layer: self.layer.clone().map(Selector::new),
            symbolic: self.symbolic,
        };
        let diagrams = attnscope_render::flow(model, &options).map_err(|e| {
            Failure::new(format!("{}: {e}", opened.name), format!("there are: {}", e.known.join(", ")))
        })?;
        let title = headline(&opened, model);
        let text = match self.format {
            Format::Text => text(&output, &title, model, &diagrams)?,
            Format::Svg => svg(&title, model, &diagrams)?,
            Format::Mermaid => attnscope_render::mermaid(&title, &diagrams),
            Format::Dot => attnscope_render::dot(&title, &diagrams),
            Format::Html => page(&title, model, &diagrams)?,
            Format::Json => {
                attnscope_render::json::flow(&opened.name, model, options.component, options.layer.as_ref())
            }
        };
        for obstacle in &model.obstacles {
            output.note(&format!("this model draws and does not run: {obstacle}"));
        }
        if let Some(head) = model.task_head() {
            output.note(&head.sentence());
        }
        let unused = model.unused_of_model();
        if unused > 0 {
            output.note(&format!(
                "{unused} tensors of the model are not in this drawing: `attnscope inspect` lists them"
            ));
        }
        output.write(&text)
    }
}

/// One line that says which model this is.
pub(super) fn headline(opened: &Opened, model: &Model) -> String {
    let (parameters, _) = model.parameters();
    format!(
        "{} · {} · {} · {} parameters",
        opened.name,
        model.title(),
        opened.checkpoint.format(),
        attnscope_render::thousands(parameters)
    )
}

fn text(output: &Output<'_>, title: &str, model: &Model, diagrams: &[Diagram]) -> Result<String, Failure> {
    let mut text = format!("{}\n", output.glyphs().text(title));
    let legend = attnscope_render::legend(model);
    text += &attnscope_render::fill(&output.glyphs().text(&legend), output.width());
    for diagram in diagrams {
        text.push('\n');
        text += &attnscope_render::draw(diagram, output.layout(), output.style()).map_err(layout_failed)?;
    }
    Ok(text)
}

/// A drawing for a page: wide enough that nothing wraps, all diagrams below each other in one file.
fn svg(title: &str, model: &Model, diagrams: &[Diagram]) -> Result<String, Failure> {
    let options = Options { width: 110, glyphs: attnscope_render::Glyphs::Unicode };
    let scenes: Result<Vec<_>, _> = diagrams.iter().map(|d| attnscope_render::layout(d, options)).collect();
    Ok(attnscope_render::svg_sheet(title, &legend(model), &scenes.map_err(layout_failed)?))
}

fn legend(model: &Model) -> Vec<String> {
    attnscope_render::fill(&attnscope_render::legend(model), 110).lines().map(str::to_owned).collect()
}

fn page(title: &str, model: &Model, diagrams: &[Diagram]) -> Result<String, Failure> {
    let section = |d: &Diagram| html::Section { heading: String::new(), diagrams: vec![d.clone()] };
    html::page(title, &legend(model), &diagrams.iter().map(section).collect::<Vec<_>>())
        .map_err(layout_failed)
}

fn layout_failed(e: LayoutError) -> Failure {
    Failure::new(
        format!("the drawing failed: {e}"),
        "please report this with the output of `attnscope inspect`",
    )
}
