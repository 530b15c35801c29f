//! Makes an audit: reads the corpus, plans it, and measures the parts that are not committed yet, one after the other.

use std::path::{Path, PathBuf};
use std::time::Instant;

use attnscope_run::{Counted, Limits};

use crate::error::AuditError;
use crate::folder::{AuditFolder, Manifest, RunIdentity, Shard};
use crate::kernel::{KernelOptions, audit_batch};
use crate::merge::write_all_rejects;
use crate::model::AuditModel;
use crate::plan::Plan;
use crate::reading::{ColumnNames, read_corpus};
use crate::schema::SCHEMA_VERSION;
use crate::summary::kernel_rejects;

/// Rows of a part: what a run that is killed loses at most.
const PART_ROWS: usize = 2048;

/// What is measured of which corpus.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// The corpus.
    pub corpus: PathBuf,
    /// Which of its columns hold what.
    pub columns: ColumnNames,
    /// Heads and layers too; else only what targets cost.
    pub measures: bool,
    /// The source token of each target token, too.
    pub alignments: bool,
    /// Sides are cut to so many tokens; by default to the model's positions.
    pub max_tokens: Option<usize>,
    /// Rows of a part.
    pub part_rows: usize,
    /// Which parts are measured here.
    pub shard: Shard,
    /// Goes on with the audit that is in the folder.
    pub resume: bool,
}

impl AuditOptions {
    /// All of a corpus.
    pub fn of(corpus: impl Into<PathBuf>) -> Self {
        Self {
            corpus: corpus.into(),
            columns: ColumnNames::default(),
            measures: true,
            alignments: false,
            max_tokens: None,
            part_rows: PART_ROWS,
            shard: Shard::WHOLE,
            resume: false,
        }
    }
}

/// An audit whose parts are all committed.
#[derive(Debug)]
pub struct Finished {
    /// Its folder.
    pub folder: AuditFolder,
    /// Rows that were measured now.
    pub measured: usize,
    /// Rows that were committed before.
    pub skipped: usize,
    /// Seconds that measuring took, without reading the model and the corpus.
    pub seconds: f64,
}

/// Measures a corpus, and writes the parts of a shard into a folder.
///
/// # Errors
/// When the corpus cannot be read, the folder is not for it, the model cannot be run, or it is cancelled. What is committed stays.
pub fn audit(
    model: &AuditModel,
    options: &AuditOptions,
    folder: &Path,
    limits: &Limits,
) -> Result<Finished, AuditError> {
    let task = model.task();
    let read = read_corpus(&options.corpus, task, &options.columns)?;
    let [corpus, kept] = digests(&read);
    let plan = Plan::new(read.rows, task, options.part_rows, &options.columns.keep);
    let manifest = Manifest {
        identity: RunIdentity {
            schema: SCHEMA_VERSION,
            model: model.fingerprint.clone(),
            corpus,
            kept,
            task,
            columns: options.columns.clone(),
            measures: options.measures,
            alignments: options.alignments,
            max_tokens: options.max_tokens,
            part_rows: options.part_rows,
        },
        model: model.name.clone(),
        corpus: options.corpus.display().to_string(),
        rows: plan.rows(),
        parts: plan.parts(),
        shard: options.shard,
    };
    let folder = AuditFolder::begin(folder, manifest, options.resume)?;
    folder.write_rejects(&read.rejects)?;
    let kernel = KernelOptions {
        measures: options.measures,
        alignments: options.alignments,
        max_tokens: options.max_tokens,
        base: options.corpus.parent().unwrap_or(Path::new("")).to_owned(),
        limits: limits.quiet(),
    };
    let own: Vec<usize> = (0..plan.parts()).filter(|&part| options.shard.has(part)).collect();
    let total: usize = own.iter().map(|&part| plan.rows_of(part)).sum();
    let (mut measured, mut skipped) = (0, 0);
    let begun = Instant::now();
    for part in own {
        let rows = plan.rows_of(part);
        if options.resume && folder.has(part, rows) {
            skipped += rows;
        } else {
            folder.commit(part, &audit_batch(model, &kernel, &plan.batch(part)?)?)?;
            measured += rows;
        }
        limits.progress.tell(Counted::Sentences, measured + skipped, total);
    }
    // What the kernel rejected is known now.
    write_all_rejects(&folder, [read.rejects, kernel_rejects(&folder)?].concat())?;
    Ok(Finished { folder, measured, skipped, seconds: begun.elapsed().as_secs_f64() })
}

/// SHA-256 of a corpus as it was read, rows and rejects, whatever the file's form; and of the columns that are kept.
fn digests(read: &crate::reading::CorpusRead) -> [String; 2] {
    use sha2::{Digest, Sha256};
    let put = |sum: &mut Sha256, text: Option<&str>| {
        sum.update(text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
        sum.update(text.unwrap_or_default().as_bytes());
    };
    let (mut corpus, mut kept) = (Sha256::new(), Sha256::new());
    for row in &read.rows {
        put(&mut corpus, Some(&row.row.to_string()));
        put(&mut corpus, row.source.as_deref());
        put(&mut corpus, Some(&row.target));
        row.kept.iter().for_each(|cell| put(&mut kept, cell.as_deref()));
    }
    for reject in &read.rejects {
        put(&mut corpus, Some(&reject.row.to_string()));
    }
    [corpus, kept].map(|sum| format!("{:x}", sum.finalize()))
}
