//! A run's audit in print.

use attnscope_diagnose::audit::{Audit, Checked, Unchecked, Why};
use attnscope_graph::{Graph, NodeId};
use serde_json::{Value, json};

use crate::flow::thousands;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::trace::number;
use crate::wrap::wrap;

/// So many of the worst are shown to a reader; programs get all.
const SHOWN: usize = 20;
/// And so many of those that were not checked.
const NAMED: usize = 3;

/// Where the bound comes from.
const BOUND: &str = "The bound: a sum of n products is off by at most n · u times the sum of the products' magnitudes, in whatever \
    order it is added up (Higham 2002, §3.1), with u = ";

/// What a trace was held against.
#[derive(Debug, Clone, Copy)]
pub struct AuditPage<'a> {
    /// The trace's name.
    pub trace: &'a str,
    /// The model's.
    pub model: &'a str,
    /// `f32` or `f64`.
    pub precision: &'a str,
    /// The model's nodes.
    pub graph: &'a Graph,
    /// The result.
    pub audit: &'a Audit,
}

impl AuditPage<'_> {
    fn path(&self, node: NodeId) -> &str {
        self.graph.node(node).path.as_str()
    }

    /// Those that rounding does not explain, in the order of computation.
    fn beyond(&self) -> Vec<&Checked> {
        self.audit.checked.iter().filter(|checked| checked.beyond()).collect()
    }

    /// The worst first.
    fn ranked(&self) -> Vec<&Checked> {
        let mut ranked: Vec<&Checked> = self.audit.checked.iter().collect();
        ranked.sort_by(|a, b| b.share.total_cmp(&a.share));
        ranked
    }

    /// For a reader.
    pub fn text(&self, options: Options) -> String {
        let (checked, unchecked) = (self.audit.checked.len(), self.audit.unchecked.len());
        let all = thousands((checked + unchecked) as u64);
        let line = format!(
            "{}: {}, {}; {} of {all} tensors computed again in f64 from the tensors they read",
            self.trace,
            self.model,
            self.precision,
            thousands(checked as u64)
        );
        let mut out = fill(&line, options.width) + "\n" + &fill(&self.verdict(), options.width);
        for line in self.unchecked_lines() {
            out += &fill(&line, options.width);
        }
        out.push('\n');
        let numbers = ["error", "of largest", "of bound"].map(Column::right);
        let columns = [Column::left("node")].into_iter().chain(numbers).collect();
        let mut table = Table::new(columns, options.glyphs);
        for checked in self.ranked().into_iter().take(SHOWN) {
            let share = if checked.share.is_finite() { percent(checked.share) } else { "∞".into() };
            let relative = if checked.error == 0.0 { 0.0 } else { checked.error / checked.largest };
            let error = if checked.error.is_finite() { number(checked.error) } else { "∞".into() };
            let mark = if checked.beyond() { "! " } else { "" };
            table.row([format!("{mark}{}", self.path(checked.node)), error, number(relative), share]);
        }
        out += &table.render(options.width);
        if let Some(rest) = checked.checked_sub(SHOWN).filter(|rest| *rest > 0) {
            out += &fill(&format!("… and {} that are nearer", thousands(rest as u64)), options.width);
        }
        let u = if self.precision == "f64" { "2⁻⁵³" } else { "2⁻²⁴" };
        out + "\n"
            + &fill(
                &format!("{BOUND}{u}; an exponential or an activation may cost 16 u more."),
                options.width,
            )
    }

    /// With as many digits as the run's numbers have.
    fn in_precision(&self, x: f64) -> String {
        if self.precision == "f64" { x.to_string() } else { (x as f32).to_string() }
    }

    fn verdict(&self) -> String {
        let beyond = self.beyond();
        match beyond.first() {
            None => match self.ranked().first() {
                Some(worst) => format!(
                    "Every error is one that rounding explains; the nearest to its bound is {} of it.",
                    percent(worst.share)
                ),
                None => "Nothing could be checked.".into(),
            },
            Some(first) => {
                let cell = first.worst.as_ref().map(|cell| {
                    format!(
                        " at {:?}: captured {}, its inputs give {}",
                        cell.at,
                        self.in_precision(cell.captured),
                        self.in_precision(cell.derived)
                    )
                });
                let verb = if beyond.len() == 1 { "tensor is" } else { "tensors are" };
                format!(
                    "{} {verb} further off than rounding explains. The first in the order of computation is {}{}.",
                    beyond.len(),
                    self.path(first.node),
                    cell.unwrap_or_default()
                )
            }
        }
    }

    fn unchecked_lines(&self) -> Vec<String> {
        let group = |why: &dyn Fn(&Why) -> bool, text: &str| {
            let found: Vec<&Unchecked> = self.audit.unchecked.iter().filter(|u| why(&u.why)).collect();
            let names: Vec<&str> = found.iter().take(NAMED).map(|u| self.path(u.node)).collect();
            let more = if found.len() > NAMED { ", …" } else { "" };
            (!found.is_empty())
                .then(|| format!("Unchecked, {text}: {} ({}{more})", found.len(), names.join(", ")))
        };
        [
            group(&|why| *why == Why::NotSaved, "not in the trace"),
            group(
                &|why| matches!(why, Why::InputNotSaved(_)),
                "in the trace without the tensors they are made of",
            ),
            group(&|why| *why == Why::Given, "given to the run"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let finite = |x: f64| if x.is_finite() { json!(x) } else { Value::Null };
        let checked = |checked: &Checked| {
            let worst = checked.worst.as_ref().map(|cell| {
                json!({ "at": cell.at, "captured": finite(cell.captured), "derived": finite(cell.derived) })
            });
            json!({
                "node": self.path(checked.node),
                "op": self.graph.node(checked.node).op.name(),
                "error": finite(checked.error),
                "largest": checked.largest,
                "share": finite(checked.share),
                "beyond": checked.beyond(),
                "worst": worst,
            })
        };
        let unchecked = |unchecked: &Unchecked| {
            let (why, input) = match unchecked.why {
                Why::NotSaved => ("not_saved", None),
                Why::InputNotSaved(input) => ("input_not_saved", Some(self.path(input))),
                Why::Given => ("given", None),
            };
            json!({ "node": self.path(unchecked.node), "why": why, "input": input })
        };
        json!({
            "trace": self.trace,
            "model": self.model,
            "precision": self.precision,
            "right": self.beyond().is_empty(),
            "first_mistake": self.beyond().first().map(|first| self.path(first.node)),
            "checked": self.audit.checked.iter().map(checked).collect::<Vec<_>>(),
            "unchecked": self.audit.unchecked.iter().map(unchecked).collect::<Vec<_>>(),
        })
    }
}

fn fill(text: &str, width: usize) -> String {
    wrap(text, width).join("\n") + "\n"
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p >= 1e6 => format!("{} ×", thousands(share as u64)),
        p if p >= 10.0 => format!("{p:.0} %"),
        p if p >= 0.1 || p == 0.0 => format!("{p:.1} %"),
        p => format!("{p:.1e} %"),
    }
}
