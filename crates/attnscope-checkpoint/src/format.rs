//! The table of formats: how each is told by its first bytes.

use std::fmt;

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
