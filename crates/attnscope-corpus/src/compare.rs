//! Two audits side by side: two models on one corpus, or one model on two.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, Float64Array, Int64Array};
use attnscope_diagnose::bootstrap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::distribution::Distribution;
use crate::error::AuditError;
use crate::folder::AuditFolder;
use crate::measure::{HeadMeasure, SentenceMeasure};
use crate::summary::{column, each_batch, summarise};

/// Resampled sentences, all resamples together.
const RESAMPLED: usize = 20_000_000;

/// Two audits side by side.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// The models.
    pub models: [String; 2],
    /// The corpora.
    pub corpora: [String; 2],
    /// Whether both read the same rows.
    pub same_corpus: bool,
    /// Sentences that were measured.
    pub sentences: [u64; 2],
    /// Where the rows are the same: how many nats a sentence costs B more than A, over sentences that both measured.
    pub paired: Option<PairedNll>,
    /// NLL, NLL with a swapped source and their difference, in nats a token.
    pub nll: Vec<ComparedMeasure<SentenceMeasure>>,
    /// The heads that both have.
    pub heads: Vec<ComparedHead>,
    /// Heads of A alone, and of B alone, as `decoder.0.cross_attn head 3`.
    pub only: [Vec<String>; 2],
}

/// NLL of B less that of A, in nats a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct PairedNll {
    /// Sentences that both measured.
    pub sentences: usize,
    /// The mean.
    pub mean: f64,
    /// 2.5 % of the resamples of a bootstrap over sentences lie below.
    pub low: f64,
    /// 2.5 % lie above.
    pub high: f64,
}

/// One measure of both.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ComparedMeasure<M> {
    /// Which.
    pub measure: M,
    /// The means.
    pub means: [Option<f64>; 2],
    /// The mean of B less that of A, in standard deviations of one sentence: the root of the mean of both variances. Absent
    /// where there are no such.
    pub effect: Option<f64>,
}

/// One head of both.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ComparedHead {
    /// Its attention, as `decoder.0.cross_attn`.
    pub attention: String,
    /// The head, from 0.
    pub head: i32,
    /// Its measures.
    pub measures: Vec<ComparedMeasure<HeadMeasure>>,
}

/// Compares two audits.
///
/// # Errors
/// When a part of one is missing or cannot be read.
pub fn compare(a: &AuditFolder, b: &AuditFolder) -> Result<Comparison, AuditError> {
    let (of_a, of_b) = (summarise(a, None, 0)?, summarise(b, None, 0)?);
    let same_corpus = a.manifest().identity.corpus == b.manifest().identity.corpus;
    let nll = of_a.nll.iter().zip(&of_b.nll);
    let name = |attention: &str, head: i32| format!("{attention} head {head}");
    let [in_a, in_b] = [&of_a, &of_b].map(|summary| {
        let named = summary.heads.iter().map(|head| (name(&head.attention, head.head), head));
        named.collect::<HashMap<_, _>>()
    });
    let heads = of_a.heads.iter().filter_map(|head| {
        let other = in_b.get(&name(&head.attention, head.head))?;
        let measures = head.measures.iter().zip(&other.measures);
        Some(ComparedHead {
            attention: head.attention.clone(),
            head: head.head,
            measures: measures.map(|(a, b)| compared(a.measure, &a.distribution, &b.distribution)).collect(),
        })
    });
    let alone = |heads: &[crate::summary::HeadSummary], others: &HashMap<String, _>| -> Vec<String> {
        let names = heads.iter().map(|head| name(&head.attention, head.head));
        names.filter(|name| !others.contains_key(name)).collect()
    };
    Ok(Comparison {
        models: [a, b].map(|folder| folder.manifest().model.clone()),
        corpora: [a, b].map(|folder| folder.manifest().corpus.clone()),
        same_corpus,
        sentences: [of_a.sentences, of_b.sentences],
        paired: if same_corpus { paired(a, b)? } else { None },
        nll: nll.map(|(a, b)| compared(a.measure, &a.distribution, &b.distribution)).collect(),
        heads: heads.collect(),
        only: [alone(&of_a.heads, &in_b), alone(&of_b.heads, &in_a)],
    })
}

fn compared<M>(measure: M, a: &Distribution, b: &Distribution) -> ComparedMeasure<M> {
    let spread =
        a.variance.zip(b.variance).map(|(a, b)| ((a + b) / 2.0).sqrt()).filter(|&spread| spread > 0.0);
    let apart = a.mean.zip(b.mean).map(|(a, b)| b - a);
    let effect = apart.zip(spread).map(|(apart, spread)| apart / spread);
    ComparedMeasure { measure, means: [a.mean, b.mean], effect }
}

/// The rows that both measured, by their number.
fn paired(a: &AuditFolder, b: &AuditFolder) -> Result<Option<PairedNll>, AuditError> {
    let (of_a, of_b) = (costs(a)?, costs(b)?);
    let mut both: Vec<(i64, f64)> =
        of_a.iter().filter_map(|(row, cost)| Some((*row, of_b.get(row)? - cost))).collect();
    both.sort_by_key(|(row, _)| *row);
    let costs: Vec<f64> = both.into_iter().map(|(_, cost)| cost).collect();
    if costs.is_empty() {
        return Ok(None);
    }
    let resamples = (RESAMPLED / costs.len()).clamp(200, 2000);
    let found = bootstrap(&costs, &vec![1; costs.len()], resamples);
    Ok(Some(PairedNll { sentences: costs.len(), mean: found.mean, low: found.low, high: found.high }))
}

fn costs(folder: &AuditFolder) -> Result<HashMap<i64, f64>, AuditError> {
    let mut costs = HashMap::new();
    for part in (0..folder.manifest().parts).filter(|&part| folder.manifest().shard.has(part)) {
        let file = folder.part(part);
        each_batch(
            &file,
            |name| ["row", "nll"].contains(&name),
            |batch| {
                let row: &Int64Array = column(&file, batch, "row", |a| a.as_primitive_opt::<Int64Type>())?;
                let nll: &Float64Array =
                    column(&file, batch, "nll", |a| a.as_primitive_opt::<Float64Type>())?;
                let measured = (0..batch.num_rows()).filter(|&i| nll.is_valid(i) && nll.value(i).is_finite());
                costs.extend(measured.map(|i| (row.value(i), nll.value(i))));
                Ok(())
            },
        )?;
    }
    Ok(costs)
}
