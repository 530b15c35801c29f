//! safetensors: the length of a JSON header, the header, the tensors.
//!
//! Hand-written, because the `safetensors` crate's writer takes whole tensors and makes the final file itself.

use serde_json::{Map, Value, json};

use super::{Entry, Out, pour};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind};

/// The reference refuses to read a longer one.
const MAX_HEADER: usize = 100_000_000;

pub(super) fn name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::F8E4M3 => "F8_E4M3",
        DType::F8E5M2 => "F8_E5M2",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U64 => "U64",
        DType::U32 => "U32",
        DType::U16 => "U16",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
        _ => return None,
    })
}

pub(super) fn write(
    out: &mut Out<'_>,
    mut entries: Vec<Entry<'_>>,
    metadata: &Map<String, Value>,
) -> Result<(), Error> {
    // As the reference orders them: the widest first, so that every tensor is aligned without padding.
    entries.sort_by(|a, b| b.dtype.block().1.cmp(&a.dtype.block().1).then_with(|| a.name.cmp(&b.name)));
    let header = header(&entries, metadata).map_err(|kind| out.error(kind))?;
    out.put(&(header.len() as u64).to_le_bytes())?;
    out.put(&header)?;
    for entry in &entries {
        let path = out.path;
        pour(entry, path, &mut |bytes| out.put(bytes))?;
    }
    Ok(())
}

fn header(entries: &[Entry<'_>], metadata: &Map<String, Value>) -> Result<Vec<u8>, ErrorKind> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), texts(metadata));
    }
    let mut offset = 0u64;
    for entry in entries {
        let end = offset.saturating_add(entry.size()?);
        let line = json!({ "dtype": name(entry.dtype), "shape": entry.shape, "data_offsets": [offset, end] });
        if entry.name == "__metadata__" || header.insert(entry.name.clone(), line).is_some() {
            return Err(ErrorKind::invalid("tensor name", "one that is free", format!("{:?}", entry.name)));
        }
        offset = end;
    }
    let mut bytes = serde_json::to_vec(&header).map_err(std::io::Error::from)?;
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    if bytes.len() > MAX_HEADER {
        let (place, found) = ("safetensors header".into(), bytes.len() as u64);
        return Err(ErrorKind::TooLarge { place, found, cap: MAX_HEADER as u64 });
    }
    Ok(bytes)
}

/// The format has only texts; other values are written as JSON.
fn texts(metadata: &Map<String, Value>) -> Value {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    metadata.iter().map(|(key, value)| (key.clone(), Value::String(text(value)))).collect()
}
