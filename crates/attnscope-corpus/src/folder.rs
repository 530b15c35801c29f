//! An audit's folder: `audit.json` says what it is of, `part-00042.parquet` are its parts. A part is written under a temporary
//! name and renamed when it is whole, so that what has its name is committed.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use attnscope_checkpoint::{Error, ErrorKind, write_file};
use attnscope_run::catch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::AuditError;
use crate::model::Task;
use crate::reading::{ColumnNames, Reject};
use crate::schema::SCHEMA_VERSION;

const MANIFEST: &str = "audit.json";
const LOCK: &str = ".audit.lock";
const REJECTS: &str = "rejects.jsonl";

/// Rows of a row group: what a reader holds at once. A row has all heads of its sentence.
const GROUP_ROWS: usize = 2048;
/// Bytes of a row group, however many rows that is.
const GROUP_BYTES: usize = 64 << 20;

/// One of n parts of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shard {
    /// Which, from 0.
    pub index: usize,
    /// Of how many.
    pub count: usize,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Whether a part is of this shard.
    pub fn has(self, part: usize) -> bool {
        part % self.count.max(1) == self.index
    }
}

/// What an audit is of: two with the same identity have the same parts, bit for bit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    /// The version of the columns.
    pub schema: u32,
    /// SHA-256 of the model's files and wiring.
    pub model: String,
    /// SHA-256 of the corpus, as it was read, without the columns that are only kept.
    pub corpus: String,
    /// SHA-256 of the columns that are kept.
    pub kept: String,
    /// What a row is.
    pub task: Task,
    /// Which columns hold what, and which are kept.
    pub columns: ColumnNames,
    /// Whether heads and layers are measured.
    pub measures: bool,
    /// Whether alignments are kept.
    pub alignments: bool,
    /// The most tokens of a side, where that was set.
    pub max_tokens: Option<usize>,
    /// Rows of a part.
    pub part_rows: usize,
}

impl RunIdentity {
    /// The first fact that differs: what it is, here and there.
    fn difference(&self, there: &Self) -> Option<(&'static str, String, String)> {
        let short = |sum: &str| sum.chars().take(12).collect::<String>();
        let facts = [
            ("schema version", self.schema.to_string(), there.schema.to_string()),
            ("model (SHA-256)", short(&self.model), short(&there.model)),
            ("corpus (SHA-256)", short(&self.corpus), short(&there.corpus)),
            ("rows", format!("{:?}", self.task), format!("{:?}", there.task)),
            ("columns", self.columns.words(), there.columns.words()),
            ("kept columns (SHA-256)", short(&self.kept), short(&there.kept)),
            ("measures of heads", self.measures.to_string(), there.measures.to_string()),
            ("alignments", self.alignments.to_string(), there.alignments.to_string()),
            ("most tokens", format!("{:?}", self.max_tokens), format!("{:?}", there.max_tokens)),
            ("rows of a part", self.part_rows.to_string(), there.part_rows.to_string()),
        ];
        facts.into_iter().find(|(_, here, there)| here != there)
    }
}

/// `audit.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// What the audit is of.
    pub identity: RunIdentity,
    /// What the user called the model.
    pub model: String,
    /// And the corpus.
    pub corpus: String,
    /// How many rows can be measured.
    pub rows: usize,
    /// How many parts all shards have together.
    pub parts: usize,
    /// Which of them are here.
    pub shard: Shard,
}

/// A folder of an audit. While it is open to be written, nobody else writes to it.
#[derive(Debug)]
pub struct AuditFolder {
    path: PathBuf,
    manifest: Manifest,
    /// Held as long as it is written to.
    _lock: Option<File>,
}

impl AuditFolder {
    /// Begins an audit, or goes on with the one that is there.
    ///
    /// # Errors
    /// When something else is in the folder, another audit is, or another process writes to it.
    pub fn begin(path: &Path, manifest: Manifest, resume: bool) -> Result<Self, AuditError> {
        if path.is_file() {
            return Err(AuditError::NoFolder { folder: path.to_owned() });
        }
        fs::create_dir_all(path).map_err(|why| AuditError::io(path, why))?;
        let there = Manifest::read(path);
        match &there {
            Err(AuditError::NoAudit { .. }) => check_empty(path)?,
            Ok(_) | Err(_) if !resume => return Err(AuditError::Exists { folder: path.to_owned() }),
            Ok(_) => {}
            Err(_) => return Err(there.err().unwrap_or(AuditError::NoAudit { folder: path.to_owned() })),
        }
        let lock = lock(path)?;
        if let Ok(there) = there {
            manifest.check(path, &there)?;
        } else {
            let text = serde_json::to_string_pretty(&manifest).map_err(|e| AuditError::Damaged {
                file: path.join(MANIFEST),
                expected: "a manifest".into(),
                found: e.to_string(),
            })?;
            write_text(&path.join(MANIFEST), &format!("{text}\n"))?;
        }
        Ok(Self { path: path.to_owned(), manifest, _lock: Some(lock) })
    }

    /// Opens a folder to read.
    ///
    /// # Errors
    /// When it holds no audit.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        Ok(Self { path: path.to_owned(), manifest: Manifest::read(path)?, _lock: None })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The file of a part.
    pub fn part(&self, part: usize) -> PathBuf {
        self.path.join(format!("part-{part:05}.parquet"))
    }

