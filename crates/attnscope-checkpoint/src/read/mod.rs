//! One reader for each format. A reader is `read(&Source) -> Result<Listing, ErrorKind>`: it lists tensors, facts
//! and checks without touching a tensor's values, and believes no number in the file before it has checked it.

pub(crate) mod apr;
pub(crate) mod ggml;
pub(crate) mod gguf;
pub(crate) mod npz;
mod pickle;
pub(crate) mod pytorch;
pub(crate) mod safetensors;
pub(crate) mod zip;

use std::collections::HashSet;

use crate::error::ErrorKind;
use crate::format::Format;
use crate::listing::Listing;
use crate::source::Source;
use crate::tensor::TensorInfo;

/// Tells the format by content and lists the file.
pub(crate) fn read(source: &Source) -> Result<(Format, Listing), ErrorKind> {
    let format = crate::format::sniff(source.bytes())?;
    let listing = match format {
        Format::Safetensors => safetensors::read(source),
        Format::PyTorch => pytorch::read(source),
        Format::Gguf => gguf::read(source),
        Format::Apr => apr::read(source),
        Format::WhisperGgml => ggml::read(source),
        Format::Npz => npz::read(source),
    }?;
    Ok((format, listing))
}

/// Refuses a second tensor of the same name: whichever was shown, the other would be silently lost.
pub(crate) fn refuse_duplicates(tensors: &[TensorInfo]) -> Result<(), ErrorKind> {
    let mut seen = HashSet::with_capacity(tensors.len());
    match tensors.iter().find(|t| !seen.insert(t.name.as_str())) {
        Some(t) => Err(ErrorKind::Duplicate { name: t.name.clone() }),
        None => Ok(()),
    }
}

/// The number of elements of a shape, or an error that names the tensor when it is more than can be counted.
pub(crate) fn elements(name: &str, shape: &[usize]) -> Result<usize, ErrorKind> {
    shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n)).ok_or_else(|| {
        ErrorKind::invalid(format!("tensor {name:?}: shape"), "a countable number of elements", dims(shape))
    })
}

/// A shape as the user reads it, cut where a hostile one would fill the screen.
pub(crate) fn dims(shape: &[usize]) -> String {
    let shown: Vec<String> = shape.iter().take(16).map(usize::to_string).collect();
    let more = if shape.len() > 16 { format!(" and {} more", shape.len() - 16) } else { String::new() };
    format!("[{}{more}]", shown.join(", "))
}

/// Text out of a file, short enough for an error line.
pub(crate) fn clip(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}
