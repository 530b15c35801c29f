//! `explain`: what a tensor is, how a cell came about, the ideas behind them.

use std::borrow::Cow;

use attnscope_diagnose::cell::needed;
use attnscope_graph::{Graph, NodeId, View, snapshots};
use attnscope_render::json;
use attnscope_render::page::Page;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::input::{SourceArgs, TargetArgs};
use super::trace::check_layer_index;
use super::{ModelArgs, Output, OutputArgs};
use crate::explain::{
    Found, QUESTIONS, Subject, Topic, Wanted, arithmetic, cell_page, index_page, node_page, parse_at,
    rule_page, sign, snapshot_page, walk_page,
};
use attnscope::{Failure, notes_of_input};

#[derive(Debug, Args)]
pub(super) struct Explain {
    /// A snapshot number, a node path, an idea (or another word for it), a question (q1 to q7), a rule of the doctor; nothing lists them. With --walk: the model
    #[arg(value_name = "TOPIC")]
    topic: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// One cell of the node, an index a dimension: its arithmetic, term by term
    #[arg(long, value_name = "INDICES", requires = "topic", conflicts_with = "walk")]
    at: Option<String>,
    /// With --at: every term
    #[arg(long, requires = "at")]
    full: bool,
    /// A guided tour of all 43 snapshots
    #[arg(long)]
    walk: bool,
    /// The layer that snapshots are of
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

/// What was asked for, once the model is known.
enum Asked {
    Walk,
    Topic(Topic),
    Cell(NodeId, Vec<usize>),
}

impl Explain {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output);
        let Some(topic) = self.topic.as_deref().or(self.walk.then_some("")) else {
            return self.write(&output, &[index_page()], None);
        };
        let model_args = self.model_args()?;
        let opened = self.source.open(&model_args, Some(&self.target))?;
        let model = opened.model()?;
        check_layer_index(&model.graph, self.layer_index)?;
        let (asked, see_also) = self.asked(topic, &model.graph)?;
        if let Asked::Topic(Topic::Rule(rule)) = asked {
            // The same for every model.
            return self.write(&output, &[rule_page(rule)], None);
        }
        let ready;
        let subject = if self.has_input(&opened.name) {
            let given = self.source.input(Some(&self.target))?;
            ready = given.ready(&opened)?;
            let (input, generated) = given.read(&ready)?.input(&ready)?;
            output.notes(&notes_of_input(&ready, &input, generated));
            let wanted = match &asked {
                Asked::Cell(node, _) => Wanted::Nodes(needed(&model.graph, *node)),
                _ => Wanted::Shown,
            };
            Subject::run(&ready, input, generated, &wanted)?
        } else {
            Subject::unrun(&opened.name, model)
        };
        self.answer(&output, &subject, &asked, &see_also)
    }

    /// With --walk, what stands in the place of the topic is the model.
    fn model_args(&self) -> Result<Cow<'_, ModelArgs>, Failure> {
        match (&self.topic, self.walk) {
            (Some(topic), true) if self.model.model != "demo" => Err(Failure::new(
                format!(
                    "--walk goes through a whole model, and {topic:?} is given beside {:?}",
                    self.model.model
                ),
                "leave the topic out",
            )),
            (Some(model), true) => Ok(Cow::Owned(ModelArgs { model: model.clone(), ..self.model.clone() })),
            _ => Ok(Cow::Borrowed(&self.model)),
        }
    }

    /// The built-in models have something to read; others need to be given it.
    fn has_input(&self, name: &str) -> bool {
        self.source.is_given() || self.target.is_given() || matches!(name, "demo" | "toy")
    }

    /// What a word asks for, and what else it could.
    fn asked(&self, topic: &str, graph: &Graph) -> Result<(Asked, Vec<&'static str>), Failure> {
        if self.walk {
            return Ok((Asked::Walk, Vec::new()));
        }
        let Found { topic, see_also } = Topic::find(topic, graph, self.layer_index)?;
        let Some(at) = &self.at else { return Ok((Asked::Topic(topic), see_also)) };
        let node = match topic {
            Topic::Node(node) => Some(node),
            Topic::Snapshot(number) => self.node_of(graph, number),
            _ => None,
        };
        match node {
            Some(node) => Ok((Asked::Cell(node, parse_at(at)?), see_also)),
            None => {
                Err(Failure::new("--at: the topic has no cells", "name a node, or a snapshot that is one"))
            }
        }
    }

    /// The node whose cells a snapshot shows.
    fn node_of(&self, graph: &Graph, number: usize) -> Option<NodeId> {
        let walk = snapshots(graph, self.layer_index);
        walk.iter().find(|s| s.number == number)?.view.nodes().first().copied()
    }

    fn answer(
        &self,
        output: &Output<'_>,
        subject: &Subject<'_>,
        asked: &Asked,
        see_also: &[&str],
    ) -> Result<(), Failure> {
        let mut cell = None;
        let mut pages = match asked {
            Asked::Walk => vec![walk_page(subject, self.layer_index)],
            Asked::Cell(node, at) => {
                let told = arithmetic(subject, *node, at)?;
                cell = Some(json!(told));
                vec![cell_page(subject, *node, &told, self.full)]
            }
            Asked::Topic(Topic::Node(node)) => vec![node_page(subject, *node)],
            Asked::Topic(Topic::Concept(concept)) => vec![concept.page(subject)],
            Asked::Topic(Topic::Rule(rule)) => vec![rule_page(rule)],
            Asked::Topic(Topic::Questions) => QUESTIONS.iter().map(|q| q.page(subject)).collect(),
            Asked::Topic(Topic::Snapshot(number)) => {
                let walk = snapshots(subject.graph(), self.layer_index);
                let snapshot = walk.iter().find(|s| s.number == *number);
                let snapshot = snapshot.filter(|s| !matches!(s.view, View::Absent(_)));
                vec![snapshot_page(subject, &walk, snapshot.ok_or_else(|| self.absent(*number))?)]
            }
        };
        sign(&mut pages, subject, see_also);
        self.write(output, &pages, cell)
    }

    fn absent(&self, number: usize) -> Failure {
        Failure::new(
            format!("snapshot {number}: layer {} of this model does not have it", self.layer_index),
            "see which are there with `attnscope explain --walk`",
        )
    }

    fn write(&self, output: &Output<'_>, pages: &[Page], cell: Option<Value>) -> Result<(), Failure> {
        let text = match self.format {
            Form::Text => {
                let texts: Vec<String> = pages.iter().map(|page| page.text(output.layout())).collect();
                texts.join("\n\n")
            }
            Form::Markdown => pages.iter().map(Page::markdown).collect::<Vec<_>>().join("\n"),
            Form::Json => {
                let pages: Vec<Value> = pages.iter().map(Page::json).collect();
                let mut value = json!({ "schema": json::SCHEMA, "pages": pages });
                if let Some(cell) = cell {
                    value["cell"] = cell;
                }
                json::pretty(&value)
            }
        };
        output.write(&text)
    }
}
