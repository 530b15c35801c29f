//! Where two runs, or two weight files, diverge.

use attnscope_diagnose::diff::{
    Compared, Divergence, Explanation, Grounds, InputDifference, Judged, Order, Relation, Report, Short,
    UnusedLine, Unusual,
};
use attnscope_diagnose::unravel;
use attnscope_graph::Side;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{SCHEMA, answer_by_document};
use crate::figures::{exact, share};
use crate::note::Note;

/// Two runs or files and where they diverge.
#[derive(Debug)]
pub struct Difference {
    /// What is compared.
    pub parties: [Party; 2],
    /// Where they diverge.
    pub report: Report,
    /// Notes: what a user may not expect.
    pub notes: Vec<Note>,
}

/// What is compared: where it is, what it is, and how many tensors it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Party {
    /// Its path, as given.
    pub path: String,
    /// `trace`, `arrays`, `Hugging Face debugger`, `Polygraphy`, `JSON`; a file's format with `--checkpoint`.
    pub kind: String,
    /// How many tensors.
    pub tensors: usize,
}

answer_by_document!(Difference, Document, "diff");

/// The difference between the inputs of two runs, in words.
pub fn input_sentence(inputs: &InputDifference) -> String {
    match inputs {
        InputDifference::Ids { side, row, position, ids: [a, b] } => {
            let of = side_name(*side);
            format!(
                "{of}, row {row}, position {position}: id {a} in A, {b} in B; nothing after that can agree"
            )
        }
        InputDifference::Length { what, lengths: [a, b] } => format!("{what}: {a} in A, {b} in B"),
        InputDifference::Audio { relative, seen_in: None } => {
            format!("other audio, or other features of it: they differ by {} of their size", share(*relative))
        }
        InputDifference::Audio { relative, seen_in: Some(node) } => format!(
            "other audio, or other features of it: {node} differs by {} of its size, and other features would \
             explain it; not both sides dumped the features themselves",
            share(*relative)
        ),
    }
}

fn side_name(side: Side) -> &'static str {
    if side == Side::Source { "source" } else { "target" }
}

/// Two runs or files and where they diverge.
#[derive(Serialize, JsonSchema)]
struct Document {
    /// 1
    schema: u32,
    /// The first.
    a: Party,
    /// The second.
    b: Party,
    /// Where the two diverge, or `null`.
    first_divergence: Option<DivergenceDocument>,
    /// Later nodes that do not follow from their inputs either.
    later_bugs: Vec<String>,
    /// Nodes slightly outside the rounding bound, or inside it but explained by a known mistake, the furthest first.
    unusual: Vec<UnusualDocument>,
    /// The families of two traces of different models.
    other_models: Option<[String; 2]>,
    /// `same`, as far as can be seen, or `different`: in that case nothing else was compared.
    inputs: &'static str,
    /// The difference between the inputs.
    input_difference: Option<InputDocument>,
    /// Types shorter than f32 that values show.
    precision: Vec<PrecisionDocument>,
    /// What could be computed again from its inputs: `all`, `without_weights` (the model was not found), `nothing` (neither
    /// side
    /// is a trace), `not_rebuilt` (the graph of a trace cannot be rebuilt, or its shapes do not fit its tokens); `weights` with
    /// `--checkpoint`.
    judged: &'static str,
    /// How many tensors of the other program are unmatched where no computed node was paired by its name: only tensors with
    /// equal values were compared, and the exit code is 1.
    only_by_values: Option<usize>,
    /// Why the model that was given could not be used.
    unused_model: Option<String>,
    /// Where the order of the nodes comes from: `graph`, `written` (the order in which a dump was written), `numbers` (at the
    /// start of names), `names` (the modules that the names mean), `unknown`.
    order: &'static str,
    /// With `order` `unknown`, the nodes that differ, the largest difference first.
    largest_differences: Option<Vec<String>>,
    /// The names that belong together.
    map: MapDocument,
    /// Every node that both have, in the order of computation.
    nodes: Vec<NodeDocument>,
    /// Tensors that were not compared.
    not_compared: NotCompared,
    /// What a user may not expect.
    notes: Vec<Note>,
}

