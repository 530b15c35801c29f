//! What is wrong with a model.

use attnscope_checkpoint::Remedy;
use attnscope_diagnose as diagnose;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{SCHEMA, answer_by_document};

/// What was found, measured and not checked, and on what.
#[derive(Debug)]
pub struct Diagnosis {
    /// The model as it was named.
    pub model: String,
    /// Its title for a reader.
    pub title: String,
    /// The family's id.
    pub family: String,
    /// What it was run and judged on, in a few words.
    pub basis: String,
    /// The findings.
    pub diagnosis: diagnose::Diagnosis,
    /// How remedies are worded.
    pub words: fn(&Remedy) -> String,
}

answer_by_document!(Diagnosis, Document, "doctor");

/// What was found, measured and not checked, and on what.
#[derive(Serialize, JsonSchema)]
struct Document {
    /// 1
    schema: u32,
    /// The model as it was named.
    model: String,
    /// The family's id.
    family: String,
    /// What it was run and judged on, in a few words.
    basis: String,
    /// What was found, the worst first.
    findings: Vec<FindingDocument>,
    /// How many findings there are of each severity.
    counts: Counts,
    /// The rules that were checked.
    checked: Vec<&'static str>,
    /// Every number that a rule computed, with or without a finding.
    measures: Vec<MeasureDocument>,
    /// Where pairs were given: the scores of the declared wiring and of every other.
    wiring: Option<SearchDocument>,
    /// The rules that were not checked, and why.
    not_checked: Vec<NotChecked>,
}

/// How many findings there are of each severity.
#[derive(Serialize, JsonSchema)]
struct Counts {
    /// Findings that make the model unusable.
    error: usize,
    /// What may.
    warning: usize,
    /// Findings that are worth knowing.
    info: usize,
}

