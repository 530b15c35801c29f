//! Tensors that another program left behind while it ran: a folder or an archive of arrays, a debugger's tree, JSON.
//!
//! A dump may have thousands of files, one per tensor: no file is kept open, and none is read before its values are needed.

mod debugger;
mod elements;
mod files;
mod json;
mod polygraphy;
mod scan;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use elements::Elements;

use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::folder::read_capped;
use crate::held::HeldTensor;
use crate::json::check_json_values;
use crate::read::npz;
use crate::source::{SharedBytes, Source};
use crate::tensor::{Packing, Place, TensorInfo};
use crate::unfinished::Unfinished;

/// More tensors than any run writes.
const MAX_TENSORS: usize = 1 << 18;

/// Values in a debugger's tree, which has some for every call of every module.
const MAX_TREE_VALUES: usize = 1 << 23;

/// The program that made a dump, as far as it can be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpKind {
    /// Arrays in files: .npy, .npz, .safetensors, .pt.
    Arrays,
    /// The tree that Hugging Face's `model_addition_debugger_context` writes.
    Debugger,
    /// Outputs that Polygraphy saved.
    Polygraphy,
    /// Nested lists of numbers.
    Json,
    /// What hooks on the modules of a live model kept, in the order of the calls.
    Capture,
}

impl DumpKind {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arrays => "arrays",
            Self::Debugger => "Hugging Face debugger",
            Self::Polygraphy => "Polygraphy",
            Self::Json => "JSON",
            Self::Capture => "captured modules",
        }
    }
}

/// Tensors by name, whose values are read one tensor at a time.
#[derive(Debug, Clone)]
pub struct Dump {
    path: PathBuf,
    kind: DumpKind,
    tensors: Vec<DumpTensor>,
    by_name: HashMap<String, usize>,
    /// How many tensors, from the first on, stand in the order in which they were written.
    written: usize,
    /// Where an archive was unpacked, for as long as it is read.
    _unpacked: Option<Arc<Unfinished>>,
}

/// A tensor of a dump.
#[derive(Debug, Clone)]
pub struct DumpTensor {
    /// The name under which it was saved; folders and nested keys are joined with dots.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// How its values are stored; f64 where they are written as text.
    pub dtype: DType,
    file: Arc<Path>,
    at: At,
}

/// Where in its file a tensor is.
#[derive(Clone)]
enum At {
    Place(TensorInfo),
    /// Numbers as text, in brackets.
    Digits(Range<usize>),
    /// A NumPy file in base64.
    Base64(Range<usize>),
    /// In no file.
    Memory(SharedBytes),
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(info) => info.fmt(f),
            Self::Digits(range) => write!(f, "digits {range:?}"),
            Self::Base64(range) => write!(f, "base64 {range:?}"),
            Self::Memory(_) => f.write_str("in memory"),
        }
    }
}

impl DumpTensor {
    /// How many values it has. Readers refuse shapes whose product overflows.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn in_file(name: String, file: &Arc<Path>, info: TensorInfo) -> Self {
        let (shape, dtype) = (info.shape.clone(), info.dtype);
        Self { name, shape, dtype, file: file.clone(), at: At::Place(info) }
    }
}

