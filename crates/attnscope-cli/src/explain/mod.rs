//! Explanations of what a model computes: its tensors, single cells, the ideas behind them, seven questions. Every
//! number in them is of the model at hand, or of a run of it.

mod alias;
mod cell;
mod concept;
mod node;
mod question;
mod subject;
mod topic;

pub(crate) use cell::{arithmetic, cell_page, parse_at};
pub(crate) use node::{node_page, snapshot_page, walk_page};
pub(crate) use subject::{Subject, Wanted};
pub(crate) use topic::{Found, Topic, index_page, rule_page};

use attnscope_render::page::Page;

/// The last words of the last page: what its numbers are of, and where else to look.
pub(crate) fn sign(pages: &mut [Page], subject: &Subject<'_>, see_also: &[&str]) {
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
    /// What it is asked for by.
    pub(crate) id: &'static str,
    /// What it is, in a few words.
    pub(crate) title: &'static str,
    /// It is told of a source, of an encoder or of cross-attention: a model of one stack has none of them.
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
                "This is told of models with an encoder and a decoder that reads it. This one is {}: it has no \
                 cross-attention.",
                architecture.kind()
            ));
        } else {
            (self.tell)(subject, &mut page);
        }
        page
    }
}
