//! Explanations of what a model computes: its tensors, single cells, the ideas behind them, seven questions. Every number in
//! them comes from the given model, or from a run of it.

mod alias;
mod cell;
mod concept;
mod node;
mod question;
mod subject;
mod topic;

use std::collections::BTreeSet;

use attnscope_checkpoint::Remedy;
use attnscope_diagnose::cell::{Arithmetic, needed};
use attnscope_graph::{Graph, NodeId, View, snapshots};

use crate::answer::{Explanation, Page, SCHEMA};
use crate::collect::check_layer_index;
use crate::failure::{Argument, Failure};
use crate::input::Input;
use crate::model::Model;
use crate::note::{Notes, notes_of_input};
use crate::trace::precision;
pub(crate) use cell::cell_page;
pub(crate) use cell::{arithmetic, arithmetic_of};
use node::{node_page, snapshot_page, walk_page};
pub(crate) use subject::{Ran, Subject};
use topic::{Found, Topic, index_page, rule_page};

/// The options of an explanation.
#[derive(Debug, Clone, Default)]
pub struct ExplainOptions {
    /// What the model is run on. Without it, the built-in models use their own input; for others, shapes that depend on the
    /// input are shown as letters.
    pub input: Option<Input>,
    /// The layer that snapshots, and paths without a layer, are of.
    pub layer_index: usize,
    /// One cell of the topic, one index per dimension: its arithmetic is explained.
    pub cell: Option<Vec<usize>>,
    /// Shows every term of the cell's arithmetic; else the middle of many is replaced by its sum.
    pub every_term: bool,
}

/// What can be explained.
pub fn topics() -> Explanation {
    answer(vec![index_page()], None, Notes::default())
}

fn answer(pages: Vec<Page>, cell: Option<Arithmetic>, notes: Notes) -> Explanation {
    Explanation { schema: SCHEMA, pages, cell, notes: notes.all }
}

/// What was asked for, once the model is known.
enum Asked {
    Walk,
    Topic(Topic),
    Cell(NodeId, Vec<usize>),
}

/// Explains a topic; without one, walks through the whole model.
pub(crate) fn explain(
    model: &Model,
    topic: Option<&str>,
    options: &ExplainOptions,
    mut notes: Notes,
) -> Result<Explanation, Failure> {
    let opened = model.opened();
    let graph = &opened.model()?.graph;
    check_layer_index(graph, options.layer_index)?;
    let (asked, see_also) = match topic {
        Some(topic) => asked(topic, options, graph)?,
        None => (Asked::Walk, Vec::new()),
    };
    if let Asked::Topic(Topic::Rule(rule)) = asked {
        // The same for every model.
        return Ok(answer(vec![rule_page(rule)], None, notes));
    }
    let has_own_input = matches!(opened.name.as_str(), "demo" | "toy");
    let own = Input::default();
    let ready;
    let subject = match options.input.as_ref().or(has_own_input.then_some(&own)) {
        Some(given) => {
            ready = model.ready(given)?;
            let given = given.read(&ready)?;
            let wanted: Option<BTreeSet<NodeId>> = match &asked {
                Asked::Cell(node, _) => Some(needed(graph, *node)),
                _ => None,
            };
            let subject = Subject::run(&ready, given, precision(model.device()), wanted.as_ref())?;
            if let Some(run) = &subject.run {
                notes.add(notes_of_input(&ready, &run.input, run.generated));
            }
            subject
        }
        None => Subject::unrun(&opened.name, opened.model()?),
    };
    let (mut pages, cell) = pages(&subject, &asked, options)?;
    sign(&mut pages, &subject, &see_also);
    Ok(answer(pages, cell, notes))
}

