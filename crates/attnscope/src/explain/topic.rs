//! What can be asked for, and what a word means.

use crate::answer::Page;
use attnscope_checkpoint::Remedy;
use attnscope_diagnose::{Rule, rules};
use attnscope_graph::{Graph, Node, NodeId, SNAPSHOTS};

use super::{CONCEPTS, Concept, QUESTIONS, alias};
use crate::failure::Failure;
use crate::near::nearest;

/// Something that can be explained.
pub(crate) enum Topic {
    /// A stop of the walk, by its number.
    Snapshot(usize),
    /// A node.
    Node(NodeId),
    /// An idea or a question.
    Concept(&'static Concept),
    /// All questions.
    Questions,
    /// A rule of the doctor.
    Rule(&'static Rule),
}

/// A topic, and others that the same word could mean.
pub(crate) struct Found {
    pub(crate) topic: Topic,
    pub(crate) see_also: Vec<&'static str>,
}

impl Found {
    fn only(topic: Topic) -> Self {
        Self { topic, see_also: Vec::new() }
    }
}

impl Topic {
    /// What a word means in a model: a number, a name, another word for a topic, the beginning of one. A path
    /// without its layer is looked for in layer `layer`.
    pub(crate) fn find(text: &str, graph: &Graph, layer: usize) -> Result<Found, Failure> {
        if let Ok(number) = text.trim_start_matches('#').parse::<usize>() {
            return match (1..=SNAPSHOTS).contains(&number) {
                true => Ok(Found::only(Self::Snapshot(number))),
                false => Err(Failure::new(
                    format!("snapshot {number}: the walk has {SNAPSHOTS}, from 1"),
                    Remedy::Walk,
                )),
            };
        }
        if let Some(node) = graph.find(text) {
            return Ok(Found::only(Self::Node(node)));
        }
        if let Some(topic) = Self::named(text) {
            return Ok(Found::only(topic));
        }
        if let Some(found) = alias::about(text).and_then(Self::first_of) {
            return Ok(found);
        }
        match Self::nodes(text, graph, layer).as_slice() {
            [] => {}
            [node] => return Ok(Found::only(Self::Node(*node))),
            several => {
                let names: Vec<&str> = several.iter().map(|&id| graph.node(id).path.as_str()).collect();
                return Err(ambiguous(text, &names));
            }
        }
        let begun = begun(text);
        match begun.as_slice() {
            [] => Err(unknown(text, graph)),
            [topic] => Self::first_of(&[topic]).ok_or_else(|| unknown(text, graph)),
            several => Err(ambiguous(text, several)),
        }
    }

    /// The topic of that name.
    fn named(text: &str) -> Option<Self> {
        let id = alias::plain(text);
        if id == "questions" {
            return Some(Self::Questions);
        }
        let concept = CONCEPTS.iter().chain(QUESTIONS).find(|c| alias::plain(c.id) == id);
        let rule = || rules().iter().find(|rule| alias::plain(rule.id) == id);
        concept.map(Self::Concept).or_else(|| rule().map(|rule| Self::Rule(rule)))
    }

    fn first_of(topics: &[&'static str]) -> Option<Found> {
        let (first, rest) = topics.split_first()?;
        Some(Found { topic: Self::named(first)?, see_also: rest.to_vec() })
    }

    /// The nodes that a path without its layer names in a layer: `cross_attn.weights`.
    fn nodes(text: &str, graph: &Graph, layer: usize) -> Vec<NodeId> {
        let ends = format!(".{text}");
        let here = |(_, node): &(NodeId, &Node)| {
            let path = &node.path;
            path.layer().is_none_or(|(_, n)| n == layer) && path.as_str().ends_with(&ends)
        };
        graph.iter().filter(here).map(|(id, _)| id).collect()
    }
}

/// Letters that the beginning of a word has at least.
const LEAST_LETTERS: usize = 3;

/// The topics that a word begins, or a part of whose name it begins.
fn begun(text: &str) -> Vec<&'static str> {
    let start = alias::plain(text);
    if start.chars().count() < LEAST_LETTERS {
        return Vec::new();
    }
    let begins = |name: &str| {
        alias::plain(name).starts_with(&start) || name.split('-').any(|part| part.starts_with(&start))
    };
    let mut found: Vec<&'static str> = Vec::new();
    for (word, topic) in ids().map(|id| (id, id)).chain(alias::words()) {
        if begins(word) && !found.contains(&topic) {
            found.push(topic);
        }
    }
    found
}

/// Every topic that has a name.
fn ids() -> impl Iterator<Item = &'static str> {
    CONCEPTS.iter().chain(QUESTIONS).map(|c| c.id).chain(rules().iter().map(|rule| rule.id))
}

fn ambiguous(text: &str, names: &[&str]) -> Failure {
    Failure::new(
        format!("{text:?} could be {}", names.join(", ")),
        Remedy::Topic(names.first().copied().unwrap_or_default().to_owned()),
    )
}

/// The error for an unknown word, with the nearest known ones: names of nodes only where it looks like one.
fn unknown(text: &str, graph: &Graph) -> Failure {
    let near = match text.contains('.') {
        true => nearest(text, graph.nodes().iter().map(|n| n.path.as_str())),
        false => nearest(text, ids().chain(alias::words().map(|(word, _)| word))),
    };
    Failure::new(
        format!("{text:?} is neither a snapshot, a node of the model, an idea, a question nor a rule"),
        Remedy::NearTopics(near.into_iter().map(str::to_owned).collect()),
    )
}

/// What a rule of the doctor reports, why, and how it decides.
pub(crate) fn rule_page(rule: &Rule) -> Page {
    let mut page = Page::new(format!("{}: a rule of `attnscope doctor`", rule.id));
    page.words(rule.what);
    page.facts([
        ("severity", Some(rule.severity.name().to_owned())),
        ("why", Some(rule.why.to_owned())),
        ("measured", Some(rule.how.to_owned())),
        ("decided by", Some(rule.threshold.to_owned())),
        ("try", Some(rule.try_next.to_owned())),
    ]);
    page
}

/// What can be asked for.
pub(crate) fn index_page() -> Page {
    let mut page = Page::new("explain: what can be asked");
    let row = |name: &str, what: &str| vec![name.to_owned(), what.to_owned()];
    let mut rows = vec![
        row("1 to 43", "a stop of the walk through a forward pass; all of them with --walk"),
        row(
            "decoder.0.cross_attn.weights",
            "any node by its path; `attnscope flow --format json` lists them",
        ),
        row("cross_attn.weights", "the same in the layer that --layer-index names"),
        row("… --at 0,1,2,3", "the arithmetic of one cell of it, term by term"),
    ];
    rows.push(row("", ""));
    rows.extend(CONCEPTS.iter().map(|c| row(c.id, c.title)));
    rows.push(row("", ""));
    rows.extend(QUESTIONS.iter().map(|c| row(c.id, c.title)));
    rows.push(row("questions", "all seven, answered"));
    rows.push(row("", ""));
    rows.extend(rules().iter().map(|rule| row(rule.id, rule.what)));
    page.table(&["topic", "what it explains"], rows);
    page.words(
        "Other words for an idea are understood, too (softmax, layer norm, causal, ffn, beam search), and so is the \
         beginning of a name. A model may follow the topic; `demo` is the default: attnscope explain heads \
         path/to/model",
    );
    page
}
