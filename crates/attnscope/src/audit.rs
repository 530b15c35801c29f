//! Measures a model over a corpus.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::Remedy;
use attnscope_corpus::{AuditFolder, AuditModel, ColumnNames, Shard, Task};
use attnscope_graph::Side;
use sha2::{Digest, Sha256};

use crate::answer::{Audit, AuditComparison, AuditRun, SCHEMA};
use crate::failure::Failure;
use crate::input::Input;
use crate::model::Model;
use crate::open::Opened;

/// A corpus, and what its rows are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditCorpus {
    /// Sources and targets.
    Pairs(PathBuf),
    /// Recordings and their transcripts.
    Audio(PathBuf),
    /// Texts, one a row.
    Text(PathBuf),
}

impl AuditCorpus {
    /// Its file.
    pub fn file(&self) -> &Path {
        match self {
            Self::Pairs(file) | Self::Audio(file) | Self::Text(file) => file,
        }
    }

    fn task(&self) -> Task {
        match self {
            Self::Pairs(_) => Task::Pairs,
            Self::Audio(_) => Task::Audio,
            Self::Text(_) => Task::Text,
        }
    }
}

/// How a corpus is measured.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// Which columns of the corpus hold what, and which are kept in the output.
    pub columns: ColumnNames,
    /// The languages of both sides, for a multilingual model.
    pub languages: Input,
    /// Heads and layers too; else only what targets cost.
    pub measures: bool,
    /// The source token of each target token, too.
    pub alignments: bool,
    /// Sides are cut to so many tokens; by default to the model's positions.
    pub max_tokens: Option<usize>,
    /// Rows of a part: what a run that is killed loses at most.
    pub part_rows: Option<usize>,
    /// Which parts are measured here.
    pub shard: Shard,
    /// Goes on with the audit that is in the folder.
    pub resume: bool,
    /// A kept column whose values the summary tells apart.
    pub by: Option<String>,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            columns: ColumnNames::default(),
            languages: Input::default(),
            measures: true,
            alignments: false,
            max_tokens: None,
            part_rows: None,
            shard: Shard::WHOLE,
            resume: false,
            by: None,
        }
    }
}

/// The model as the kernel uses it.
pub(crate) fn audit_model(model: &Model, languages: &Input) -> Result<AuditModel, Failure> {
    let opened = model.opened();
    check_predicts(opened)?;
    let graph_model = opened.model()?;
    let ready = model.ready(languages)?;
    ready.tokenizer()?;
    let shift = ready.shift()?;
    let alignment_heads = match graph_model.architecture.has_cross_attention() {
        true => ready.alignment_heads()?.heads,
        false => Vec::new(),
    };
    let ends = ready.end_tokens().to_vec();
    let fingerprint = fingerprint(model, languages)?;
    let (prepared, pad) = (ready.prepared.clone(), ready.pad);
    let Some(tokenizer) = ready.tokenizer else {
        return Err(Failure::new(format!("{}: no tokenizer", opened.name), Remedy::Tokenizer));
    };
    Ok(AuditModel {
        name: opened.name.clone(),
        fingerprint,
        prepared,
        tokenizer,
        shift,
        pad,
        ends,
        alignment_heads,
    })
}

/// The error for a model whose output is no text.
fn check_predicts(opened: &Opened) -> Result<(), Failure> {
    let architecture = &opened.model()?.architecture;
    if architecture.classifier().is_none() && architecture.reads(Side::Target) {
        return Ok(());
    }
    let error = format!("{}: it predicts no text, so there is nothing that a text costs it", opened.name);
    Err(Failure::new(error, "give a model that has a decoder"))
}

/// SHA-256 of the checkpoint's files, of every fact of the model, and of the languages.
fn fingerprint(model: &Model, languages: &Input) -> Result<String, Failure> {
    let mut sum = Sha256::new();
    for file in model.opened().checkpoint.sha256()? {
        sum.update(file);
    }
    for fact in &model.opened().model()?.facts {
        sum.update(format!("{}={};", fact.name, fact.value));
    }
    sum.update(format!("{:?} {:?}", languages.source_language, languages.target_language));
    sum.update(model.device().name());
    Ok(format!("{:x}", sum.finalize()))
}

