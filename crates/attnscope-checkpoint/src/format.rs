//! The table of formats: how each is recognised by its first bytes.

use std::fmt;

use crate::error::ErrorKind;
use crate::read::{clip, pytorch, zip};
use crate::source::Source;

/// A file format that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Hugging Face's safetensors, one file or sharded.
    Safetensors,
    /// PyTorch's zip of a pickle and its storages, or its older file without the zip; one file or sharded.
    PyTorch,
    /// llama.cpp's GGUF, versions 2 and 3.
    Gguf,
    /// `.apr`, version 2.
    Apr,
    /// whisper.cpp's `ggml` binary.
    WhisperGgml,
    /// NumPy's zip of arrays.
    Npz,
    /// No file: the tensors that training by a recipe would write.
    Recipe,
    /// No file: a model that is in the memory of this process.
    Memory,
}

impl Format {
    /// Every format of files, in the order in which they are tried.
    pub const ALL: [Self; 6] =
        [Self::Safetensors, Self::PyTorch, Self::Gguf, Self::Apr, Self::WhisperGgml, Self::Npz];

    /// The name shown to the user and used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::PyTorch => "pytorch",
            Self::Gguf => "gguf",
            Self::Apr => "apr",
            Self::WhisperGgml => "whisper-ggml",
            Self::Npz => "npz",
            Self::Recipe => "recipe",
            Self::Memory => "memory",
        }
    }

    /// All names, for a help line.
    pub fn list() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How many bytes of a file are read to recognise its format.
const LOOK: u64 = 4096;

/// The format of an existing file that holds tensors, also where attnscope does not read that format.
pub(crate) fn tensors_in(path: &std::path::Path) -> Option<&'static str> {
    let source = Source::look(path).ok()?;
    if let Ok(format) = sniff(&source) {
        return Some(format.name());
    }
    match source.start(LOOK).ok()?.as_ref() {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some("npy"),
        [0x89, b'H', b'D', b'F', ..] => Some("HDF5"),
        [b'A', b'P', b'R', b'N', ..] => Some(Format::Apr.name()),
        start if is_onnx(start) => Some("ONNX"),
        start if is_torch_tar(start) => Some(Format::PyTorch.name()),
        _ => None,
    }
}

/// Recognises the format by content, because file names are often wrong.
pub(crate) fn sniff(source: &Source) -> Result<Format, ErrorKind> {
    let start = source.start(LOOK)?;
    match start.as_ref() {
        [b'G', b'G', b'U', b'F', ..] => Ok(Format::Gguf),
        [b'l', b'm', b'g', b'g', ..] => Ok(Format::WhisperGgml),
        [b'A', b'P', b'R', 0, ..] => Ok(Format::Apr),
        [b'A', b'P', b'R', b'N', ..] => Err(ErrorKind::Unsupported {
            what: "an .apr file of version 1, which has no table of tensors".into(),
            help: "convert it to version 2 with the tool that wrote it".into(),
        }),
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => sniff_zip(source),
        bytes @ [0x80, ..] if pytorch::legacy::is(bytes) => Ok(Format::PyTorch),
        bytes if is_safetensors(bytes) => Ok(Format::Safetensors),
        bytes => Err(describe(bytes)),
    }
}

/// A length, then a JSON object. Text can have a brace there, too, but read as a length its first bytes are far too large.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, [b'{', ..])) = bytes.split_first_chunk::<8>() else { return false };
    u64::from_le_bytes(*length) < 1 << 40 || length.iter().any(|b| !b.is_ascii_graphic() && *b != b' ')
}

fn sniff_zip(source: &Source) -> Result<Format, ErrorKind> {
    let entries = zip::entries(source)?;
    if entries.iter().any(|e| pytorch::is_main_pickle(&e.name)) {
        return Ok(Format::PyTorch);
    }
    if entries.iter().any(|e| e.name.ends_with(".npy")) {
        return Ok(Format::Npz);
    }
    let names: Vec<String> = entries.iter().take(4).map(|e| clip(&e.name)).collect();
    let more = if entries.len() > 4 { format!(" and {} more", entries.len() - 4) } else { String::new() };
    let found = match names.as_slice() {
        [] => "an empty zip archive".into(),
        _ => format!("a zip archive of {}{more}, without data.pkl or .npy arrays", names.join(", ")),
    };
    Err(ErrorKind::Unrecognised { found })
}