/// Where two runs diverge.
#[derive(Serialize, JsonSchema)]
struct DivergenceDocument {
    /// The node.
    node: String,
    /// The largest difference of two finite values.
    #[schemars(with = "Option<f64>")]
    max_abs: Option<f64>,
    /// What turns one side into the other: [below](#relations).
    relation: Option<&'static str>,
    /// `bug`: a step that does not follow from its inputs. `drift`: rounding that has grown.
    kind: &'static str,
    /// Details of the relation.
    detail: Option<Value>,
    /// The relation in words.
    sentence: Option<String>,
    /// The step with the mistake, where it is before the node and was not dumped.
    cause: Option<String>,
    /// Other explanations that fit.
    also: Vec<ExplanationDocument>,
    /// `recomputed`: computed again from its own inputs. `growth`: the difference jumps. `weights`.
    grounds: &'static str,
    /// The nearest nodes before it that both have.
    reads: Vec<String>,
    /// Whether the difference begins here.
    jumps: bool,
    /// The first node past the tolerance, where a drift began before it.
    past_tolerance_at: Option<String>,
    /// The cell with the largest difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<CellDocument>,
    /// The first cell that is NaN or infinite on one side alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_finite: Option<Option<NotFiniteCell>>,
}

/// An explanation that fits as well.
#[derive(Serialize, JsonSchema)]
struct ExplanationDocument {
    /// What turns one side into the other: [below](#relations).
    relation: &'static str,
    /// Details of the relation.
    detail: Value,
    /// The relation in words.
    sentence: String,
    /// The step with the mistake, where that is not the node.
    cause: Option<String>,
}

/// A cell and its two values; one that is not finite is `null`.
#[derive(Serialize, JsonSchema)]
struct CellDocument {
    /// One index per dimension.
    at: Vec<usize>,
    /// In A.
    #[schemars(with = "Option<f64>")]
    a: f64,
    /// In B.
    #[schemars(with = "Option<f64>")]
    b: f64,
}

/// A cell whose values are texts, because JSON has no infinities and NaN.
#[derive(Serialize, JsonSchema)]
struct NotFiniteCell {
    /// One index per dimension.
    at: Vec<usize>,
    /// In A.
    a: String,
    /// In B.
    b: String,
}

/// A node slightly outside the rounding bound, or inside it but explained by a known mistake.
#[derive(Serialize, JsonSchema)]
struct UnusualDocument {
    /// The node.
    node: String,
    /// Of the bound.
    #[schemars(with = "Option<f64>")]
    share: f64,
    /// `A` or `B`.
    side: &'static str,
    /// The relation that all cells together show.
    like: Option<LikeDocument>,
}

/// What explains an unusual node: another epsilon, a part in half precision.
#[derive(Serialize, JsonSchema)]
struct LikeDocument {
    /// What turns one side into the other: [below](#relations).
    relation: &'static str,
    /// Details of the relation.
    detail: Value,
    /// The relation in words.
    sentence: String,
}

/// The difference between the inputs of two runs.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum InputDocument {
    /// Other token ids.
    Ids {
        /// `source` or `target`.
        side: &'static str,
        /// The first row in which they differ.
        row: usize,
        /// The first position in it.
        position: usize,
        /// The id in A.
        a: u32,
        /// The id in B.
        b: u32,
        /// The same in words.
        sentence: String,
    },
    /// Another number of something.
    Length {
        /// Of what.
        what: &'static str,
        /// In A.
        a: usize,
        /// In B.
        b: usize,
        /// The same in words.
        sentence: String,
    },
    /// Other audio.
    Audio {
        /// How far the features differ, relative to their size.
        #[schemars(with = "Option<f64>")]
        relative: f64,
        /// The convolution that shows it, where not both sides dumped features.
        seen_in: Option<String>,
        /// The same in words.
        sentence: String,
    },
}

