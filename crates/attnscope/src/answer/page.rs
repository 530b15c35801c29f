//! An explanation as a value: headings, sentences, formulas, tables.

use attnscope_diagnose::cell::Arithmetic;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Answer, json_by_document};
use crate::note::Note;

/// Pages that explain a topic.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// 1
    pub schema: u32,
    /// To be read from top to bottom.
    pub pages: Vec<Page>,
    /// Of one cell: its arithmetic, term by term. A step's terms add up to its value; the last step's value is the cell's, in
    /// f64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<Arithmetic>,
    /// What a user may not expect.
    pub notes: Vec<Note>,
}

impl Answer for Explanation {
    const NAME: &'static str = "explain";
}

/// Something to be read from top to bottom.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// Its parts, in order.
    pub parts: Vec<Part>,
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A heading within the page.
    Heading(String),
    /// Sentences.
    Words(String),
    /// A line of mathematics.
    Formula(String),
    /// Names and values, one per line.
    Facts(Vec<(String, String)>),
    /// Rows under headings; the flag of a column says whether it holds numbers.
    Table {
        /// The heading of each column, and whether it holds numbers.
        columns: Vec<(String, bool)>,
        /// The cells.
        rows: Vec<Vec<String>>,
    },
    /// Preformatted lines: a drawing.
    Drawing(String),
}

impl Page {
    /// A page without parts.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), parts: Vec::new() }
    }

    /// Adds sentences.
    pub fn words(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Part::Words(text.into()))
    }

    /// Adds a line of mathematics.
    pub fn formula(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Part::Formula(text.into()))
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Part::Heading(text.into()))
    }

    /// Adds names and what they are; those without a value are left out.
    pub fn facts<'n>(&mut self, facts: impl IntoIterator<Item = (&'n str, Option<String>)>) -> &mut Self {
        let known = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        self.add(Part::Facts(known.collect()))
    }

    /// Adds a table: columns that begin with `#` hold numbers.
    pub fn table(&mut self, columns: &[&str], rows: Vec<Vec<String>>) -> &mut Self {
        let column = |name: &&str| match name.strip_prefix('#') {
            Some(name) => (name.to_owned(), true),
            None => ((*name).to_owned(), false),
        };
        self.add(Part::Table { columns: columns.iter().map(column).collect(), rows })
    }

    /// Adds lines as they are.
    pub fn drawing(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Part::Drawing(text.into()))
    }

    fn add(&mut self, part: Part) -> &mut Self {
        self.parts.push(part);
        self
    }
}

json_by_document!(Part, PartDocument<'_>);

/// A part of a page: one of these.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum PartDocument<'a> {
    /// A heading within the page.
    Heading {
        /// Its words.
        heading: &'a str,
    },
    /// Sentences.
    Words {
        /// The sentences.
        words: &'a str,
    },
    /// A line of mathematics.
    Formula {
        /// The line.
        formula: &'a str,
    },
    /// Names and what they are.
    Facts {
        /// Names to texts.
        facts: Map<String, Value>,
    },
    /// Rows under headings.
    Table {
        /// The heading of each column.
        columns: Vec<&'a str>,
        /// The cells.
        rows: &'a [Vec<String>],
    },
    /// Preformatted lines.
    Drawing {
        /// The lines.
        drawing: &'a str,
    },
}

impl<'a> PartDocument<'a> {
    fn of(part: &'a Part) -> Self {
        match part {
            Part::Heading(heading) => Self::Heading { heading },
            Part::Words(words) => Self::Words { words },
            Part::Formula(formula) => Self::Formula { formula },
            Part::Facts(facts) => {
                let fact = |(name, value): &(String, String)| (name.clone(), Value::String(value.clone()));
                Self::Facts { facts: facts.iter().map(fact).collect() }
            }
            Part::Table { columns, rows } => {
                Self::Table { columns: columns.iter().map(|(name, _)| name.as_str()).collect(), rows }
            }
            Part::Drawing(drawing) => Self::Drawing { drawing },
        }
    }
}
