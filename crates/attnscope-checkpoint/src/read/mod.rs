//! One reader for each format. A reader is `read(&Source) -> Result<Listing, ErrorKind>`: it lists tensors, facts
//! and checks without touching a tensor's values, and checks every number in the file before it uses it.

pub(crate) mod apr;
pub(crate) mod fields;
pub(crate) mod ggml;
pub(crate) mod ggml_types;
pub(crate) mod gguf;
pub(crate) mod npz;
mod pickle;
pub(crate) mod pytorch;
pub(crate) mod safetensors;
pub(crate) mod zip;

#[cfg(test)]
pub(crate) mod hostile;

use crate::error::ErrorKind;
use crate::format::{Format, sniff};
use crate::listing::Listing;
use crate::source::Source;

/// Tells the format by content and lists the file.
pub(crate) fn read(source: &Source) -> Result<(Format, Listing), ErrorKind> {
    let format = sniff(source)?;
    let listing = match format {
        Format::Safetensors => safetensors::read(source),
        Format::PyTorch => pytorch::read(source),
        Format::Gguf => gguf::read(source),
        Format::Apr => apr::read(source),
        Format::WhisperGgml => ggml::read(source),
        Format::Npz => npz::read(source),
        // No file is one.
        Format::Recipe | Format::Memory => Ok(Listing::default()),
    }?;
    Ok((format, listing))
}
/// A shape as text, cut where a hostile one would fill the screen.
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
