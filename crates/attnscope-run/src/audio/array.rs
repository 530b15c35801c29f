//! Features from another front end: a NumPy array, or a tensor file with one tensor or one of a known name.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use attnscope_checkpoint::{Checkpoint, open_input};

use super::error::{AudioError, AudioErrorKind};
use crate::input::Features;

/// The name that Hugging Face's processors give, and that of the node in a trace.
const NAMES: [&str; 2] = ["input_features", "audio.mel"];
const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself warns beyond 10,000.
const MAX_HEADER: u32 = 1 << 16;

/// Reads features that another program made, for a model of this many mel bands and frames: a `.npy` of f16, f32 or f64
/// (little-endian, C order), or a safetensors file that holds one tensor or one named `input_features` or, as in a trace,
/// `audio.mel`. The
/// shape is [batch, mels, frames], or [mels, frames] for a batch of one.
///
/// # Errors
/// When the file is neither, is cut short, or its shape is not the model's.
pub fn features_from_array(path: &Path, mels: usize, frames: usize) -> Result<Features, AudioError> {
    let features = |file: &mut File| {
        let mut magic = Vec::new();
        file.take(MAGIC.len() as u64).read_to_end(&mut magic)?;
        if magic == MAGIC { npy(file, mels, frames) } else { tensors(path, mels, frames) }
    };
    // Asked before opening: opening a pipe would wait for a writer.
    let opened = match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(AudioErrorKind::Io(std::io::Error::other("not a regular file"))),
        _ => open_input(path).map_err(AudioErrorKind::Io),
    };
    opened.and_then(|mut file| features(&mut file)).map_err(|kind| match kind {
        // A shard or a file of a folder: the reader's error names it.
        AudioErrorKind::Tensors(error) => AudioError { file: error.file.clone(), kind: error.into() },
        kind => AudioError::new(path, kind),
    })
}

/// The batch, if the shape is the model's.
fn batch(shape: &[usize], mels: usize, frames: usize) -> Result<usize, AudioErrorKind> {
    match *shape {
        [m, f] if (m, f) == (mels, frames) => Ok(1),
        [b, m, f] if (m, f) == (mels, frames) && b > 0 => Ok(b),
        _ => Err(AudioErrorKind::Shape { found: shape.to_vec(), mels, frames }),
    }
}

fn tensors(path: &Path, mels: usize, frames: usize) -> Result<Features, AudioErrorKind> {
    let file = Checkpoint::open(path)?;
    let tensor = match (file.tensors(), NAMES.iter().find_map(|name| file.tensor(name))) {
        (_, Some(tensor)) | ([tensor], None) => tensor,
        (all, None) => {
            let found = format!("{} tensors, none of that name", all.len());
            return Err(AudioErrorKind::invalid(
                "tensors",
                format!("one, or one named {}", NAMES.join(" or ")),
                found,
            ));
        }
    };
    let batch = batch(&tensor.shape, mels, frames)?;
    Ok(Features { values: file.read_f32(tensor)?, batch, mels, frames })
}

fn npy(file: &mut File, mels: usize, frames: usize) -> Result<Features, AudioErrorKind> {
    let header = header(file)?;
    let width = match field(&header, "descr") {
        Some(descr) if descr.starts_with("'<f2'") => 2,
        Some(descr) if descr.starts_with("'<f4'") => 4,
        Some(descr) if descr.starts_with("'<f8'") => 8,
        found => return Err(unexpected("descr", "'<f2', '<f4' or '<f8'", found)),
    };
    match field(&header, "fortran_order") {
        Some(order) if order.starts_with("False") => {}
        found => return Err(unexpected("fortran_order", "False (save np.ascontiguousarray of it)", found)),
    }
    let dims = field(&header, "shape");
    let Some(shape) = dims.and_then(shape) else {
        return Err(unexpected("shape", "a tuple of lengths", dims));
    };
    let batch = batch(&shape, mels, frames)?;
    let need = [batch, mels, frames, width].iter().try_fold(1u64, |n, d| n.checked_mul(*d as u64));
    let have = file.metadata()?.len().saturating_sub(file.stream_position()?);
    // Checked before memory is reserved, because a header may claim any size.
    if need != Some(have) {
        let need = need.map_or("more than any file has".into(), |n| n.to_string());
        return Err(AudioErrorKind::invalid("data", format!("{need} bytes for shape {shape:?}"), have));
    }
    let mut bytes = Vec::new();
    file.take(have).read_to_end(&mut bytes)?;
    Ok(Features { values: widen(&bytes, width), batch, mels, frames })
}

/// The text of the header; the file is left at the first value.
fn header(file: &mut File) -> Result<String, AudioErrorKind> {
    let mut start = [0; 4];
    file.seek(SeekFrom::Start(MAGIC.len() as u64))?;
    file.read_exact(&mut start)?;
    let length = match start {
        [1, _, a, b] => u32::from(u16::from_le_bytes([a, b])),
        [2 | 3, _, a, b] => {
            let mut rest = [0; 2];
            file.read_exact(&mut rest)?;
            u32::from_le_bytes([a, b, rest[0], rest[1]])
        }
        [major, ..] => return Err(AudioErrorKind::invalid("NumPy version", "1 to 3", major)),
    };
    if length > MAX_HEADER {
        return Err(AudioErrorKind::invalid("header length", format!("at most {MAX_HEADER}"), length));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// What follows a key in the Python literal `{'descr': '<f4', 'fortran_order': False, 'shape': (80, 3000), }`.
fn field<'t>(header: &'t str, key: &str) -> Option<&'t str> {
    let (_, rest) = header.split_once(&format!("'{key}'"))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

fn shape(text: &str) -> Option<Vec<usize>> {
    let (dims, _) = text.strip_prefix('(')?.split_once(')')?;
    dims.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect()
}

fn unexpected(place: &str, expected: &str, found: Option<&str>) -> AudioErrorKind {
    let found: String = found.unwrap_or("nothing").chars().take(40).collect();
    AudioErrorKind::invalid(place, expected, found)
}

fn widen(bytes: &[u8], width: usize) -> Vec<f32> {
    let value = |b: &[u8]| match *b {
        [a, b] => half::f16::from_le_bytes([a, b]).to_f32(),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
        _ => f32::NAN, // No other width is asked for.
    };
    bytes.chunks_exact(width).map(value).collect()
}
