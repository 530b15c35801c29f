//! The check of a saved run as text.

use attnscope::answer::{CheckedTensor, TraceCheck, UncheckedReason, UncheckedTensor};
use attnscope::figures::{number, thousands};

use crate::layout::Options;
use crate::table::{Column, Table};
use crate::wrap::wrap;

/// How many of the worst are shown as text; JSON has all.
const SHOWN: usize = 20;
/// And so many of those that were not checked.
const NAMED: usize = 3;

/// Where the bound comes from.
const BOUND: &str = "The bound: a sum of n products is off by at most n · u times the sum of the products' magnitudes, in whatever \
    order it is added up (Higham 2002, §3.1), with u = ";

/// A checked trace for a reader.
pub fn text(answer: &TraceCheck, options: Options) -> String {
    options.glyphs.lines(&Page { answer }.text(options))
}

struct Page<'a> {
    answer: &'a TraceCheck,
}

impl Page<'_> {
    /// Those that rounding does not explain, in the order of computation.
    fn beyond(&self) -> Vec<&CheckedTensor> {
        self.answer.checked.iter().filter(|checked| checked.beyond).collect()
    }

    /// The worst first.
    fn ranked(&self) -> impl Iterator<Item = &CheckedTensor> {
        self.answer.ranked.iter().filter_map(|&i| self.answer.checked.get(i))
    }

    fn text(&self, options: Options) -> String {
        let (checked, unchecked) = (self.answer.checked.len(), self.answer.unchecked.len());
        let all = thousands((checked + unchecked) as u64);
        let line = format!(
            "{}: {}, {}; {} of {all} tensors computed again in f64 from their inputs",
            self.answer.trace,
            self.answer.model,
            self.answer.precision,
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
        for checked in self.ranked().take(SHOWN) {
            let share = if checked.share.is_finite() { percent(checked.share) } else { "∞".into() };
            let error = if checked.error.is_finite() { number(checked.error) } else { "∞".into() };
            let mark = if checked.beyond { "! " } else { "" };
            table.row([format!("{mark}{}", checked.node), error, number(checked.relative), share]);
        }
        out += &table.render(options.width);
        if let Some(rest) = checked.checked_sub(SHOWN).filter(|rest| *rest > 0) {
            out += &fill(&format!("… and {} with smaller errors", thousands(rest as u64)), options.width);
        }
        let u = if self.answer.precision == "f64" { "2⁻⁵³" } else { "2⁻²⁴" };
        out + "\n"
            + &fill(
                &format!("{BOUND}{u}; an exponential or an activation may cost 16 u more."),
                options.width,
            )
    }

    /// With as many digits as the run's numbers have.
    fn in_precision(&self, x: f64) -> String {
        if self.answer.precision == "f64" { x.to_string() } else { (x as f32).to_string() }
    }

    fn verdict(&self) -> String {
        let beyond = self.beyond();
        match beyond.first() {
            None => match self.ranked().next() {
                Some(worst) => format!(
                    "Rounding explains every error; the largest is {} of its bound.",
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
                    first.node,
                    cell.unwrap_or_default()
                )
            }
        }
    }

    fn unchecked_lines(&self) -> Vec<String> {
        let group = |why: UncheckedReason, text: &str| {
            let found: Vec<&UncheckedTensor> =
                self.answer.unchecked.iter().filter(|u| u.why == why).collect();
            let names: Vec<&str> = found.iter().take(NAMED).map(|u| u.node.as_str()).collect();
            let more = if found.len() > NAMED { ", …" } else { "" };
            (!found.is_empty())
                .then(|| format!("Unchecked, {text}: {} ({}{more})", found.len(), names.join(", ")))
        };
        [
            group(UncheckedReason::NotSaved, "not in the trace"),
            group(UncheckedReason::InputNotSaved, "in the trace without their inputs"),
            group(UncheckedReason::Given, "given to the run"),
        ]
        .into_iter()
        .flatten()
        .collect()
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