/// Measures a corpus.
pub(crate) fn audit(
    model: &Model,
    corpus: &AuditCorpus,
    out: &Path,
    options: &AuditOptions,
) -> Result<Audit, Failure> {
    let quiet = model.clone().with_limits(model.limits().quiet());
    check_predicts(model.opened())?;
    check_rows(model.opened(), corpus)?;
    let audited = audit_model(&quiet, &options.languages)?;
    if let Some(by) = options.by.as_ref().filter(|by| !options.columns.keep.contains(by)) {
        let error = format!("the summary is to tell the values of {by:?} apart, which is not kept");
        return Err(Failure::new(error, "keep that column, too"));
    }
    let whole = attnscope_corpus::AuditOptions::of(corpus.file());
    let run = attnscope_corpus::AuditOptions {
        columns: options.columns.clone(),
        measures: options.measures,
        alignments: options.alignments,
        max_tokens: options.max_tokens,
        part_rows: options.part_rows.unwrap_or(whole.part_rows),
        shard: options.shard,
        resume: options.resume,
        ..whole
    };
    let done = attnscope_corpus::audit(&audited, &run, out, model.limits())?;
    let run = AuditRun { measured: done.measured, skipped: done.skipped, seconds: done.seconds };
    answer(&done.folder, Some(run), options.by.as_deref(), 0)
}

/// The error for rows of another kind than the model reads.
fn check_rows(opened: &Opened, corpus: &AuditCorpus) -> Result<(), Failure> {
    let (reads, given) = (Task::of(opened.model()?), corpus.task());
    if reads == given {
        return Ok(());
    }
    let words = |task: Task| match task {
        Task::Pairs => "pairs of a source and a target",
        Task::Audio => "recordings with their transcripts",
        Task::Text => "one text a row",
    };
    let cross = match reads {
        Task::Text => ": it has no cross-attention that could be measured on a source",
        Task::Pairs | Task::Audio => "",
    };
    let error =
        format!("{}: the model reads {}, and {} are given{cross}", opened.name, words(reads), words(given));
    let remedy = match reads {
        Task::Pairs => Remedy::CorpusPairs,
        Task::Audio => Remedy::CorpusClips,
        Task::Text => Remedy::CorpusTexts,
    };
    Err(Failure::new(error, remedy))
}

fn answer(
    folder: &AuditFolder,
    run: Option<AuditRun>,
    by: Option<&str>,
    sample: usize,
) -> Result<Audit, Failure> {
    let manifest = folder.manifest();
    Ok(Audit {
        schema: SCHEMA,
        model: manifest.model.clone(),
        corpus: manifest.corpus.clone(),
        folder: folder.path().display().to_string(),
        rows: manifest.identity.task,
        shard: manifest.shard,
        parts: manifest.parts,
        run,
        summary: attnscope_corpus::summarise(folder, by, sample)?,
    })
}

/// Joins the shards of an audit in a new folder.
///
/// # Errors
/// When the shards are not of one audit, a part is missing or in two of them, or the folder is not empty.
pub fn merge_audits(shards: &[PathBuf], out: &Path, by: Option<&str>) -> Result<Audit, Failure> {
    answer(&attnscope_corpus::merge(shards, out)?, None, by, 0)
}

/// Sums up an audit that was written, with so many evenly chosen sentences.
///
/// # Errors
/// When the folder holds no audit, or parts are missing.
pub fn read_audit(folder: &Path, by: Option<&str>, sample: usize) -> Result<Audit, Failure> {
    answer(&AuditFolder::open(folder)?, None, by, sample)
}

/// Two audits side by side: two models, or two corpora.
///
/// # Errors
/// When a folder holds no audit, or parts are missing.
pub fn compare_audits(a: &Path, b: &Path) -> Result<AuditComparison, Failure> {
    let comparison = attnscope_corpus::compare(&AuditFolder::open(a)?, &AuditFolder::open(b)?)?;
    let folders = [a, b].map(|folder| folder.display().to_string());
    Ok(AuditComparison { schema: SCHEMA, folders, comparison })
}