/// Says what a file is instead of a checkpoint, so that the user sees what went wrong.
fn describe(start: &[u8]) -> ErrorKind {
    if start.starts_with(b"version https://git-lfs") {
        return ErrorKind::Unsupported {
            what: "a Git LFS pointer, not the file itself".into(),
            help: "run `git lfs pull` where it was cloned".into(),
        };
    }
    if is_onnx(start) {
        return ErrorKind::Unsupported {
            what: "an ONNX model: expected a table of weights, found a graph of operations".into(),
            help: ONNX_HELP.into(),
        };
    }
    if is_torch_tar(start) {
        return ErrorKind::Unsupported {
            what: "a PyTorch file of before version 0.1.10, which is a tar archive".into(),
            help: "load it in PyTorch with weights_only=False, if you trust it, and torch.save it again"
                .into(),
        };
    }
    let found = match binary(start).or_else(|| text(start)) {
        Some(found) => found,
        None => {
            let hex: Vec<String> = start.iter().take(8).map(|b| format!("{b:02x}")).collect();
            format!("its first bytes are {}", hex.join(" "))
        }
    };
    ErrorKind::Unrecognised { found }
}

/// What to do with an ONNX export.
pub(crate) const ONNX_HELP: &str = "give the folder that it was exported from, with config.json and model.safetensors: the name on the Hugging Face hub is often the same without \"onnx\", and config.json has it under _name_or_path";

/// The newest version of ONNX's format is 13; later ones will fit in one byte for a long time.
const ONNX_VERSIONS: std::ops::RangeInclusive<u8> = 1..=31;

/// A protobuf message of ONNX's ModelProto: the format's version, then who wrote it, then the graph or the operator set.
fn is_onnx(start: &[u8]) -> bool {
    let [0x08, version, rest @ ..] = start else { return false };
    if !ONNX_VERSIONS.contains(version) {
        return false;
    }
    let mut rest = rest;
    // Producer, its version, domain, model version, documentation.
    for _ in 0..5 {
        match rest {
            // The graph, or an operator set.
            [0x3a | 0x42, ..] => return true,
            [0x12 | 0x1a | 0x22 | 0x32, length @ 0..=127, tail @ ..] => {
                match tail.get(usize::from(*length)..) {
                    // The file ends within such a text.
                    None => return true,
                    Some([]) => return true,
                    Some(tail) => rest = tail,
                }
            }
            [0x28, 0..=127, tail @ ..] => rest = tail,
            _ => return false,
        }
    }
    false
}

/// What the tar archives of the first PyTorch hold.
const TORCH_TAR: [&[u8]; 4] = [b"sys_info\0", b"pickle\0", b"tensors\0", b"storages\0"];

fn is_torch_tar(start: &[u8]) -> bool {
    is_tar(start) && TORCH_TAR.iter().any(|name| start.starts_with(name))
}

fn is_tar(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

fn binary(start: &[u8]) -> Option<String> {
    let found = match start {
        [] => "the file is empty",
        _ if start.iter().all(|&b| b == 0) => "its first bytes are all zero: was the copy finished?",
        [0x1f, 0x8b, ..] => "gzip: unpack it first",
        [b'B', b'Z', b'h', ..] => "bzip2: unpack it first",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz: unpack it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd: unpack it first",
        [b'7', b'z', 0xbc, 0xaf, ..] => "a 7z archive: unpack it first",
        [b'%', b'P', b'D', b'F', ..] => "a PDF",
        [0x89, b'H', b'D', b'F', ..] => "HDF5, as Keras and TensorFlow write it",
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => "a single NumPy array, not an .npz of named ones",
        [0x7f, b'E', b'L', b'F', ..] => "a program",
        [0x80, 2..=5, ..] => "a Python pickle that torch.save did not write",
        _ if is_tar(start) => "a tar archive: unpack it first",
        _ => return None,
    };
    Some(found.into())
}

fn text(start: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // The last character may be cut, because only the first bytes are read.
        Err(e) if e.error_len().is_none() => std::str::from_utf8(start.get(..e.valid_up_to())?).ok()?,
        Err(_) => return None,
    };
    if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return None;
    }
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let lower = text.get(..16).unwrap_or(text).to_ascii_lowercase();
    if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        return Some("an HTML page: was this downloaded from a web site that wanted a login?".into());
    }
    let words: Vec<&str> = text.split_whitespace().take(6).collect();
    let words = clip(&words.join(" "));
    match text.chars().next() {
        None => Some("nothing but white space".into()),
        Some('{' | '[') => Some(format!("a JSON file that begins {words:?}")),
        Some(_) => Some(format!("a text file that begins {words:?}")),
    }
}