/// What a word asks for, and what else it could.
fn asked(
    topic: &str,
    options: &ExplainOptions,
    graph: &Graph,
) -> Result<(Asked, Vec<&'static str>), Failure> {
    let Found { topic, see_also } = Topic::find(topic, graph, options.layer_index)?;
    let Some(at) = &options.cell else { return Ok((Asked::Topic(topic), see_also)) };
    let node = match topic {
        Topic::Node(node) => Some(node),
        // The node whose cells a snapshot shows.
        Topic::Snapshot(number) => {
            let walk = snapshots(graph, options.layer_index);
            walk.iter().find(|s| s.number == number).and_then(|s| s.view.nodes().first().copied())
        }
        _ => None,
    };
    match node {
        Some(node) => Ok((Asked::Cell(node, at.clone()), see_also)),
        None => {
            let failure = Failure::new("the topic has no cells", "name a node, or a snapshot that is one");
            Err(failure.about(Argument::Cell))
        }
    }
}

fn pages(
    subject: &Subject<'_>,
    asked: &Asked,
    options: &ExplainOptions,
) -> Result<(Vec<Page>, Option<Arithmetic>), Failure> {
    let page = match asked {
        Asked::Walk => walk_page(subject, options.layer_index),
        Asked::Cell(node, at) => {
            let told = arithmetic(subject, *node, at)?;
            return Ok((vec![cell_page(subject, *node, &told, options.every_term)], Some(told)));
        }
        Asked::Topic(Topic::Node(node)) => node_page(subject, *node),
        Asked::Topic(Topic::Concept(concept)) => concept.page(subject),
        Asked::Topic(Topic::Rule(rule)) => rule_page(rule),
        Asked::Topic(Topic::Questions) => {
            return Ok((QUESTIONS.iter().map(|question| question.page(subject)).collect(), None));
        }
        Asked::Topic(Topic::Snapshot(number)) => {
            let walk = snapshots(subject.graph(), options.layer_index);
            let snapshot = walk.iter().find(|s| s.number == *number);
            let snapshot = snapshot.filter(|s| !matches!(s.view, View::Absent(_)));
            snapshot_page(subject, &walk, snapshot.ok_or_else(|| absent(*number, options.layer_index))?)
        }
    };
    Ok((vec![page], None))
}

/// A cell of a run, with the arithmetic itself.
pub(crate) fn explained_cell(
    subject: &Subject<'_>,
    node: NodeId,
    at: &[usize],
    every_term: bool,
) -> Result<Explanation, Failure> {
    let told = arithmetic(subject, node, at)?;
    let mut pages = vec![cell_page(subject, node, &told, every_term)];
    sign(&mut pages, subject, &[]);
    Ok(answer(pages, Some(told), Notes::default()))
}

fn absent(number: usize, layer: usize) -> Failure {
    Failure::new(
        format!("snapshot {number}: layer {layer} of this model does not have it"),
        Remedy::WalkOfModel,
    )
}

/// The end of the last page: where its numbers come from, and where to read more.
fn sign(pages: &mut [Page], subject: &Subject<'_>, see_also: &[&str]) {
    if let Some(page) = pages.last_mut() {
        page.facts([
            ("model", Some(subject.name())),
            ("input", Some(subject.input_text())),
            ("see also", (!see_also.is_empty()).then(|| see_also.join(", "))),
        ]);
    }
}

/// An idea, and how it looks in a model.
pub(crate) struct Concept {
    /// Its name as a topic.
    pub(crate) id: &'static str,
    /// What it is, in a few words.
    pub(crate) title: &'static str,
    /// It needs a source, an encoder or cross-attention, which a model of one stack does not have.
    pub(crate) of_two_stacks: bool,
    /// The explanation for one model.
    pub(crate) tell: fn(&Subject<'_>, &mut Page),
}

/// Every idea that can be asked for.
pub(crate) const CONCEPTS: &[Concept] = concept::CONCEPTS;
/// The seven questions, by the same means.
pub(crate) const QUESTIONS: &[Concept] = question::QUESTIONS;

impl Concept {
    /// Its page.
    pub(crate) fn page(&self, subject: &Subject<'_>) -> Page {
        let mut page = Page::new(format!("{}: {}", self.id, self.title));
        let architecture = &subject.model.architecture;
        if self.of_two_stacks && !architecture.has_cross_attention() {
            page.words(format!(
                "This topic needs a model with an encoder and a decoder. This one is {}: it has no cross-attention.",
                architecture.kind()
            ));
        } else {
            (self.tell)(subject, &mut page);
        }
        page
    }
}
