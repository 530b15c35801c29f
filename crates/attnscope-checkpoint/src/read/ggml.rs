//! whisper.cpp's `ggml-*.bin`: sizes, mel filters, vocabulary, then tensors until the file ends.
//!
//! Hand-written: no crate reads it apart from bindings to whisper.cpp, which load all of it and trust it.

use serde_json::Map;

use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::listing::{Config, Listing};
use crate::read::fields::{Fields, MAX_TENSORS, check_unique, elements};
use crate::read::ggml_types;
use crate::source::Source;
use crate::tensor::{Packing, Place, TensorInfo};

/// 0x67676d6c, little-endian.
const MAGIC: &[u8] = b"lmgg";
const HPARAMS: [&str; 11] = [
    "n_vocab",
    "n_audio_ctx",
    "n_audio_state",
    "n_audio_head",
    "n_audio_layer",
    "n_text_ctx",
    "n_text_state",
    "n_text_head",
    "n_text_layer",
    "n_mels",
    "ftype",
];
const MAX_NAME: u64 = 256;
const MAX_DIMS: u64 = 4;
/// `ftype` is the type of the large tensors plus this times the version of the quantised layouts.
const VERSION_FACTOR: i64 = 1000;
const LAYOUT_VERSION: i64 = 2;

/// Lists a whisper.cpp file.
pub(crate) fn read(source: &Source) -> Result<Listing, ErrorKind> {
    let mut f = Fields::of(source, 0..source.len(), "the file")?;
    let magic = f.take(4, "magic")?;
    if magic != MAGIC {
        return Err(ErrorKind::invalid("magic", "lmgg", magic.escape_ascii()));
    }
    let mut facts = Map::new();
    let mut layout = 0;
    for name in HPARAMS {
        let value = f.i32(name)?;
        if value < 0 {
            return Err(ErrorKind::invalid(name, "0 or more", value));
        }
        layout = i64::from(value) / VERSION_FACTOR; // That of the last, `ftype`, stays.
        facts.insert(name.into(), value.into());
    }
    skip_filters(&mut f)?;
    skip_vocabulary(&mut f)?;

    let mut tensors = Vec::new();
    while f.left() > 0 {
        if tensors.len() as u64 == MAX_TENSORS {
            return Err(ErrorKind::invalid("tensors", format!("at most {MAX_TENSORS}"), "more"));
        }
        tensors.push(tensor(&mut f, layout)?);
    }
    if tensors.is_empty() {
        return Err(ErrorKind::Truncated { place: "tensors".into(), need: 12, have: 0 });
    }
    check_unique(&tensors)?;
    let configs = vec![Config { source: "hparams".into(), facts }];
    let left_out = vec!["the mel filters".into(), "the vocabulary".into()];
    Ok(Listing { tensors, configs, left_out, ..Listing::default() })
}

fn skip_filters(f: &mut Fields<'_>) -> Result<(), ErrorKind> {
    let mels = f.natural("mel filter rows")?;
    let bins = f.natural("mel filter columns")?;
    // Two i32 and a 4: at most 64 bits.
    f.skip(mels.saturating_mul(bins).saturating_mul(4), "mel filters")
}

fn skip_vocabulary(f: &mut Fields<'_>) -> Result<(), ErrorKind> {
    let words = f.natural("vocabulary size")?;
    f.check_count(words, 4, "vocabulary")?;
    for _ in 0..words {
        let length = f.u32("length of a word")?;
        f.skip(length.into(), "a word of the vocabulary")?;
    }
    Ok(())
}

fn tensor(f: &mut Fields<'_>, layout: i64) -> Result<TensorInfo, ErrorKind> {
    let at = f.position();
    let header = format!("tensor header at byte {at}");
    let rank = f.natural(&header)?;
    let length = f.natural(&header)?;
    let number = f.u32(&header)?;
    if rank > MAX_DIMS {
        return Err(ErrorKind::invalid(header, format!("at most {MAX_DIMS} dimensions"), rank));
    }
    if length > MAX_NAME {
        return Err(ErrorKind::TooLarge { place: header, found: length, cap: MAX_NAME });
    }
    let mut shape = Vec::new();
    for _ in 0..rank {
        let dim = f.natural(&header)?;
        shape.push(usize::try_from(dim).map_err(|_| ErrorKind::invalid(&header, "a length", dim))?);
    }
    shape.reverse(); // ggml lists the fastest dimension first.
    let name = f.text(length, &header)?.to_owned();
    let dtype = ggml_types::dtype(number, &name)?;
    check_layout(dtype, layout, &name)?;
    let count = elements(&shape, format_args!("shape of tensor {name:?}"))?;
    let size = ggml_types::size(dtype, &shape, count, &name)?;
    let start = f.position();
    f.skip(size, format_args!("tensor {name:?}"))?;
    let place = Place { source: 0, range: start..f.position(), strides: None, packing: Packing::Stored };
    Ok(TensorInfo { name, dtype, shape, place })
}

/// ggml changed how quantised blocks are laid out twice in 2023 without giving the types new numbers.
fn check_layout(dtype: DType, layout: i64, tensor: &str) -> Result<(), ErrorKind> {
    if dtype.is_plain() || layout == LAYOUT_VERSION {
        return Ok(());
    }
    Err(ErrorKind::Unsupported {
        what: format!(
            "tensor {tensor:?} is {dtype} in ggml's layout version {layout}; {LAYOUT_VERSION} is read"
        ),
        help: "quantise the model again with a whisper.cpp newer than May 2023".into(),
    })
}

#[cfg(test)]
mod tests;
