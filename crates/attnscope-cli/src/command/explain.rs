//! `explain`: what a tensor is, how a cell was computed, the ideas behind them.

use std::borrow::Cow;

use attnscope::{ExplainOptions, Failure, Input, topics};
use attnscope_render::page;
use clap::{Args, ValueEnum};

use super::input::{SourceArgs, TargetArgs};
use super::{ModelArgs, Output, OutputArgs};

#[derive(Debug, Args)]
pub(super) struct Explain {
    /// A snapshot number, a node path, an idea (or another word for it), a question (q1 to q7), a rule of the doctor; without a
    /// topic, all are listed. With --walk: the model
    #[arg(value_name = "TOPIC")]
    topic: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// One cell of the node, one index per dimension: its arithmetic, term by term
    #[arg(long, value_name = "INDICES", requires = "topic", conflicts_with = "walk")]
    at: Option<String>,
    /// With --at: every term
    #[arg(long, requires = "at")]
    full: bool,
    /// A guided tour of all snapshots
    #[arg(long)]
    walk: bool,
    /// The layer that snapshots show
    #[arg(long, value_name = "N", default_value_t = 0)]
    layer_index: usize,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Text for a terminal, Markdown for a document, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    format: Form,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Markdown,
    Json,
}

impl Explain {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output)?;
        let answer = match &self.topic {
            None if !self.walk => topics(),
            topic => {
                let model_args = self.model_args()?;
                let model = self.source.model(&model_args, Some(&self.target))?.on_note(output.listener());
                let options = ExplainOptions {
                    input: self.input()?,
                    layer_index: self.layer_index,
                    cell: self.at.as_deref().map(parse_at).transpose()?,
                    every_term: self.full,
                };
                match topic {
                    Some(topic) if !self.walk => model.explain(topic, &options)?,
                    _ => model.walk(&options)?,
                }
            }
        };
        match self.format {
            Form::Text => output.write(&page::text(&answer, output.layout())),
            Form::Markdown => output.write(&page::markdown(&answer)),
            Form::Json => output.write_json(&answer),
        }
    }

    /// With --walk, the first argument is the model.
    fn model_args(&self) -> Result<Cow<'_, ModelArgs>, Failure> {
        match (&self.topic, self.walk) {
            (Some(topic), true) if self.model.model != "demo" => Err(Failure::new(
                format!(
                    "--walk goes through a whole model, but {topic:?} was given in addition to {:?}",
                    self.model.model
                ),
                "leave the topic out",
            )),
            (Some(model), true) => Ok(Cow::Owned(ModelArgs { model: model.clone(), ..self.model.clone() })),
            _ => Ok(Cow::Borrowed(&self.model)),
        }
    }

    fn input(&self) -> Result<Option<Input>, Failure> {
        let is_given = self.source.is_given() || self.target.is_given();
        is_given.then(|| self.source.input(Some(&self.target))).transpose()
    }
}

/// `0,1,2,3` as indices.
fn parse_at(text: &str) -> Result<Vec<usize>, Failure> {
    let index = |part: &str| {
        part.trim().parse::<usize>().map_err(|_| {
            Failure::new(
                format!("--at: expected indices from 0, separated by commas, found {part:?}"),
                "write them as 0,1,2,3: one for each dimension of the tensor",
            )
        })
    };
    text.split(',').map(index).collect()
}
