//! `convert`: a checkpoint in another format, bit for bit, or a refusal with its reason.

use std::io::Write;
use std::path::PathBuf;

use attnscope::{ConvertOptions, Failure, convert};
use attnscope_checkpoint::Target;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(super) struct Convert {
    /// The checkpoint to read: a file of any format, a folder, or `demo`
    input: String,
    /// The file to write; its ending gives the format: .safetensors, .apr or .npz
    output: PathBuf,
    /// The format to write, where the ending does not give it
    #[arg(long, value_enum)]
    to: Option<To>,
    /// A loss to accept; may be given more than once
    #[arg(long, value_enum, value_name = "LOSS")]
    allow: Vec<Loss>,
    /// No notes on standard error
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    Safetensors,
    Apr,
    Npz,
}

/// The losses of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Loss {
    /// Tensors that share their bytes are written as copies
    Untie,
    /// Quantised tensors become f32
    Dequantize,
    /// Types that the target lacks become the next wider one: bf16 becomes f32, i16 becomes i64
    Widen,
    /// Metadata and pickled objects that the target has no place for are left out
    Metadata,
}

impl Convert {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let options = ConvertOptions {
            to: self.to.map(To::target),
            allow: self.allow.iter().map(|loss| loss.loss()).collect(),
        };
        let written = convert(&self.input, &self.output, &options)?;
        if !self.quiet {
            let to = super::line(&written.output);
            let _ = writeln!(std::io::stderr(), "note: {} tensors written to {to}", written.tensors);
        }
        Ok(())
    }
}

impl To {
    fn target(self) -> Target {
        match self {
            Self::Safetensors => Target::Safetensors,
            Self::Apr => Target::Apr,
            Self::Npz => Target::Npz,
        }
    }
}

impl Loss {
    fn loss(self) -> attnscope::Loss {
        match self {
            Self::Untie => attnscope::Loss::Untie,
            Self::Dequantize => attnscope::Loss::Dequantize,
            Self::Widen => attnscope::Loss::Widen,
            Self::Metadata => attnscope::Loss::Metadata,
        }
    }
}