/// A type shorter than f32 that values show.
#[derive(Serialize, JsonSchema)]
struct PrecisionDocument {
    /// `A` or `B`.
    side: &'static str,
    /// `bf16` or `fp16`.
    computed_in: &'static str,
    /// How many tensors hold only values of this type.
    tensors: usize,
    /// Of how many.
    looked_at: usize,
}

/// The names that belong together.
#[derive(Serialize, JsonSchema)]
struct MapDocument {
    /// Lines of the map that matched nothing.
    unused: Vec<UnusedDocument>,
    /// Proposed lines of a map for unknown names.
    proposed: Option<Vec<String>>,
}

/// A line of a map that matched nothing.
#[derive(Serialize, JsonSchema)]
struct UnusedDocument {
    /// Its number in the file.
    line: usize,
    /// Its two names.
    names: [String; 2],
    /// Why it matched nothing.
    why: String,
}

/// A node that both have, or a weight of either.
#[derive(Serialize, JsonSchema)]
struct NodeDocument {
    /// The node.
    node: String,
    /// Its name in A; `null` for a weight that A does not have.
    a: Option<String>,
    /// Its name in B; `null` for a weight that B does not have.
    b: Option<String>,
    /// Its shape.
    shape: Vec<usize>,
    /// The largest difference of two finite values.
    #[schemars(with = "Option<f64>")]
    max_abs: f64,
    /// The same, relative to the largest value of either.
    #[schemars(with = "Option<f64>")]
    relative: f64,
    /// Cells in which one side is finite and the other is not.
    apart: usize,
    /// `same`, `rounding`, `first`, `after`; `apart` where no order is known.
    state: &'static str,
    /// How it was converted for the comparison: another layout, a scale, found by its values; with `--checkpoint` the relation
    /// in words.
    seen_as: Option<String>,
    /// Whether the two were paired because their values are the same.
    by_values: bool,
    /// The cell with the largest difference; `null` where no two finite values differ.
    cell: Option<CellDocument>,
}

/// Names of tensors that belong to no node of the other.
#[derive(Serialize, JsonSchema)]
struct NotCompared {
    /// Of A.
    a: Vec<String>,
    /// Of B.
    b: Vec<String>,
}

impl Document {
    fn of(answer: &Difference) -> Self {
        let Difference { parties: [a, b], report, .. } = answer;
        let [left_a, left_b] = report.left.clone();
        let first = report.first.as_ref();
        Self {
            schema: SCHEMA,
            a: a.clone(),
            b: b.clone(),
            first_divergence: first.map(|first| DivergenceDocument::of(report, first)),
            later_bugs: report.later.clone(),
            unusual: report.unusual.iter().map(UnusualDocument::of).collect(),
            other_models: report.other_models.clone(),
            inputs: if report.inputs.is_some() { "different" } else { "same" },
            input_difference: report.inputs.as_ref().map(InputDocument::of),
            precision: report.short.iter().map(PrecisionDocument::of).collect(),
            judged: match report.judged {
                Judged::All => "all",
                Judged::WithoutWeights => "without_weights",
                Judged::NoTrace => "nothing",
                Judged::NotRebuilt => "not_rebuilt",
                Judged::Weights => "weights",
            },
            only_by_values: report.only_by_values,
            unused_model: report.unused_model.clone(),
            order: report.order.name(),
            largest_differences: ranked(report),
            map: MapDocument {
                unused: report.unused_lines.iter().map(UnusedDocument::of).collect(),
                proposed: report.proposal.as_ref().map(|proposal| proposal.lines.clone()),
            },
            nodes: report.nodes.iter().map(NodeDocument::of).collect(),
            not_compared: NotCompared { a: left_a, b: left_b },
            notes: answer.notes.clone(),
        }
    }
}

