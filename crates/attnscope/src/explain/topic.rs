//! What can be asked for, and what a word means.

use attnscope_diagnose::{Rule, rules};
use attnscope_graph::{Graph, NodeId, SNAPSHOTS};
use attnscope_render::page::Page;

use super::{CONCEPTS, Concept, QUESTIONS};
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

impl Topic {
    /// What a word stands for in a model.
    pub(crate) fn find(text: &str, graph: &Graph) -> Result<Self, Failure> {
        if let Ok(number) = text.trim_start_matches('#').parse::<usize>() {
            return match (1..=SNAPSHOTS).contains(&number) {
                true => Ok(Self::Snapshot(number)),
                false => Err(Failure::new(
                    format!("snapshot {number}: the walk has {SNAPSHOTS}, from 1"),
                    "see them all with --walk",
                )),
            };
        }
        if let Some(node) = graph.find(text) {
            return Ok(Self::Node(node));
        }
        let id = text.to_lowercase().replace(['_', ' '], "-");
        if id == "questions" {
            return Ok(Self::Questions);
        }
        if let Some(concept) = CONCEPTS.iter().chain(QUESTIONS).find(|c| c.id == id) {
            return Ok(Self::Concept(concept));
        }
        if let Some(rule) = rules().iter().find(|rule| rule.id == id) {
            return Ok(Self::Rule(rule));
        }
        let words = CONCEPTS.iter().chain(QUESTIONS).map(|c| c.id).chain(rules().iter().map(|r| r.id));
        let names = words.chain(graph.nodes().iter().map(|n| n.path.as_str()));
        Err(Failure::new(
            format!("{text:?} is neither a snapshot, a node of the model, an idea, a question nor a rule"),
            format!(
                "the nearest are {}; `attnscope explain` lists what can be asked",
                nearest(text, names).join(", ")
            ),
        ))
    }
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
    page.words("A model may follow the topic; `demo` is the default: attnscope explain heads path/to/model");
    page
}
