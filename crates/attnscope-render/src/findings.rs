//! What was found, for a reader.

use attnscope::Remedy;
use attnscope::answer::Diagnosis as Answer;
use attnscope::figures::{counted, number};
use attnscope_diagnose::{CATALOGUE, Diagnosis, Finding, Measure, NotChecked, Severity, UsualMistake, rules};

use crate::hint::Hint;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::text::Style;
use crate::wrap::{shown, wrap};

const INDENT: &str = "  ";

/// What a report shows of what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// A line for every rule that found nothing.
    Summary,
    /// That, and every number head by head and sublayer by sublayer.
    EveryMeasure,
}

/// The report for a reader: the worst first, what was measured, what was not checked and why, counts.
pub fn text(answer: &Answer, measures: Shown, options: Options, style: Style) -> String {
    let page = Page { options, style };
    let diagnosis = &answer.diagnosis;
    let mut out = page.line(&format!("{}: {}", answer.model, answer.title), "");
    out += &page.line(&answer.basis, INDENT);
    for group in groups(&diagnosis.findings) {
        out.push('\n');
        out += &page.group(group);
    }
    out += &page.measured(diagnosis);
    if measures == Shown::EveryMeasure {
        out += &page.every_measure(&diagnosis.measures);
    }
    if !diagnosis.not_checked.is_empty() {
        out.push('\n');
        out += &page.not_checked(&diagnosis.not_checked, answer.words);
    }
    out.push('\n');
    out + &page.line(&counts(diagnosis), "")
}

/// Findings of one rule and severity that follow each other.
fn groups(findings: &[Finding]) -> impl Iterator<Item = &[Finding]> {
    findings.chunk_by(|a, b| a.rule == b.rule && a.severity == b.severity && a.try_next == b.try_next)
}

/// `1 error, 2 warnings, 3 notes. 17 rules checked, 2 not.`
fn counts(diagnosis: &Diagnosis) -> String {
    let words = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Info, "note")];
    let found: Vec<String> = words
        .iter()
        .map(|&(s, word)| (diagnosis.count(s), word))
        .filter(|(n, _)| *n > 0)
        .map(|(n, w)| counted(n, w))
        .collect();
    let found = if found.is_empty() { "nothing found".to_owned() } else { found.join(", ") };
    let rest = match diagnosis.not_checked.len() {
        0 => String::new(),
        n => format!(", {n} not"),
    };
    format!("{found}; {} checked{rest}", counted(diagnosis.checked.len(), "rule"))
}

struct Page {
    options: Options,
    style: Style,
}

impl Page {
    /// A paragraph, wrapped and indented.
    fn line(&self, text: &str, indent: &str) -> String {
        let columns = self.options.width.saturating_sub(indent.len()).max(20);
        let lines = wrap(&shown(text, self.options.glyphs), columns);
        lines.iter().map(|line| format!("{indent}{line}\n")).collect()
    }

    fn group(&self, findings: &[Finding]) -> String {
        let Some(first) = findings.first() else { return String::new() };
        let heading = match findings.len() {
            1 => format!("{} {}", first.severity.name(), first.rule),
            n => format!("{} {} × {n}", first.severity.name(), first.rule),
        };
        let mut out = self.colored(&shown(&heading, self.options.glyphs), first.severity);
        for finding in findings {
            let place = [finding.node.as_deref(), finding.slice.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ");
            let place = if place.is_empty() { place } else { format!("{place}: ") };
            out += &self.line(&format!("{place}{}", finding.evidence), INDENT);
        }
        out += &self.line(&format!("try: {}", first.try_next), INDENT);
        let why = Hint::Rule(first.rule).words(self.options.reader);
        out + &self.line(&format!("why: {why}"), INDENT)
    }

    fn colored(&self, text: &str, severity: Severity) -> String {
        let code = match severity {
            Severity::Error => "1;31",
            Severity::Warning => "1;33",
            Severity::Info => "1;36",
        };
        if self.style.color { format!("\x1b[{code}m{text}\x1b[0m\n") } else { format!("{text}\n") }
    }

    /// Measurements of rules without findings, one line each.
    fn measured(&self, diagnosis: &Diagnosis) -> String {
        let passed = |m: &&Measure| diagnosis.findings.iter().all(|finding| finding.rule != m.rule);
        let mut out = String::new();
        for measure in diagnosis.measures.iter().filter(passed) {
            let Some(words) = &measure.words else { continue };
            let place = place(measure).map(|place| format!(", at {place}")).unwrap_or_default();
            out += &self.line(&format!("{}: {words}{place}", measure.rule), INDENT);
        }
        if out.is_empty() { out } else { format!("\nmeasured\n{out}") }
    }

    /// Every number that has a place: one column per measure, one row per place.
    fn every_measure(&self, measures: &[Measure]) -> String {
        let mut out = String::new();
        for is_part in [true, false] {
            let placed: Vec<(String, &Measure)> = measures
                .iter()
                .filter(|m| m.slice.is_some() == is_part && m.node.is_some())
                .filter_map(|m| Some((place(m)?, m)))
                .collect();
            out += &self.measure_table(&placed, if is_part { "head" } else { "node" });
        }
        out
    }

    fn measure_table(&self, placed: &[(String, &Measure)], what: &str) -> String {
        let (mut names, mut places) = (Vec::new(), Vec::new());
        for (place, measure) in placed {
            if !names.contains(&measure.name) {
                names.push(measure.name);
            }
            if !places.contains(&place) {
                places.push(place);
            }
        }
        if places.is_empty() {
            return String::new();
        }
        let heads = names.iter().map(|name| Column::right(&heading(name)));
        let columns = std::iter::once(Column::left(what)).chain(heads).collect();
        let mut table = Table::new(columns, self.options.glyphs).flexible(0);
        for at in places {
            let cell = |name: &&str| {
                let found = placed.iter().find(|(place, m)| place == at && m.name == *name);
                found.map_or_else(String::new, |(_, measure)| number(measure.number))
            };
            let cells: Vec<String> = std::iter::once(at.clone()).chain(names.iter().map(cell)).collect();
            table.row(cells.iter().map(String::as_str));
        }
        format!("\n{}", table.render(self.options.width))
    }

    /// Rules with the same reason are listed together.
    fn not_checked(&self, rules: &[(&'static str, NotChecked)], words: fn(&Remedy) -> String) -> String {
        let mut reasons: Vec<(&NotChecked, Vec<&str>)> = Vec::new();
        for (rule, reason) in rules {
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, rules)) => rules.push(rule),
                None => reasons.push((reason, vec![rule])),
            }
        }
        let mut out = "not checked\n".to_owned();
        for (reason, rules) in reasons {
            out += &self.line(&format!("{}: {}", rules.join(", "), reason.why), INDENT);
            out += &self.line(&format!("try: {}", words(&reason.how)), "    ");
        }
        out
    }
}