impl Dump {
    /// Opens a folder, an archive or a file of tensors.
    ///
    /// # Errors
    /// When there is no tensor in it, or a file in it contradicts itself.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let meta = std::fs::metadata(path).map_err(|e| Error::new(path, e))?;
        if meta.is_dir() {
            return Self::folder(path, None);
        }
        let start = Source::open(path)?;
        let first = start.start(4096).map_err(|kind| start.error(kind))?;
        if is_json(&first) {
            return Self::text(path, &start);
        }
        if let Some(unpacked) = files::unpack(&start)? {
            let folder = unpacked.path().to_owned();
            let mut dump = Self::folder(&folder, Some(unpacked))?;
            dump.path = path.to_owned();
            return Ok(dump);
        }
        let tensors = files::file(path, &start)?;
        let written = tensors.len();
        Self::new(path, DumpKind::Arrays, tensors, written, None)
    }

    /// Tensors that are in memory, in the order in which they were made. They are not copied.
    ///
    /// # Errors
    /// When there is none, or one has not the bytes of its shape.
    pub fn held(name: &Path, kind: DumpKind, tensors: Vec<HeldTensor>) -> Result<Self, Error> {
        let file: Arc<Path> = name.into();
        let listed = |tensor: HeldTensor| {
            tensor.check().map_err(|kind| Error::new(name, kind))?;
            let HeldTensor { name, dtype, shape, bytes } = tensor;
            Ok(DumpTensor { name, shape, dtype, file: file.clone(), at: At::Memory(bytes) })
        };
        let tensors = tensors.into_iter().map(listed).collect::<Result<Vec<_>, Error>>()?;
        let written = tensors.len();
        Self::new(name, kind, tensors, written, None)
    }

    fn folder(path: &Path, unpacked: Option<Unfinished>) -> Result<Self, Error> {
        if let Some(tree) = debugger::find(path)? {
            let (tensors, written) = debugger::read(&tree)?;
            return Self::new(path, DumpKind::Debugger, tensors, written, unpacked);
        }
        // A folder lists its files by name.
        Self::new(path, DumpKind::Arrays, files::folder(path)?, 0, unpacked)
    }

    fn text(path: &Path, source: &Source) -> Result<Self, Error> {
        if debugger::is_tree(path) {
            let (tensors, written) = debugger::read(path)?;
            return Self::new(path, DumpKind::Debugger, tensors, written, None);
        }
        let error = |kind| source.error(kind);
        let text = source.read(0..source.len(), "the text").map_err(error)?;
        let item = scan::scan(&text).map_err(error)?;
        let file: Arc<Path> = path.into();
        if polygraphy::is(&item) {
            let tensors = polygraphy::tensors(&item, &text, &file).map_err(error)?;
            let written = tensors.len();
            return Self::new(path, DumpKind::Polygraphy, tensors, written, None);
        }
        let tensors = json::tensors(&item, &text, &file).map_err(error)?;
        let written = tensors.len();
        Self::new(path, DumpKind::Json, tensors, written, None)
    }

    fn new(
        path: &Path,
        kind: DumpKind,
        tensors: Vec<DumpTensor>,
        written: usize,
        unpacked: Option<Unfinished>,
    ) -> Result<Self, Error> {
        let refuse = |what: String, help: &str| {
            Err(Error::new(path, ErrorKind::Unsupported { what, help: help.into() }))
        };
        if tensors.is_empty() {
            return refuse(
                "no tensors in it".into(),
                "give a folder or file of .npy, .npz, .safetensors, .pt or JSON, or a trace's folder",
            );
        }
        if tensors.len() > MAX_TENSORS {
            let what = format!("{} tensors, more than the {MAX_TENSORS} that are read", tensors.len());
            return refuse(what, "give a part of the dump");
        }
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (i, tensor) in tensors.iter().enumerate() {
            by_name.entry(tensor.name.clone()).or_insert(i);
        }
        let _unpacked = unpacked.map(Arc::new);
        Ok(Self { path: path.to_owned(), kind, tensors, by_name, written, _unpacked })
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What made it.
    pub fn kind(&self) -> DumpKind {
        self.kind
    }

    /// Every tensor, in the order of the files.
    pub fn tensors(&self) -> &[DumpTensor] {
        &self.tensors
    }

    /// How many tensors, from the first on, stand in the order in which the program wrote them; 0 for a folder of files.
    /// Some writers sort by name first: whether the order says anything is for the caller to find out.
    pub fn written_in_order(&self) -> usize {
        self.written
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&DumpTensor> {
        self.by_name.get(name).and_then(|&i| self.tensors.get(i))
    }

    /// A tensor's values, to be read in pieces.
    ///
    /// # Errors
    /// When its file is gone or its values are of a type that is not read.
    pub fn values(&self, tensor: &DumpTensor) -> Result<Elements, Error> {
        let source = match &tensor.at {
            At::Memory(bytes) => Source::pieces(&*tensor.file, [bytes.clone()]),
            _ => Source::open(&tensor.file)?,
        };
        let text = |range: &Range<usize>| {
            let place = format!("tensor {:?}", tensor.name);
            source.read(range.start as u64..range.end as u64, place).map_err(|kind| source.error(kind))
        };
        match &tensor.at {
            At::Place(info) => Elements::of(source, info),
            At::Memory(_) => {
                let range = 0..source.len();
                let place = Place { source: 0, range, strides: None, packing: Packing::Stored };
                let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
                Elements::of(source, &TensorInfo { name, dtype: tensor.dtype, shape, place })
            }
            At::Digits(range) => {
                let values =
                    scan::numbers(&text(range)?, tensor.elements()).map_err(|kind| source.error(kind))?;
                Ok(Elements::whole(values))
            }
            At::Base64(range) => {
                let bytes = base64(&text(range)?).ok_or_else(|| source.error(not_base64(&tensor.name)))?;
                let array = Source::memory(source.name(), bytes);
                let info = npz::array_file(&array, &tensor.name).map_err(|kind| source.error(kind))?;
                if info.shape != tensor.shape {
                    let kind = ErrorKind::invalid("shape", format!("{:?}", tensor.shape), "another");
                    return Err(source.error(kind));
                }
                Elements::of(array, &info)
            }
        }
    }

    /// All of a tensor's values.
    ///
    /// # Errors
    /// As [`Dump::values`].
    pub fn read(&self, tensor: &DumpTensor) -> Result<Vec<f64>, Error> {
        self.values(tensor)?.all(&tensor.file, &tensor.name)
    }
}

fn not_base64(name: &str) -> ErrorKind {
    ErrorKind::invalid(
        format!("tensor {:?}", crate::read::clip(name)),
        "base64 of a NumPy array",
        "other text",
    )
}

/// Whether a file begins with a bracket, after white space or a byte order mark. The length that a safetensors file begins with
/// can be white space and a bracket, too: zeros follow it, and no text has any.
fn is_json(bytes: &[u8]) -> bool {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let first = text.iter().find(|b| !b.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'[')) && !bytes.iter().take(8).any(|&b| b == 0)
}

/// Standard base64 with its padding; unused bits of the last character are ignored.
pub fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let lenient = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&alphabet::STANDARD, lenient).decode(text).ok()
}

/// A JSON file of at most `cap` bytes.
fn small_json(path: &Path, cap: u64) -> Result<serde_json::Value, Error> {
    let bytes = read_capped(path, cap)?;
    check_json_values(&bytes, MAX_TREE_VALUES, "the file").map_err(|kind| Error::new(path, kind))?;
    serde_json::from_slice(&bytes).map_err(|e| {
        let place = format!("line {}, column {}", e.line(), e.column());
        Error::new(path, ErrorKind::invalid(place, "JSON", crate::read::clip(&e.to_string())))
    })
}

#[cfg(test)]
mod tests;