    /// Whether a part is committed: its file is there and whole.
    pub fn has(&self, part: usize, rows: usize) -> bool {
        let file = File::open(self.part(part)).ok();
        let reader = file.and_then(|file| catch(|| SerializedFileReader::new(file).ok()).ok().flatten());
        reader.is_some_and(|reader| {
            usize::try_from(reader.metadata().file_metadata().num_rows()).is_ok_and(|found| found == rows)
        })
    }

    /// The parts of this folder's shard that are not there.
    pub fn missing(&self) -> Vec<usize> {
        let own = (0..self.manifest.parts).filter(|&part| self.manifest.shard.has(part));
        own.filter(|&part| !self.part(part).is_file()).collect()
    }

    /// Writes a part and commits it.
    pub(crate) fn commit(&self, part: usize, batch: &RecordBatch) -> Result<(), AuditError> {
        let path = self.part(part);
        let mut failed = None;
        let written = write_file(&path, |file| {
            write_part(file, batch).map_err(|why| {
                let error = AuditError::parquet(&path, why);
                let said = std::io::Error::other(error.to_string());
                failed = Some(error);
                Error::new(&path, ErrorKind::Write(said))
            })
        });
        match (written, failed) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(error)) => Err(error),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Writes the rows that cannot be measured.
    pub(crate) fn write_rejects(&self, rejects: &[Reject]) -> Result<(), AuditError> {
        let lines: Vec<String> =
            rejects.iter().filter_map(|reject| serde_json::to_string(reject).ok()).collect();
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        write_text(&self.path.join(REJECTS), &text)
    }

    /// The rows that cannot be measured.
    ///
    /// # Errors
    /// When their file cannot be read.
    pub fn rejects(&self) -> Result<Vec<Reject>, AuditError> {
        let file = self.path.join(REJECTS);
        let text = match fs::read_to_string(&file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(|why| AuditError::io(&file, why))?,
        };
        let line = |line: &str| {
            serde_json::from_str(line).map_err(|e| AuditError::Damaged {
                file: file.clone(),
                expected: "rejected rows".into(),
                found: e.to_string(),
            })
        };
        text.lines().map(line).collect()
    }
}

impl Manifest {
    fn read(path: &Path) -> Result<Self, AuditError> {
        let file = path.join(MANIFEST);
        let text = match fs::read_to_string(&file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(AuditError::NoAudit { folder: path.to_owned() });
            }
            text => text.map_err(|why| AuditError::io(&file, why))?,
        };
        let manifest: Self = serde_json::from_str(&text).map_err(|e| AuditError::Damaged {
            file: file.clone(),
            expected: "a manifest".into(),
            found: e.to_string(),
        })?;
        let damaged =
            |expected: &str, found: String| AuditError::Damaged { file, expected: expected.into(), found };
        if manifest.identity.schema != SCHEMA_VERSION {
            let expected = format!("schema version {SCHEMA_VERSION}");
            return Err(damaged(&expected, manifest.identity.schema.to_string()));
        }
        let Shard { index, count } = manifest.shard;
        if index >= count {
            return Err(damaged("a shard below their number", format!("{index}/{count}")));
        }
        Ok(manifest)
    }

    /// Whether an audit that is there is this one.
    pub(crate) fn check(&self, folder: &Path, there: &Self) -> Result<(), AuditError> {
        let other = |(what, here, there)| AuditError::Other { folder: folder.to_owned(), what, there, here };
        self.identity.difference(&there.identity).map_or(Ok(()), |found| Err(other(found)))?;
        let shard = |shard: Shard| format!("{}/{}", shard.index, shard.count);
        match self.shard == there.shard {
            true => Ok(()),
            false => Err(other(("shard", shard(self.shard), shard(there.shard)))),
        }
    }
}

fn write_part(file: &File, batch: &RecordBatch) -> Result<(), parquet::errors::ParquetError> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("attnscope {}", env!("CARGO_PKG_VERSION")))
        .build();
    let buffered = std::io::BufWriter::with_capacity(1 << 20, file);
    let mut writer = ArrowWriter::try_new(buffered, batch.schema(), Some(properties))?;
    let version =
        parquet::file::metadata::KeyValue::new("attnscope.schema".into(), SCHEMA_VERSION.to_string());
    writer.append_key_value_metadata(version);
    writer.write(batch)?;
    Ok(writer.into_inner()?.flush()?)
}

pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), AuditError> {
    let written = write_file(path, |mut file| {
        file.write_all(text.as_bytes()).map_err(|e| Error::new(path, ErrorKind::Write(e)))
    });
    Ok(written?)
}

/// Nothing of anybody's is in the folder; hidden files are no one's work.
fn check_empty(path: &Path) -> Result<(), AuditError> {
    let entries = fs::read_dir(path).map_err(|why| AuditError::io(path, why))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    match names.first() {
        None => Ok(()),
        Some(first) => Err(AuditError::Foreign { folder: path.to_owned(), found: first.clone() }),
    }
}

/// Locked by this process: the system ends that with the process, however that ends.
fn lock(path: &Path) -> Result<File, AuditError> {
    let file = path.join(LOCK);
    let open = File::options().create(true).truncate(false).write(true).open(&file);
    let lock = open.map_err(|why| AuditError::io(&file, why))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => Err(AuditError::Busy { folder: path.to_owned() }),
        // Not every file system has locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(lock),
    }
}