/// A finding. What does not apply is `null`. A rule may add keys: [below](#keys-of-rules).
#[derive(Serialize, JsonSchema)]
pub struct FindingDocument {
    /// The rule's id.
    rule: &'static str,
    /// `error`, `warning` or `info`.
    severity: &'static str,
    /// Where: a node's path, or a weight's.
    node: Option<String>,
    /// Which part of it.
    slice: Option<String>,
    /// What was measured.
    number: Option<f64>,
    /// The threshold.
    threshold: Option<f64>,
    /// What was seen, in a sentence.
    evidence: String,
    /// What to do next.
    try_next: String,
    /// The command that explains the rule.
    explain: String,
    /// More, under keys of the rule's own.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// A number that a rule measured. A rule may add keys: `repair_gain` has `hypotheses` and `tried` (repairs that apply to the
/// model, and those that were tried in time) and, where the best repair is not accepted, `refused` (a repair as in findings)
/// and `why_refused`.
#[derive(Serialize, JsonSchema)]
struct MeasureDocument {
    /// The rule's id.
    rule: &'static str,
    /// What the number is.
    name: &'static str,
    /// Where: a node's path, or a weight's.
    node: Option<String>,
    /// Which part of it.
    slice: Option<String>,
    /// The number.
    #[schemars(with = "Option<f64>")]
    number: f64,
    /// The rule's threshold.
    threshold: Option<f64>,
    /// The line that a report prints; `null` for the others, one per head or sublayer.
    words: Option<String>,
    /// More, under keys of the rule's own.
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// The scores of the declared wiring and of every other on the pairs.
#[derive(Serialize, JsonSchema)]
struct SearchDocument {
    /// Distinct sentence pairs.
    pairs: usize,
    /// NLL per token as declared.
    #[schemars(with = "Option<f64>")]
    nll: f64,
    /// How well the pairs fit the declared model.
    fit: FitDocument,
    /// How many hypotheses were tried in all, further rounds included: p-values are corrected for them.
    hypotheses: usize,
    /// Every single edit, the best first.
    trials: Vec<TrialDocument>,
}

/// How well pairs fit a model, in nats per token.
#[derive(Serialize, JsonSchema)]
struct FitDocument {
    /// Distinct pairs.
    pairs: usize,
    /// Their labels.
    tokens: usize,
    /// The NLL of the targets.
    #[schemars(with = "Option<f64>")]
    nll: f64,
    /// The NLL that the model itself expects: the entropy of its predictions.
    #[schemars(with = "Option<f64>")]
    expected: f64,
    /// The share of labels that are the model's first choice.
    #[schemars(with = "Option<f64>")]
    right: f64,
    /// The NLL of the uniform distribution: ln V.
    #[schemars(with = "Option<f64>")]
    uniform: f64,
    /// The NLL of the unigram distribution of the other targets.
    #[schemars(with = "Option<f64>")]
    unigram: f64,
    /// The NLL with another pair's source; `null` where all sources are the same.
    swapped: Option<f64>,
}

/// Another wiring.
#[derive(Serialize, JsonSchema)]
struct TrialDocument {
    /// The field.
    field: &'static str,
    /// Its other value.
    value: Value,
    /// The same in words.
    what: String,
    /// NLL per token as declared, on the same rows.
    #[schemars(with = "Option<f64>")]
    nll_declared: f64,
    /// NLL per token with the edit.
    #[schemars(with = "Option<f64>")]
    nll: f64,
    /// Nats per token that it gains, each at its best temperature.
    #[schemars(with = "Option<f64>")]
    gain: f64,
    /// The share of labels that are then the model's first choice.
    #[schemars(with = "Option<f64>")]
    right: f64,
    /// Pairs that it was run on: an edit that clearly loses on a few is not run on all.
    pairs: usize,
}

/// A rule that was not checked.
#[derive(Serialize, JsonSchema)]
struct NotChecked {
    /// Its id.
    rule: &'static str,
    /// What is missing.
    why: String,
    /// How to have it checked.
    how: String,
}

impl Document {
    fn of(answer: &Diagnosis) -> Self {
        let diagnosis = &answer.diagnosis;
        let not_checked = |(rule, reason): &(&'static str, diagnose::NotChecked)| NotChecked {
            rule,
            why: reason.why.clone(),
            how: (answer.words)(&reason.how),
        };
        Self {
            schema: SCHEMA,
            model: answer.model.clone(),
            family: answer.family.clone(),
            basis: answer.basis.clone(),
            findings: diagnosis.findings.iter().map(FindingDocument::of).collect(),
            counts: Counts {
                error: diagnosis.count(diagnose::Severity::Error),
                warning: diagnosis.count(diagnose::Severity::Warning),
                info: diagnosis.count(diagnose::Severity::Info),
            },
            checked: diagnosis.checked.clone(),
            measures: diagnosis.measures.iter().map(MeasureDocument::of).collect(),
            wiring: diagnosis.search.as_ref().map(SearchDocument::of),
            not_checked: diagnosis.not_checked.iter().map(not_checked).collect(),
        }
    }
}

impl FindingDocument {
    /// The JSON of a finding.
    pub fn of(finding: &diagnose::Finding) -> Self {
        Self {
            rule: finding.rule,
            severity: finding.severity.name(),
            node: finding.node.clone(),
            slice: finding.slice.clone(),
            number: finding.number,
            threshold: finding.threshold,
            evidence: finding.evidence.clone(),
            try_next: finding.try_next.clone(),
            explain: format!("attnscope explain {}", finding.rule),
            extra: finding.extra.clone(),
        }
    }
}

impl MeasureDocument {
    fn of(measure: &diagnose::Measure) -> Self {
        Self {
            rule: measure.rule,
            name: measure.name,
            node: measure.node.clone(),
            slice: measure.slice.clone(),
            number: measure.number,
            threshold: measure.threshold,
            words: measure.words.clone(),
            fields: measure.fields.clone(),
        }
    }
}

impl SearchDocument {
    fn of(search: &diagnose::Search) -> Self {
        let fit = &search.fit;
        let trial = |trial: &diagnose::Trial| TrialDocument {
            field: trial.edit.field(),
            value: trial.edit.value(),
            what: trial.edit.words(),
            nll_declared: trial.nll_declared,
            nll: trial.nll,
            gain: trial.gain,
            right: trial.right,
            pairs: trial.pairs,
        };
        Self {
            pairs: search.pairs,
            nll: search.nll,
            fit: FitDocument {
                pairs: fit.pairs,
                tokens: fit.tokens,
                nll: fit.nll,
                expected: fit.expected,
                right: fit.right,
                uniform: fit.uniform,
                unigram: fit.unigram,
                swapped: fit.swapped,
            },
            hypotheses: search.hypotheses,
            trials: search.trials.iter().map(trial).collect(),
        }
    }
}
