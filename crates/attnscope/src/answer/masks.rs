//! The masks of a model for an input, and the proofs that nothing leaks through them.

use attnscope_diagnose::masks::{Compared, Leak, Mask, MaskReason, NotFinite, Proof, Verdict};
use schemars::JsonSchema;
use serde::Serialize;

use super::tokens::InputTokens;
use super::{SCHEMA, answer_by_document};
use crate::note::Note;

/// Masks and proofs.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskProof {
    /// The model as it was named.
    pub model: String,
    /// Its title for a reader.
    pub title: String,
    /// The family's id.
    pub family: String,
    /// What it read.
    pub tokens: InputTokens,
    /// The model's pad id, where its documents name one.
    pub pad: Option<u32>,
    /// M_e, M_d and M_x.
    pub masks: Vec<Mask>,
    /// On how many rows of the batch, the first, the proofs were run.
    pub proved_rows: usize,
    /// Padding that the proofs add to each row of a source and of a target without any.
    pub added_padding: [usize; 2],
    /// The first tensor of the unperturbed run with a value that is not finite; no proof is then run.
    pub not_finite: Option<NotFinite>,
    /// The proofs, in the order in which they were tried.
    pub proofs: Vec<Proof>,
    /// The mistakes that were asked for.
    pub wrong: Vec<ShownMistake>,
    /// Notes: what a user may not expect.
    pub notes: Vec<Note>,
}

/// A mistake compared with the right mask, on the model's own scores.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownMistake {
    /// The right weights and the wrong ones.
    pub compared: Compared,
    /// Whose scores.
    pub node: String,
    /// Which head.
    pub head: usize,
    /// Which row of the batch.
    pub row: usize,
    /// Padding that was added to a source without any, to show it.
    pub added_padding: usize,
    /// The one row that it is shown on.
    pub tokens: InputTokens,
}

impl MaskProof {
    /// Whether a proof fails, or the model's output is not finite.
    pub fn fails(&self) -> bool {
        self.not_finite.is_some() || self.proofs.iter().any(Proof::fails)
    }
}

answer_by_document!(MaskProof, Document, "masks");

/// The masks for an input, and the proofs that nothing leaks through them.
#[derive(Serialize, JsonSchema)]
struct Document {
    /// 1
    schema: u32,
    /// The model as it was named.
    model: String,
    /// The family's id.
    family: String,
    /// What it read.
    tokens: InputTokens,
    /// M_e, M_d and M_x.
    masks: Vec<MaskDocument>,
    /// On how many rows of the batch, the first, the proofs were run.
    proved_rows: usize,
    /// Padding that the proofs about padding add.
    added_padding: AddedPadding,
    /// The first value of the unperturbed run that is not finite; no proof is then run, and the exit code is 1.
    not_finite: Option<NotFiniteDocument>,
    /// In the order in which they were tried. If one fails, the exit code is 1; else, if one is inconclusive, 2.
    proofs: Vec<ProofDocument>,
    /// The mistakes that `--wrong` asks for.
    wrong: Vec<MistakeDocument>,
    /// What a user may not expect.
    notes: Vec<Note>,
}

/// Positions of padding that are added to each row of a side that has none.
#[derive(Serialize, JsonSchema)]
struct AddedPadding {
    /// Of the source.
    source: usize,
    /// Of the target.
    target: usize,
}

/// A mask.
#[derive(Serialize, JsonSchema)]
struct MaskDocument {
    /// `M_e`, `M_d` or `M_x`.
    name: &'static str,
    /// Whose it is.
    attention: &'static str,
    /// A selector of its nodes; `null` where the attention has no mask.
    nodes: Option<String>,
    /// Whether the wiring masks the future.
    causal: bool,
    /// Whether it masks padding.
    padding: bool,
    /// Batch, 1, queries, keys.
    shape: [usize; 4],
    /// Heads that share it.
    heads: usize,
    /// Layers that share it.
    layers: usize,
    /// Their numbers, where other layers of the stack have another mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_layers: Option<Vec<usize>>,
    /// How many positions before the query, or on each side of it, it sees at most, where it has a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    reach: Option<usize>,
    /// One sentence per rule.
    reasons: Vec<String>,
    /// For every row of the batch one string per query, with one letter per key: `o` visible, `f` masked as future, `p` as
    /// padding, `b` as both, `w` as outside the window, `x` as outside the window and padding.
    rows: Vec<Vec<String>>,
    /// For every row the queries without a visible key; their weights are 0 by definition.
    #[serde(rename = "blind")]
    fully_masked: Vec<Vec<usize>>,
}

