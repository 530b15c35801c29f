//! Worked examples of attention, claim by claim.

use attnscope_diagnose::worked::{
    Example, Fit, Judged, JudgedWord, Judgement, Matrix, Mistake, Part, Step, Verdict, divisor, formula,
    parts,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{SCHEMA, answer_by_document, finite};

/// Examples that were computed and judged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkedExamples {
    /// In the order given; those that cannot be read are left out.
    pub examples: Vec<JudgedExample>,
    /// Whether more than one was given, readable or not.
    pub of_many: bool,
}

/// An example and the verdicts on its claims.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedExample {
    /// Where it is from.
    pub file: String,
    /// What it gives and claims.
    pub example: Example,
    /// The verdicts.
    pub judgement: Judgement,
}

impl WorkedExamples {
    /// Whether no claim is wrong.
    pub fn is_right(&self) -> bool {
        self.examples.iter().all(|judged| judged.judgement.is_right())
    }
}

answer_by_document!(WorkedExamples, Document, "check");

/// Worked examples of attention, claim by claim.
#[derive(Serialize, JsonSchema)]
struct Document {
    /// 1
    schema: u32,
    /// One entry per file, in the given order; files that cannot be read are left out, and the exit code is 2.
    examples: Vec<ExampleDocument>,
}

/// An example.
#[derive(Serialize, JsonSchema)]
struct ExampleDocument {
    /// The file as given.
    file: String,
    /// Its title.
    title: String,
    /// Its heads.
    heads: usize,
    /// What the products are divided by.
    scale: ScaleDocument,
    /// Whether no claim is wrong; the exit code is 1 where it is `false` in any example.
    right: bool,
    /// The first claim that does not follow from what is before it (`V`, `weights.0`, `squash`), or `null`.
    first_mistake: Option<String>,
    /// Everything that can be computed; with several heads the context of each comes before the whole.
    steps: Vec<StepDocument>,
    /// One verdict per claim, in the order of computation.
    claims: Vec<ClaimDocument>,
    /// Statements in words.
    words: Vec<WordDocument>,
}

/// What products are divided by.
#[derive(Serialize, JsonSchema)]
struct ScaleDocument {
    /// As it is written.
    name: String,
    /// The number; `null` where scores are given.
    value: Option<f64>,
}

/// A step that was computed or given.
#[derive(Serialize, JsonSchema)]
struct StepDocument {
    /// `Q`, `weights.0`.
    step: String,
    /// Whether the example gives it.
    given: bool,
    /// How it is computed; `null` for what is given.
    formula: Option<String>,
    /// Rows and columns.
    shape: [usize; 2],
    /// Its rows. −∞ is `null`; no other value is.
    values: Vec<Vec<Option<f64>>>,
}

/// A claim.
#[derive(Serialize, JsonSchema)]
struct ClaimDocument {
    /// The step.
    claim: String,
    /// Its line in the file.
    line: usize,
    /// `right`: true within the tolerance. `right_as_rounded`: follows from earlier claims that are right but rounded.
    /// `follows`: follows from earlier claims or from what they may have been rounded from, and some of those are wrong.
    /// `wrong`: does not follow from what is before it.
    verdict: &'static str,
    /// Its tolerance.
    tolerance: f64,
    /// What is claimed, in rows.
    claimed: Vec<Vec<Option<f64>>>,
    /// What is true.
    #[serde(rename = "true")]
    truth: Vec<Vec<Option<f64>>>,
    /// What follows from the claims before it; `null` where that is the truth.
    from_claims: Option<Vec<Vec<Option<f64>>>>,
    /// For `follows`: the wrong claims that it follows from.
    #[serde(skip_serializing_if = "Option::is_none")]
    because_of: Option<Vec<String>>,
    /// For `wrong`: the wrong rows, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<usize>>,
    /// For `wrong`: the cell with the largest error; `null` where the shape is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    worst: Option<Option<CellDocument>>,
    /// For `wrong`: the mistakes that would explain it, the best first; empty where none of the `tried` ones fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanations: Option<Vec<ExplanationDocument>>,
    /// For `wrong`: how many explanations were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    tried: Option<usize>,
}

/// The cell of a claim with the largest error.
#[derive(Serialize, JsonSchema)]
struct CellDocument {
    /// From 0.
    row: usize,
    /// From 0.
    column: usize,
    /// What is claimed.
    claimed: Option<f64>,
    /// What is true.
    #[serde(rename = "true")]
    truth: Option<f64>,
    /// What follows from the claims before it.
    from_claims: Option<f64>,
}

