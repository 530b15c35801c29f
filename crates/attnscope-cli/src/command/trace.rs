//! `trace`: run the model on an input and show, print or save its tensors.

use std::path::PathBuf;

use attnscope::{Argument, Device, DrawnHeads, Failure, Gradients, Maps, Pick, TraceOptions};
use attnscope_graph::SNAPSHOTS;
use attnscope_render::trace;
use clap::{Args, ValueEnum};

use super::input::{SourceArgs, TargetArgs};
use super::{ModelArgs, Output, OutputArgs};

#[derive(Debug, Args)]
pub(super) struct Trace {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Only these nodes: a glob over node paths such as `cross_attn`, `decoder.*.ffn.act`; the weights of an attention among
    /// them are drawn, as in `encoder.0.self_attn.weights`
    #[arg(long, value_name = "SELECTOR")]
    layer: Option<String>,
    /// Only these snapshots of the walk: `10-12,34`
    #[arg(long, value_name = "NUMBERS", conflicts_with = "layer")]
    snapshots: Option<String>,
    /// The layer that the walk opens in each stack
    #[arg(long, value_name = "N", default_value_t = 0)]
    layer_index: usize,
    /// The row of the batch whose attention, ids and last logits are shown
    #[arg(long, value_name = "N", default_value_t = 0)]
    row: usize,
    /// Print the values, abbreviated where there are many
    #[arg(long)]
    payload: bool,
    /// With --payload: every value
    #[arg(long, requires = "payload")]
    full: bool,
    /// Write the tensors to a folder during the run: all, or those that --layer or --snapshots select
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Also the gradient of the mean NLL of the target by every tensor, under `grad:` and the tensor's path; of a decoder alone,
    /// of each next token
    #[arg(long)]
    gradients: bool,
    /// With --gradients of a classifier: the class of each row, by its name or its number from 0
    #[arg(long, value_name = "CLASS", value_delimiter = ',', requires = "gradients")]
    class: Vec<String>,
    /// Short for --device reference
    #[arg(long, conflicts_with = "device")]
    reference: bool,
    /// Draw one head of each attention, or `all`, one picture per head [default: their mean]
    #[arg(long, value_name = "N", value_parser = parse_head)]
    head: Option<DrawnHeads>,
    /// Text for people, JSON for programs, SVG of the attentions alone
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    format: Form,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
    Svg,
}

/// `--head 2` or `--head all`.
fn parse_head(text: &str) -> Result<DrawnHeads, String> {
    match text.parse() {
        Ok(head) => Ok(DrawnHeads::One(head)),
        Err(_) if text == "all" => Ok(DrawnHeads::All),
        Err(_) => Err("expected a number from 0, or all".to_owned()),
    }
}

/// `--snapshots 10-12,34`.
fn parse_stops(text: &str) -> Result<Vec<usize>, Failure> {
    let wrong = |part: &str| {
        let error = format!("expected numbers from 1 to {SNAPSHOTS}, found {part:?}");
        Failure::new(error, "write them as 10-12,34").about(Argument::Stops)
    };
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| (1..=SNAPSHOTS).contains(n));
        match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => numbers.extend(from..=to),
            _ => return Err(wrong(part)),
        }
    }
    Ok(numbers)
}

impl Trace {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output)?;
        let model = self.source.model(&self.model, Some(&self.target))?.on_note(output.listener());
        let model = if self.reference { model.on(Device::Reference) } else { model };
        let options = self.options()?;
        let answer = model.trace(&self.source.input(Some(&self.target))?, options)?;
        match self.format {
            Form::Text => output.write(&trace::text(&answer, self.full, output.layout(), output.style())),
            Form::Json => output.write_json(&answer),
            Form::Svg => output.write(&trace::svg(&answer)),
        }
    }

    fn options(&self) -> Result<TraceOptions, Failure> {
        Ok(TraceOptions {
            pick: match &self.layer {
                Some(selector) => Pick::Nodes(selector.clone()),
                None => Pick::Walk {
                    layer_index: self.layer_index,
                    stops: self.snapshots.as_deref().map(parse_stops).transpose()?,
                },
            },
            with_values: self.payload,
            keep: false,
            // JSON has every node's numbers; text has those of the walk.
            measure_all: self.format == Form::Json,
            row: self.row,
            maps: match self.format {
                Form::Svg => Maps::Required,
                // With --payload, values are shown instead.
                _ if self.payload => Maps::None,
                _ => Maps::Picked,
            },
            heads: self.head,
            save: self.save.clone(),
            gradients: match (self.gradients, self.class.is_empty()) {
                (false, _) => Gradients::None,
                (true, true) => Gradients::OfTarget,
                (true, false) => Gradients::OfClasses(self.class.clone()),
            },
        })
    }
}
