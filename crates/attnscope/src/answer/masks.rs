//! The masks of a model for an input, and the proofs that nothing gets past them.

use attnscope_diagnose::masks::{Compared, Leak, Mask, NotFinite, Proof, Shut, Verdict};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use super::tokens::InputTokens;
use super::{Answer, SCHEMA};
use crate::note::Note;

/// Masks and proofs.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskProof {
    /// The model as it was named.
    pub model: String,
    /// What it is to a reader.
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
    /// What a user may not expect.
    pub notes: Vec<Note>,
}

/// A mistake beside what is right, on the model's own scores.
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
    /// Padding that a source without any was given to show it.
    pub added_padding: usize,
    /// The one row that it is shown on.
    pub tokens: InputTokens,
}

impl MaskProof {
    /// Whether a proof fails, or the model gives what is no number.
    pub fn fails(&self) -> bool {
        self.not_finite.is_some() || self.proofs.iter().any(Proof::fails)
    }
}

impl Answer for MaskProof {
    const NAME: &'static str = "masks";
}

impl Serialize for MaskProof {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document::of(self).serialize(serializer)
    }
}

impl JsonSchema for MaskProof {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MaskProof".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Document::json_schema(generator)
    }
}

/// The JSON of masks and proofs.
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
    /// Padding that the proofs add.
    added_padding: AddedPadding,
    /// The first value that is not finite; no proof is then run.
    not_finite: Option<NotFiniteDocument>,
    /// The proofs.
    proofs: Vec<ProofDocument>,
    /// The mistakes that were asked for.
    wrong: Vec<MistakeDocument>,
}

/// Positions of padding that are added to each row of a side that has none.
#[derive(Serialize, JsonSchema)]
struct AddedPadding {
    source: usize,
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
    /// A sentence a rule.
    reasons: Vec<String>,
    /// For every row of the batch a string a query with a letter a key: `o` visible, `f` masked as future, `p` as padding,
    /// `b` as both.
    rows: Vec<Vec<String>>,
    /// For every row the queries without a visible key; their weights are 0 by definition.
    blind: Vec<Vec<usize>>,
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
    /// What is proved.
    claim: &'static str,
    /// What was changed.
    perturbed: &'static str,
    /// What must follow.
    expected: &'static str,
    /// `holds`, `fails`, `not_run` or `inconclusive`.
    verdict: &'static str,
    /// Runs of the model.
    runs: usize,
    /// Pairs of a query and a key that were tried.
    cells: usize,
    /// Of how many.
    cells_in_all: usize,
    /// The largest movement where all must stay, the smallest where all must move.
    #[schemars(with = "Option<f64>")]
    movement: f64,
    /// The largest where something may move; `null` where nothing may.
    felt: Option<f64>,
    /// From where on a movement counts.
    #[schemars(with = "Option<f64>")]
    threshold: f64,
    /// Of a proof that fails: the first tensor that moves and must not, or stays and must move.
    #[serde(skip_serializing_if = "Option::is_none")]
    leak: Option<LeakDocument>,
    /// Of one that was not run or is inconclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// What gets past a mask.
#[derive(Serialize, JsonSchema)]
struct LeakDocument {
    /// The tensor.
    node: String,
    /// Its cell that moves most.
    at: Vec<usize>,
    /// By how much of its largest value.
    #[schemars(with = "Option<f64>")]
    movement: f64,
    /// What causes it.
    cause: String,
}

/// A mistake beside what is right.
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
    /// Positions that a source without padding was given to show it.
    added_padding: usize,
    /// What is computed.
    formula: &'static str,
    /// The right weights, [query][key].
    right: Vec<Vec<Option<f64>>>,
    /// The wrong ones.
    wrong: Vec<Vec<Option<f64>>>,
    /// Of the wrong ones, a query each.
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
        }
    }
}

impl MaskDocument {
    fn of(mask: &Mask) -> Self {
        let letter = |cell: &Option<Shut>| match cell {
            None => 'o',
            Some(Shut::Future) => 'f',
            Some(Shut::Padding) => 'p',
            Some(Shut::FuturePadding) => 'b',
        };
        let [batch, _, _, keys] = mask.shape;
        let row = |row: usize| {
            let queries = mask.of_row(row).chunks(keys.max(1));
            queries.map(|keys| keys.iter().map(letter).collect()).collect()
        };
        Self {
            name: mask.attention.symbol(),
            attention: mask.attention.title(),
            nodes: mask.kind.map(|_| mask.attention.path("*", "mask")),
            causal: mask.kind.is_some_and(|kind| kind.causal),
            padding: mask.kind.is_some_and(|kind| kind.padding),
            shape: mask.shape,
            heads: mask.heads,
            layers: mask.layers,
            reasons: mask.reasons.clone(),
            rows: (0..batch).map(row).collect(),
            blind: (0..batch).map(|row| mask.blind(row)).collect(),
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