/// A mistake that would explain a claim.
#[derive(Serialize, JsonSchema)]
struct ExplanationDocument {
    /// `scale`, `scaled_early`, `mask_multiplied_before`, `mask_multiplied_after`, `mask_transposed`, `mask_ignored`,
    /// `sigmoid`, `softmax_over_columns`, `softmax_over_everything`, `no_exponentials`, `no_division`, `no_softmax`,
    /// `transposed_weight`, `swapped_weight`, `swapped_source`, `bias_left_out`, `swapped_factors`, `keys_not_transposed`,
    /// `weights_transposed`, `swapped_values`, `values_reordered`, `heads_reordered`, `heads_interleaved`, `transposed`,
    /// `sign`, `copied` or `too_coarse`.
    kind: &'static str,
    /// The same in words.
    sentence: String,
    /// The wrong rows that it explains.
    rows: Vec<usize>,
    /// How far the claim is from what it predicts.
    off: f64,
}

/// A statement in words.
#[derive(Serialize, JsonSchema)]
struct WordDocument {
    /// `scale` or `squash`.
    claim: &'static str,
    /// Its line in the file.
    line: usize,
    /// What is claimed.
    claimed: String,
    /// `right` or `wrong`.
    verdict: &'static str,
    /// Why.
    sentence: String,
}

impl Document {
    fn of(answer: &WorkedExamples) -> Self {
        Self { schema: SCHEMA, examples: answer.examples.iter().map(ExampleDocument::of).collect() }
    }
}

impl ExampleDocument {
    fn of(JudgedExample { file, example, judgement }: &JudgedExample) -> Self {
        let first = judgement.first_mistake().map(|mistake| match mistake {
            Mistake::Claim(judged) => judged.claim.part.to_string(),
            Mistake::Word(word) => word.name.to_owned(),
        });
        let steps = Step::ALL.into_iter().flat_map(|step| parts(example, judgement, step));
        let step = |part: Part| {
            let value = judgement.truth.part(part)?;
            let given = example.is_given(part.step);
            Some(StepDocument {
                step: part.to_string(),
                given,
                formula: (!given).then(|| formula(example, part)),
                shape: value.shape(),
                values: rows(&value),
            })
        };
        Self {
            file: file.clone(),
            title: example.title.clone(),
            heads: example.heads,
            scale: ScaleDocument {
                name: example.scale.to_string(),
                value: divisor(example, example.scale).and_then(finite),
            },
            right: judgement.is_right(),
            first_mistake: first,
            steps: steps.filter_map(step).collect(),
            claims: judgement.claims.iter().map(|judged| ClaimDocument::of(example, judged)).collect(),
            words: judgement.words.iter().map(WordDocument::of).collect(),
        }
    }
}

impl ClaimDocument {
    fn of(example: &Example, judged: &Judged) -> Self {
        let claim = Self {
            claim: judged.claim.part.to_string(),
            line: judged.claim.stated.line,
            verdict: match &judged.verdict {
                Verdict::Right => "right",
                Verdict::RightFromRounded => "right_as_rounded",
                Verdict::Follows { .. } => "follows",
                Verdict::Wrong(_) => "wrong",
            },
            tolerance: judged.tolerance,
            claimed: rows(&judged.claim.stated.matrix),
            truth: rows(&judged.truth),
            from_claims: judged.follows.as_ref().map(rows),
            because_of: None,
            rows: None,
            worst: None,
            explanations: None,
            tried: None,
        };
        match &judged.verdict {
            Verdict::Right | Verdict::RightFromRounded => claim,
            Verdict::Follows { from } => {
                Self { because_of: Some(from.iter().map(Part::to_string).collect()), ..claim }
            }
            Verdict::Wrong(wrong) => Self {
                rows: Some(wrong.rows.clone()),
                worst: Some(wrong.worst.map(|cell| CellDocument {
                    row: cell.row,
                    column: cell.column,
                    claimed: finite(cell.claimed),
                    truth: finite(cell.truth),
                    from_claims: finite(cell.follows),
                })),
                explanations: Some(
                    wrong.fits.iter().map(|fit| ExplanationDocument::of(example, fit)).collect(),
                ),
                tried: Some(wrong.tried),
                ..claim
            },
        }
    }
}

impl ExplanationDocument {
    fn of(example: &Example, fit: &Fit) -> Self {
        Self {
            kind: fit.explanation.kind(),
            sentence: fit.explanation.sentence(example),
            rows: fit.rows.clone(),
            off: fit.off,
        }
    }
}

impl WordDocument {
    fn of(word: &JudgedWord) -> Self {
        Self {
            claim: word.name,
            line: word.line,
            claimed: word.claimed.to_string(),
            verdict: if word.wrong { "wrong" } else { "right" },
            sentence: word.sentence.clone(),
        }
    }
}

fn rows(matrix: &Matrix) -> Vec<Vec<Option<f64>>> {
    matrix.each_row().map(|row| row.iter().map(|&x| finite(x)).collect()).collect()
}