/// Where no order is known: what differs, the largest first.
fn ranked(report: &Report) -> Option<Vec<String>> {
    let names = || report.largest.iter().filter_map(|&i| report.nodes.get(i)).map(|row| row.node.clone());
    (report.order == Order::Unknown).then(|| names().collect())
}

impl DivergenceDocument {
    fn of(report: &Report, first: &Divergence) -> Self {
        let row = report.nodes.get(first.row);
        let relation = first.relation.as_ref();
        let apart = |row: &Compared| {
            row.measure.first_apart.map(|(at, [a, b])| NotFiniteCell {
                at: unravel(at, &row.shape),
                a: exact(a),
                b: exact(b),
            })
        };
        Self {
            node: first.node.clone(),
            max_abs: row.map(|row| row.measure.max_abs),
            relation: relation.map(Relation::name),
            kind: first.kind.name(),
            detail: relation.map(Relation::detail),
            sentence: relation.map(|relation| relation.sentence(first.odd_one.name())),
            cause: first.cause.clone(),
            also: first.also.iter().map(|other| ExplanationDocument::of(other, first)).collect(),
            grounds: match first.grounds {
                Grounds::Recomputed => "recomputed",
                Grounds::Growth => "growth",
                Grounds::Weights => "weights",
            },
            reads: first.reads.clone(),
            jumps: first.jumps,
            past_tolerance_at: first.past_tolerance_at.clone(),
            cell: row.map(CellDocument::of),
            not_finite: row.map(apart),
        }
    }
}

impl ExplanationDocument {
    fn of(other: &Explanation, first: &Divergence) -> Self {
        Self {
            relation: other.relation.name(),
            detail: other.relation.detail(),
            sentence: other.relation.sentence(first.odd_one.name()),
            cause: other.cause.clone(),
        }
    }
}

impl UnusualDocument {
    fn of(unusual: &Unusual) -> Self {
        let side = unusual.odd_one.name();
        let like = |like: &Relation| LikeDocument {
            relation: like.name(),
            detail: like.detail(),
            sentence: like.sentence(side),
        };
        Self { node: unusual.node.clone(), share: unusual.share, side, like: unusual.like.as_ref().map(like) }
    }
}

impl InputDocument {
    fn of(inputs: &InputDifference) -> Self {
        let sentence = input_sentence(inputs);
        match inputs.clone() {
            InputDifference::Ids { side, row, position, ids: [a, b] } => {
                Self::Ids { side: side_name(side), row, position, a, b, sentence }
            }
            InputDifference::Length { what, lengths: [a, b] } => Self::Length { what, a, b, sentence },
            InputDifference::Audio { relative, seen_in } => Self::Audio { relative, seen_in, sentence },
        }
    }
}

impl PrecisionDocument {
    fn of(short: &Short) -> Self {
        Self {
            side: short.side.name(),
            computed_in: short.grain.name(),
            tensors: short.nodes,
            looked_at: short.looked_at,
        }
    }
}

impl UnusedDocument {
    fn of(line: &UnusedLine) -> Self {
        Self { line: line.line, names: line.names.clone(), why: line.why.clone() }
    }
}

impl NodeDocument {
    fn of(row: &Compared) -> Self {
        let name = |name: &String| (!name.is_empty()).then(|| name.clone());
        let [a, b] = &row.names;
        Self {
            node: row.node.clone(),
            a: name(a),
            b: name(b),
            shape: row.shape.clone(),
            max_abs: row.measure.max_abs,
            relative: row.measure.relative(),
            apart: row.measure.apart,
            state: row.state.name(),
            seen_as: row.seen_as.clone(),
            by_values: row.by_values,
            cell: (row.measure.max_abs > 0.0).then(|| CellDocument::of(row)),
        }
    }
}

impl CellDocument {
    /// The cell with the largest difference.
    fn of(row: &Compared) -> Self {
        Self { at: unravel(row.measure.at, &row.shape), a: row.measure.a, b: row.measure.b }
    }
}