/// The first value that is not finite.
#[derive(Serialize, JsonSchema)]
struct NotFiniteDocument {
    /// The tensor.
    node: String,
    /// Where in it.
    at: Vec<usize>,
    /// The value in words.
    value: String,
}

/// A proof.
#[derive(Serialize, JsonSchema)]
struct ProofDocument {
    /// What is proved: `causal`, `window`, `padding-alone`, `padding-embeddings`, `padding-states`, `cross-future`, `cross-reach`,
    /// `source-reach` or `all-padding`.
    claim: &'static str,
    /// What was changed.
    perturbed: &'static str,
    /// What must follow.
    expected: &'static str,
    /// `holds`, `fails`, `not_run` or `inconclusive`.
    verdict: &'static str,
    /// Runs of the model.
    runs: usize,
    /// Pairs of a query and a key that were tried: of a long input only some positions are tried.
    cells: usize,
    /// Of how many.
    cells_in_all: usize,
    /// The largest where all must stay, the smallest where all must move. Movements are shares of the largest value of the
    /// tensor.
    #[schemars(with = "Option<f64>")]
    movement: f64,
    /// The largest where something may move, which shows that the perturbation had an effect; `null` where nothing may.
    felt: Option<f64>,
    /// The threshold of a movement.
    #[schemars(with = "Option<f64>")]
    threshold: f64,
    /// Of a proof that fails: the first tensor that moves and must not, or stays and must move.
    #[serde(skip_serializing_if = "Option::is_none")]
    leak: Option<LeakDocument>,
    /// Of one that was not run or is inconclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// What leaks through a mask.
#[derive(Serialize, JsonSchema)]
struct LeakDocument {
    /// The tensor, the first in the order of computation.
    node: String,
    /// Its cell that moves most; where all must move: row, target position, source position.
    at: Vec<usize>,
    /// By how much of its largest value.
    #[schemars(with = "Option<f64>")]
    movement: f64,
    /// What causes it.
    cause: String,
}

/// A mistake compared with the right mask.
#[derive(Serialize, JsonSchema)]
struct MistakeDocument {
    /// Which.
    mistake: &'static str,
    /// Whose scores.
    node: String,
    /// Which head.
    head: usize,
    /// Which row of the batch.
    row: usize,
    /// Positions of padding that were added to a source without any, to show it.
    added_padding: usize,
    /// What is computed.
    formula: &'static str,
    /// The right weights, [query][key].
    right: Vec<Vec<Option<f64>>>,
    /// The wrong ones.
    wrong: Vec<Vec<Option<f64>>>,
    /// Sums of the wrong weights, one entry per query.
    rows: Vec<WrongRow>,
    /// What differs, in words.
    difference: String,
}

/// The weights of one query with a mistake.
#[derive(Serialize, JsonSchema)]
struct WrongRow {
    /// Of its weights.
    #[schemars(with = "Option<f64>")]
    sum: f64,
    /// Of those on keys that should be masked.
    #[schemars(with = "Option<f64>")]
    leaked: f64,
    /// With the right mask, of keys that the mistake hides.
    #[schemars(with = "Option<f64>")]
    lost: f64,
}

impl Document {
    fn of(answer: &MaskProof) -> Self {
        let [source, target] = answer.added_padding;
        let not_finite = |broken: &NotFinite| NotFiniteDocument {
            node: broken.node.clone(),
            at: broken.at.clone(),
            value: broken.value.to_string(),
        };
        Self {
            schema: SCHEMA,
            model: answer.model.clone(),
            family: answer.family.clone(),
            tokens: answer.tokens.clone(),
            masks: answer.masks.iter().map(MaskDocument::of).collect(),
            proved_rows: answer.proved_rows,
            added_padding: AddedPadding { source, target },
            not_finite: answer.not_finite.as_ref().map(not_finite),
            proofs: answer.proofs.iter().map(ProofDocument::of).collect(),
            wrong: answer.wrong.iter().map(MistakeDocument::of).collect(),
            notes: answer.notes.clone(),
        }
    }
}

/// How a cell is written.
pub(crate) fn letter(cell: Option<MaskReason>) -> char {
    match cell {
        None => 'o',
        Some(MaskReason::Future) => 'f',
        Some(MaskReason::Padding) => 'p',
        Some(MaskReason::FuturePadding) => 'b',
        Some(MaskReason::Window) => 'w',
        Some(MaskReason::WindowPadding) => 'x',
    }
}

impl MaskDocument {
    fn of(mask: &Mask) -> Self {
        let [batch, _, _, keys] = mask.shape;
        let row = |row: usize| {
            let queries = mask.of_row(row).chunks(keys.max(1));
            queries.map(|keys| keys.iter().copied().map(letter).collect()).collect()
        };
        Self {
            name: mask.attention.symbol(),
            attention: mask.attention.title(),
            nodes: mask.kind.map(|_| mask.attention.path("*", "mask")),
            causal: mask.kind.is_some_and(|kind| kind.causal),
            padding: mask.kind.is_some_and(|kind| kind.padding),
            shape: mask.shape,
            heads: mask.heads,
            layers: mask.layers.len(),
            of_layers: (!mask.in_all_layers).then(|| mask.layers.clone()),
            reach: mask.kind.and_then(|kind| kind.reach),
            reasons: mask.reasons.clone(),
            rows: (0..batch).map(row).collect(),
            fully_masked: (0..batch).map(|row| mask.fully_masked_queries(row)).collect(),
        }
    }
}

impl ProofDocument {
    fn of(proof: &Proof) -> Self {
        let leak = |leak: &Leak| LeakDocument {
            node: leak.node.clone(),
            at: leak.at.clone(),
            movement: leak.movement,
            cause: leak.cause.clone(),
        };
        let (verdict, leak, why) = match &proof.verdict {
            Verdict::Holds => ("holds", None, None),
            Verdict::Fails(found) => ("fails", Some(leak(found)), None),
            Verdict::NotRun(why) => ("not_run", None, Some(why.clone())),
            Verdict::Inconclusive(why) => ("inconclusive", None, Some(why.clone())),
        };
        Self {
            claim: proof.claim.id(),
            perturbed: proof.claim.perturbed(),
            expected: proof.claim.expected(),
            verdict,
            runs: proof.runs,
            cells: proof.cells,
            cells_in_all: proof.cells_in_all,
            movement: proof.movement,
            felt: proof.felt,
            threshold: proof.threshold,
            leak,
            why,
        }
    }
}

impl MistakeDocument {
    fn of(shown: &ShownMistake) -> Self {
        let compared = &shown.compared;
        let finite = |row: &[f64]| row.iter().map(|&x| super::finite(x)).collect();
        let matrix = |values: &[f64]| values.chunks(compared.keys.max(1)).map(finite).collect();
        let row = |row: &attnscope_diagnose::masks::RowDifference| WrongRow {
            sum: row.sum,
            leaked: row.leaked,
            lost: row.lost,
        };
        Self {
            mistake: compared.mistake.id(),
            node: shown.node.clone(),
            head: shown.head,
            row: shown.row,
            added_padding: shown.added_padding,
            formula: compared.mistake.formula(),
            right: matrix(&compared.right),
            wrong: matrix(&compared.wrong),
            rows: compared.rows.iter().map(row).collect(),
            difference: compared.difference(),
        }
    }
}
