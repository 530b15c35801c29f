//! Whisper's front end: a recording to log-mel features, or features from a file.

mod array;
mod decode;
mod error;
mod mel;
mod resample;

use std::path::Path;

pub use array::features_from_array;
pub use error::{AudioError, AudioErrorKind};
pub use mel::{log_mel, mel_filters};

use crate::caught::catch;
use crate::input::Features;
use decode::Decoder;
use resample::Resampler;

/// Samples per second that Whisper reads.
pub const RATE: u32 = 16_000;

/// Seconds of a position of an audio encoder: two frames of 10 ms.
pub const POSITION_SECONDS: f64 = (2 * mel::HOP) as f64 / RATE as f64;

/// The longest recording that is kept in memory: 2 hours, 461 MB.
pub const MAX_SECONDS: u64 = 2 * 3600;

/// Features of the first `frames` frames of a wav, flac or mp3 (3,000 frames are 30 s); silence follows a shorter one.
/// With them, how many seconds the whole recording has: nothing beyond the frames is decoded if the header gives it.
///
/// # Errors
/// When the file is not such audio, is damaged, is cut short before the window ends, or has no samples.
pub fn features_from_file(path: &Path, mels: usize, frames: usize) -> Result<(Features, f64), AudioError> {
    let Read { samples, seconds, .. } = samples(path, Some(frames.saturating_mul(mel::HOP)))?;
    Ok((Features { values: log_mel(&samples, mels, frames), batch: 1, mels, frames }, seconds))
}

/// The whole recording, mono at 16 kHz, for a caller that cuts it into windows itself.
///
/// # Errors
/// As [`features_from_file`], and when it is longer than [`MAX_SECONDS`].
pub fn samples_from_file(path: &Path) -> Result<Vec<f32>, AudioError> {
    Ok(samples(path, None)?.samples)
}

/// A recording in memory, of which a model reads one window after the other.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Mono, 16 kHz.
    samples: Vec<f32>,
    /// Some channel is not silent.
    sounds: bool,
}

/// A piece of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Seconds from the beginning of the recording to that of the window.
    pub start: f64,
    /// To the end of the window, or of the recording if that comes first.
    pub end: f64,
    /// Every sample is 0.
    pub zeros: bool,
    /// What the model reads: the window, filled up with silence.
    pub features: Features,
}

impl Window {
    /// Replaces the features after the end of the recording by zeros, as OpenAI's `transcribe` does.
    pub fn cut_features(&mut self) {
        let recorded = (2.0 * (self.end - self.start) / POSITION_SECONDS + 1e-6) as usize;
        for band in self.features.values.chunks_mut(self.features.frames.max(1)) {
            band.iter_mut().skip(recorded).for_each(|x| *x = 0.0);
        }
    }

    /// How many of the encoder's positions are recording.
    pub fn positions(&self) -> usize {
        ((self.end - self.start) / POSITION_SECONDS + 1e-6) as usize
    }
}

impl Recording {
    /// Reads a whole file.
    ///
    /// # Errors
    /// As [`samples_from_file`].
    pub fn read(path: &Path) -> Result<Self, AudioError> {
        let Read { samples, sounds, .. } = samples(path, None)?;
        Ok(Self { samples, sounds })
    }

    /// Whether channels that are not silent cancel each other when they are mixed to one.
    pub fn cancels(&self) -> bool {
        self.sounds && self.samples.iter().all(|x| *x == 0.0)
    }

    /// How long it is.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(RATE)
    }

    /// The window of so many frames that begins at a time in seconds; none where the recording is over.
    pub fn window(&self, start: f64, mels: usize, frames: usize) -> Option<Window> {
        let from = (start * f64::from(RATE)).round() as usize;
        let rest = self.samples.get(from..).filter(|rest| !rest.is_empty())?;
        let samples = &rest[..rest.len().min(frames.saturating_mul(mel::HOP))];
        let features = Features { values: log_mel(samples, mels, frames), batch: 1, mels, frames };
        let (end, zeros) =
            (start + samples.len() as f64 / f64::from(RATE), samples.iter().all(|x| *x == 0.0));
        Some(Window { start, end, zeros, features })
    }
}

/// What was read of a file.
struct Read {
    /// Mono, 16 kHz.
    samples: Vec<f32>,
    /// The length of the whole recording.
    seconds: f64,
    /// Some sample of some channel that was read is not 0.
    sounds: bool,
}

/// The samples and the length of the recording in seconds, or an error: symphonia 0.6.1 multiplies two fields of a wav's
/// header unchecked, which panics in a build with overflow checks. A file must not end the process, by this or by an unknown
/// defect of the same kind.
fn samples(path: &Path, limit: Option<usize>) -> Result<Read, AudioError> {
    catch(|| read(path, limit)).unwrap_or_else(|_| {
        let kind = AudioErrorKind::invalid("audio", "what its format allows", "values that stop the decoder");
        Err(AudioError::new(path, kind))
    })
}

/// Decodes and resamples piece by piece, so that only 16 kHz mono is kept in memory.
fn read(path: &Path, limit: Option<usize>) -> Result<Read, AudioError> {
    let mut decoder = Decoder::open(path)?;
    let too_long = |promised| AudioError::new(path, AudioErrorKind::TooLong { promised });
    let promised = decoder.promised_seconds();
    if limit.is_none() && promised.is_some_and(|s| s > MAX_SECONDS as f64) {
        return Err(too_long(promised));
    }
    let mut resampler = Resampler::new(decoder.rate());
    let (mut piece, mut out) = (Vec::new(), Vec::new());
    while limit.is_none_or(|n| out.len() < n) && decoder.next(&mut piece)? {
        if decoder.seconds() > MAX_SECONDS as f64 {
            return Err(too_long(promised));
        }
        resampler.push(&piece, &mut out);
    }
    resampler.finish(&mut out);
    out.truncate(limit.unwrap_or(usize::MAX));
    if promised.is_none() {
        // Decoded only to find the length: damage after the limit ends the count.
        while decoder.seconds() <= MAX_SECONDS as f64 && matches!(decoder.next(&mut piece), Ok(true)) {}
    }
    let seconds = promised.unwrap_or_else(|| decoder.seconds());
    Ok(Read { samples: out, seconds, sounds: decoder.sounds() })
}
