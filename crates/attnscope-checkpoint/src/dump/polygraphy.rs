//! What `polygraphy run --save-outputs` and `--save-inputs` write: JSON in which an array is a NumPy file in base64.

use std::path::Path;
use std::sync::Arc;

use super::scan::{self, Item};
use super::{At, DumpTensor, base64, not_base64};
use crate::error::ErrorKind;
use crate::read::npz;

/// Characters of base64 that hold any array's header; a multiple of four.
const HEADER: usize = 16 << 10;

/// Whether a text is Polygraphy's: it names its classes.
pub(super) fn is(item: &Item) -> bool {
    let marks = |item: &Item| {
        item.get("polygraphy_class").is_some()
            || matches!(item, Item::Object(entries) if entries.iter().any(|(k, _)| k.starts_with("__polygraphy_encoded_")))
    };
    // Saved inputs are a list of dictionaries of arrays.
    let in_dictionary = |item: &Item| match item {
        Item::Object(entries) => entries.iter().any(|(_, value)| marks(value)),
        _ => false,
    };
    marks(item) || in_dictionary(item) || item.list().iter().any(in_dictionary)
}

/// The arrays of every runner and iteration; with one of each, under the names of the outputs alone.
pub(super) fn tensors(item: &Item, text: &[u8], file: &Arc<Path>) -> Result<Vec<DumpTensor>, ErrorKind> {
    let mut runs: Vec<(String, &Item)> = Vec::new();
    let runners = item.get("lst").map(Item::list).unwrap_or_default();
    for runner in runners {
        let [Item::Text(name), iterations] = runner.list() else { continue };
        let name = scan::unescaped(text, name.clone()).unwrap_or_default();
        for (i, iteration) in iterations.list().iter().enumerate() {
            runs.push((format!("{name}/{i}/"), iteration.get("outputs").unwrap_or(iteration)));
        }
    }
    if runners.is_empty() {
        match item {
            Item::List(iterations) => {
                runs.extend(iterations.iter().enumerate().map(|(i, it)| (format!("{i}/"), it)));
            }
            _ => runs.push((String::new(), item)),
        }
    }
    let alone = runs.len() == 1;
    let mut found = Vec::new();
    for (prefix, outputs) in runs {
        let Item::Object(entries) = outputs else { continue };
        for (name, value) in entries {
            let prefix = if alone { "" } else { prefix.as_str() };
            found.extend(array(value, format!("{prefix}{name}"), text, file)?);
        }
    }
    Ok(found)
}

/// The array of a value, behind the wrappers that versions have put around it.
fn array(value: &Item, name: String, text: &[u8], file: &Arc<Path>) -> Result<Option<DumpTensor>, ErrorKind> {
    let encoded = match (value.get("array"), value.get("values")) {
        (Some(Item::Text(encoded)), _) => encoded,
        (_, Some(inner)) => return array(inner, name, text, file),
        _ => return Ok(None),
    };
    let all = text.get(encoded.clone()).unwrap_or_default();
    let start = base64(all.get(..HEADER.min(all.len())).unwrap_or_default());
    let start = start.ok_or_else(|| not_base64(&name))?;
    let whole = (all.len() / 4 * 3) as u64;
    let info = npz::array_header(&start, whole, &name)?;
    let (shape, dtype) = (info.shape, info.dtype);
    Ok(Some(DumpTensor { name, shape, dtype, file: file.clone(), at: At::Base64(encoded.clone()) }))
}