/// Where a number was measured, where it is of one place.
fn place(measure: &Measure) -> Option<String> {
    let parts: Vec<&str> =
        [measure.node.as_deref(), measure.slice.as_deref()].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// What a column of measures is called.
fn heading(name: &str) -> String {
    match name {
        // Cross-entropy is a loss; this is the entropy of attention weights.
        "cross_entropy" => "entropy across".to_owned(),
        other => other.replace('_', " "),
    }
}

/// The usual mistakes, and the names that commands give them: docs/mistakes.md.
pub fn mistakes_page() -> String {
    let mut page = String::from(
        "# The usual mistakes\n\n\
         What people get wrong in attention, and who finds it: `attnscope doctor` by what the model predicts (a field of the\n\
         wiring, or a kind of repair), `diff` by the values of another run (a relation), `masks --wrong` shows what it does to\n\
         the model's own scores, and `check` finds it in numbers on paper. An empty cell: the command has no evidence for it.\n\n\
         | mistake | doctor | diff | masks | check |\n|---|---|---|---|---|\n",
    );
    for mistake in CATALOGUE {
        let list =
            |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let UsualMistake { what, doctor, diff, masks, check } = mistake;
        let cells = [doctor, diff, masks, check].map(|names| list(names));
        page += &format!("| {what} | {} |\n", cells.join(" | "));
    }
    page
}

/// Every rule, explained: docs/rules.md.
pub fn rules_page() -> String {
    let mut page = "# Rules\n\n".to_owned();
    page += "What `attnscope doctor` looks for, in the order of its checks. `attnscope explain RULE` says the same.\n";
    page += "Where nothing is wrong, the report still says what was measured; `--measures` prints it head by head, and JSON always\n";
    page += "has it. What could not be checked is listed with what it needs; a rule that `--rules` names and that could not be checked\n";
    page += "ends with exit code 2. Pairs (`--pairs FILE`) are one source, a tab and its target per line; for an audio model the file of a\n";
    page += "clip, relative to the list, a tab and its transcript.\n";
    page += "`--thresholds FILE` reads a TOML file with other thresholds; its keys are named below.\n";
    page += "\n| rule | severity | what it reports |\n|---|---|---|\n";
    for rule in rules() {
        page += &format!("| [`{0}`](#{0}) | {1} | {2} |\n", rule.id, rule.severity.name(), rule.what);
    }
    for rule in rules() {
        page += &format!("\n## {}\n\n{} {}\n\n", rule.id, rule.what, rule.why);
        page += &format!(
            "- **How it is measured:** {}\n- **Threshold:** {}\n- **Try:** {}\n",
            rule.how, rule.threshold, rule.try_next
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::heading;

    #[test]
    fn the_entropy_of_a_cross_attention_is_not_called_a_loss() {
        assert_eq!(heading("cross_entropy"), "entropy across");
        assert_eq!(heading("branch_ratio"), "branch ratio");
    }
}
