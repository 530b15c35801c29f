//! The table of formats: how each is told by its first bytes, and what other files are told apart from them.

use std::fmt;

use crate::error::ErrorKind;
use crate::read::{clip, npz, pytorch, zip};

/// A file format that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Hugging Face's safetensors, one file or sharded.
    Safetensors,
    /// PyTorch's zip of a pickle and its storages, one file or sharded.
    PyTorch,
    /// llama.cpp's GGUF, versions 2 and 3.
    Gguf,
    /// `.apr`, version 2.
    Apr,
    /// whisper.cpp's `ggml` binary.
    WhisperGgml,
    /// NumPy's zip of arrays.
    Npz,
}

impl Format {
    /// Every format, in the order in which they are tried.
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

/// Tells a file by its content, whatever its name ends in.
pub(crate) fn sniff(bytes: &[u8]) -> Result<Format, ErrorKind> {
    match bytes {
        [] => Err(ErrorKind::Unrecognised { found: "the file is empty".into() }),
        [b'G', b'G', b'U', b'F', ..] => Ok(Format::Gguf),
        [b'A', b'P', b'R', 0, ..] => Ok(Format::Apr),
        [b'A', b'P', b'R', b'N', ..] => Err(ErrorKind::Unsupported {
            what: ".apr version 1: it has no index of tensors".into(),
            help: "convert it to version 2 with the tool that wrote it".into(),
        }),
        [b'l', b'm', b'g', b'g', ..] => Ok(Format::WhisperGgml),
        [b'P', b'K', 3 | 5, 4 | 6, ..] => sniff_zip(bytes),
        _ if is_safetensors(bytes) => Ok(Format::Safetensors),
        _ => Err(unknown(bytes)),
    }
}

/// A header length, then the brace that opens its JSON.
fn is_safetensors(bytes: &[u8]) -> bool {
    bytes.get(8) == Some(&b'{') && !bytes.starts_with(b"{")
}

fn sniff_zip(bytes: &[u8]) -> Result<Format, ErrorKind> {
    let entries = zip::entries(bytes)?;
    if entries.iter().any(|e| pytorch::is_main_pickle(&e.name)) {
        return Ok(Format::PyTorch);
    }
    if entries.iter().any(|e| npz::is_array(&e.name)) {
        return Ok(Format::Npz);
    }
    let first = entries.first().map_or("nothing".to_owned(), |e| format!("{:?}", clip(&e.name)));
    let found = format!("a zip archive without data.pkl or .npy entries; its first entry is {first}");
    Err(ErrorKind::Unrecognised { found })
}

/// What people hand over by mistake, told by how it starts.
fn unknown(bytes: &[u8]) -> ErrorKind {
    let starts = |prefix: &[u8]| bytes.starts_with(prefix);
    if starts(b"version https://git-lfs") {
        return ErrorKind::Unsupported {
            what: "a Git LFS pointer, not the file it stands for".into(),
            help: "fetch the file itself with `git lfs pull`".into(),
        };
    }
    if is_legacy_torch(bytes) {
        return ErrorKind::Unsupported {
            what: "a PyTorch file from before the zip format (PyTorch 1.6)".into(),
            help: "load it in PyTorch and torch.save it again".into(),
        };
    }
    let found = if starts(b"\x1f\x8b") {
        "a gzip archive: unpack it first".to_owned()
    } else if starts(b"%PDF") {
        "a PDF".to_owned()
    } else if starts(b"\x89HDF") {
        "an HDF5 file, which Keras and TensorFlow write".to_owned()
    } else if starts(b"\x93NUMPY") {
        "a single NumPy array (.npy), not an archive of them".to_owned()
    } else if starts(b"\x80") {
        "a bare Python pickle, not a PyTorch checkpoint".to_owned()
    } else if bytes.iter().take(4096).all(|&b| b == 0) {
        "it begins with zeros only".to_owned()
    } else if let Some(text) = leading_text(bytes) {
        describe_text(&text)
    } else {
        let head: Vec<String> = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
        format!("it begins with the bytes {}", head.join(" "))
    };
    ErrorKind::Unrecognised { found }
}

/// torch's magic number, pickled at the start of files from before the zip.
fn is_legacy_torch(bytes: &[u8]) -> bool {
    const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
    bytes.first() == Some(&0x80) && bytes.get(2..16).is_some_and(|head| head.windows(10).any(|w| w == MAGIC))
}

/// The first line, if the file looks like text.
fn leading_text(bytes: &[u8]) -> Option<String> {
    let head = &bytes[..bytes.len().min(512)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // A character cut by the end of the sample.
        Err(e) if e.error_len().is_none() => std::str::from_utf8(&head[..e.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let printable = text.chars().all(|c| !c.is_control() || c.is_whitespace());
    printable.then(|| text.trim_start().to_owned())
}

fn describe_text(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        return "an HTML page: the download asked for a login or failed".into();
    }
    let kind = if text.starts_with('{') || text.starts_with('[') { "JSON" } else { "text" };
    let words: String = text.lines().next().unwrap_or_default().chars().take(40).collect();
    format!("a {kind} file that begins {words:?}")
}
