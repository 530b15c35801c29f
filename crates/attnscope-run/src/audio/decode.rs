//! A wav, flac or mp3 of any rate and channel count, decoded a packet at a time to one channel.
//!
//! Decoding is strict: a file that is shorter than its header says, a packet that cannot be decoded and a sample that is NaN
//! are errors with their place, because a debugger that runs on half of its input explains the wrong thing. Only the part that
//! the model reads is decoded, so damage after it is not noticed. An unknown length (a wav written to a pipe, an mp3 without a
//! tag) is not checked.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::open_input;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, Track, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

use super::error::{AudioError, AudioErrorKind};
use super::resample::MAX_RATE;

/// A margin of two frames: the count in an mp3's tag may or may not include the frame that holds the tag.
const MP3_SLACK: u64 = 2 * 1152;

/// An opened recording.
pub(super) struct Decoder {
    file: PathBuf,
    format: Box<dyn FormatReader>,
    codec: Box<dyn AudioDecoder>,
    track: u32,
    rate: u32,
    /// Samples of one channel, according to the header.
    promised: Option<u64>,
    slack: u64,
    done: u64,
    interleaved: Vec<f32>,
    /// Some sample of some channel is not 0.
    sounds: bool,
}

impl Decoder {
    /// Reads the headers.
    pub(super) fn open(path: &Path) -> Result<Self, AudioError> {
        let at = |kind| AudioError::new(path, kind);
        // Asked before opening: opening a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(|e| at(e.into()))?.is_file() {
            return Err(at(AudioErrorKind::Unrecognised { found: "not a regular file".into() }));
        }
        let file = open_input(path).map_err(|e| at(e.into()))?;
        let stream = MediaSourceStream::new(Box::new(file), Default::default());
        let (formats, codecs) = (symphonia::default::get_probe(), symphonia::default::get_codecs());
        // The content decides, not the file's name.
        let format = formats
            .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
            .map_err(|e| at(header(e)))?;
        let track = format.default_track(TrackType::Audio);
        let Some((track, params)) =
            track.and_then(|t| Some((t, t.codec_params.as_ref().and_then(|p| p.audio())?)))
        else {
            return Err(at(AudioErrorKind::Unrecognised { found: "no audio track".into() }));
        };
        let rate = params.sample_rate.unwrap_or(0);
        if rate == 0 || rate > MAX_RATE {
            return Err(at(AudioErrorKind::invalid("sample rate", format!("1 to {MAX_RATE} Hz"), rate)));
        }
        let options = AudioDecoderOptions::default().verify(true);
        let codec = codecs.make_audio_decoder(params, &options).map_err(|e| at(header(e)))?;
        let (promised, slack) = promise(track, format.format_info().short_name);
        let track = track.id;
        let (file, interleaved) = (path.to_owned(), Vec::new());
        Ok(Self { file, format, codec, track, rate, promised, slack, done: 0, interleaved, sounds: false })
    }

    /// Whether anything that was decoded is not 0, in any channel.
    pub(super) fn sounds(&self) -> bool {
        self.sounds
    }

    /// Samples per second.
    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// How long the header says the recording is.
    pub(super) fn promised_seconds(&self) -> Option<f64> {
        self.promised.map(|n| n as f64 / f64::from(self.rate))
    }

    /// How much has been decoded.
    pub(super) fn seconds(&self) -> f64 {
        self.done as f64 / f64::from(self.rate)
    }

    /// Replaces `mono` by the next samples; false at the end, where the length in the header is checked.
    pub(super) fn next(&mut self, mono: &mut Vec<f32>) -> Result<bool, AudioError> {
        mono.clear();
        match self.packet()? {
            Some(packet) => self.decode(&packet, mono).map(|()| true),
            None => self.finish().map(|()| false),
        }
    }

    fn packet(&mut self) -> Result<Option<Packet>, AudioError> {
        loop {
            match self.format.next_packet() {
                Ok(Some(packet)) if packet.track_id == self.track => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                // The file ends within a packet; `finish` says how much is missing, where that is known.
                Err(Error::IoError(e)) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(Error::IoError(e)) => return Err(AudioError::new(&self.file, e)),
                Err(e) => return Err(self.damaged("readable audio", e)),
            }
        }
    }

    fn decode(&mut self, packet: &Packet, mono: &mut Vec<f32>) -> Result<(), AudioError> {
        let (rate, channels) = match self.codec.decode(packet) {
            Ok(audio) => {
                audio.copy_to_vec_interleaved(&mut self.interleaved);
                (audio.spec().rate(), audio.spec().channels().count())
            }
            Err(e) => return Err(self.damaged("audio that decodes", e)),
        };
        if rate != self.rate {
            let found = format!("{rate} Hz");
            return Err(self.damaged(&format!("{} Hz throughout", self.rate), found));
        }
        self.sounds |= self.interleaved.iter().any(|x| *x != 0.0);
        downmix(&self.interleaved, channels, mono);
        if let Some(i) = mono.iter().position(|x| !x.is_finite()) {
            let found = mono.get(i).copied().unwrap_or(f32::NAN);
            self.done += i as u64;
            return Err(self.damaged("a finite sample", found));
        }
        // What OpenAI's loader does when it goes through 16-bit integers.
        mono.iter_mut().for_each(|x| *x = x.clamp(-1.0, 1.0));
        self.done += mono.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AudioError> {
        let missing = self.promised.filter(|n| self.done.saturating_add(self.slack) < *n);
        if missing.is_some() {
            let promised = self.promised_seconds().unwrap_or(0.0);
            return Err(AudioError::new(
                &self.file,
                AudioErrorKind::Truncated { promised, found: self.seconds() },
            ));
        }
        if self.done == 0 {
            return Err(AudioError::new(&self.file, AudioErrorKind::Empty));
        }
        // A flac carries the MD5 of its samples.
        if self.codec.finalize().verify_ok == Some(false) {
            let kind = AudioErrorKind::invalid("checksum", "the MD5 in the header", "another after decoding");
            return Err(AudioError::new(&self.file, kind));
        }
        Ok(())
    }

    fn damaged(&self, expected: &str, found: impl ToString) -> AudioError {
        let place = format!("at {:.3} s", self.seconds());
        AudioError::new(&self.file, AudioErrorKind::invalid(place, expected, found))
    }
}

/// The mean of the channels, as ffmpeg mixes stereo. ffmpeg weights the channels of surround sound by their position; here all
/// have the same weight.
fn downmix(interleaved: &[f32], channels: usize, mono: &mut Vec<f32>) {
    match channels {
        0 => {}
        1 => mono.extend_from_slice(interleaved),
        _ => mono.extend(interleaved.chunks_exact(channels).map(|x| x.iter().sum::<f32>() / channels as f32)),
    }
}

/// The length in the header, and how far it may be off. Without a tag an mp3's is a guess from its bit rate.
fn promise(track: &Track, format: &str) -> (Option<u64>, u64) {
    match format {
        "wave" | "flac" => (track.num_frames.filter(|n| *n > 0), 0),
        _ => (track.num_frames.filter(|_| track.delay.is_some()), MP3_SLACK),
    }
}

/// An error before the first packet.
fn header(error: Error) -> AudioErrorKind {
    match error {
        Error::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            AudioErrorKind::Unrecognised { found: "the file ends within its header".into() }
        }
        Error::IoError(e) => AudioErrorKind::Io(e),
        Error::Unsupported(what) => AudioErrorKind::Unrecognised { found: what.into() },
        e => AudioErrorKind::invalid("header", "one that follows its format", e),
    }
}
