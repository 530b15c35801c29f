//! What can be wrong with a recording or with features from elsewhere, and what to do next.

use attnscope_checkpoint::Remedy;
use std::path::{Path, PathBuf};

use super::MAX_SECONDS;
use super::resample::MAX_RATE;

/// A file from which no features could be made.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", file.display())]
pub struct AudioError {
    /// The file at fault.
    pub file: PathBuf,
    /// What is wrong with it.
    pub kind: AudioErrorKind,
}

/// What can be wrong with such a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioErrorKind {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Neither wav nor flac nor mp3, or a codec inside that is not read.
    #[error("not audio that is read here: {found}")]
    Unrecognised {
        /// What the decoder said of it.
        found: String,
    },
    /// A field with an invalid value.
    #[error("{place}: expected {expected}, found {found}")]
    Invalid {
        /// The field, or the time in the recording.
        place: String,
        /// What must be there.
        expected: String,
        /// What was found there.
        found: String,
    },
    /// The header claims more than the file holds.
    #[error("cut short: the header says {promised:.3} s, but the data end after {found:.3} s")]
    Truncated {
        /// Seconds by the header.
        promised: f64,
        /// Seconds that could be decoded.
        found: f64,
    },
    /// A well-formed file without a single sample.
    #[error("no samples: the recording has a header and nothing after it")]
    Empty,
    /// More than is kept in memory.
    #[error("longer than {} hours{}", MAX_SECONDS / 3600, promised.map_or(String::new(), |s| format!(": {s:.0} s")))]
    TooLong {
        /// Seconds by the header, where it gives them.
        promised: Option<f64>,
    },
    /// Features of another shape than the model reads.
    #[error("shape {found:?} does not fit the model, which reads [batch, {mels}, {frames}]")]
    Shape {
        /// The array's shape.
        found: Vec<usize>,
        /// The model's mel bands.
        mels: usize,
        /// The model's frames.
        frames: usize,
    },
    /// A tensor file that could not be read.
    #[error("{}", .0.kind)]
    Tensors(#[from] attnscope_checkpoint::Error),
}

impl AudioError {
    /// An error about `file`.
    pub(super) fn new(file: &Path, kind: impl Into<AudioErrorKind>) -> Self {
        Self { file: file.to_owned(), kind: kind.into() }
    }

    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match &self.kind {
            AudioErrorKind::Io(e) => attnscope_checkpoint::limit_help(e).unwrap_or("check the path, and that the file can be read by you").into(),
            AudioErrorKind::Unrecognised { .. } => {
                "give a wav (integer or float PCM), a flac or an mp3; other formats convert with `sox IN OUT.wav`"
                    .into()
            }
            AudioErrorKind::Invalid { place, .. } if place == "sample rate" => {
                format!("rates from 1 to {MAX_RATE} Hz are read: write the file again with the rate it was recorded at").into()
            }
            AudioErrorKind::Invalid { .. } => {
                "the file is damaged: fetch it again, or write it again with the tool that made it".into()
            }
            AudioErrorKind::Truncated { found, .. } => {
                format!("fetch the file again, or keep what is there: `sox IN OUT.wav trim 0 {found:.3}`").into()
            }
            AudioErrorKind::Empty => "record or export the file again".into(),
            AudioErrorKind::TooLong { .. } => "cut it into pieces: `sox IN OUT.wav trim START LENGTH`".into(),
            AudioErrorKind::Shape { mels, frames, .. } => {
                format!("make the features with {mels} mel bands, padded or cut to {frames} frames").into()
            }
            AudioErrorKind::Tensors(error) => error.remedy(),
        }
    }
}

impl AudioErrorKind {
    /// A field that does not hold what it must.
    pub(super) fn invalid(
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Self {
        Self::Invalid { place: place.into(), expected: expected.into(), found: found.to_string() }
    }
}
