//! Safetensors. The `safetensors` crate parses and checks the header; this adds what the crate does not report: a name given
//! twice, and which tensor is at fault.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use ::safetensors::tensor::{Dtype, Metadata};
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::json::{MAX_JSON_VALUES, check_json_values};
use crate::listing::{Config, Listing};
use crate::read::fields::Fields;
use crate::read::{clip, dims};
use crate::source::Source;
use crate::tensor::{Packing, Place, TensorInfo};

/// The same cap as the format's own library.
const MAX_HEADER: u64 = 100_000_000;

/// Lists the file.
pub(crate) fn read(source: &Source) -> Result<Listing, ErrorKind> {
    let bytes = header(source)?;
    let header = std::str::from_utf8(&bytes).map_err(|e| {
        ErrorKind::invalid(format!("header byte {}", e.valid_up_to()), "UTF-8", "other bytes")
    })?;
    check_json_values(&bytes, MAX_JSON_VALUES, "header")?;
    if let Some(name) = repeated_key(header).map_err(|e| not_json(&e))? {
        return Err(ErrorKind::Duplicate { name });
    }
    let metadata: Metadata =
        serde_json::from_str(header).map_err(|e| blame(header).unwrap_or(not_json(&e)))?;
    let data = 8 + header.len() as u64;
    check_length(&metadata, source.len() - data)?;
    let tensors = metadata
        .offset_keys()
        .into_iter()
        .filter_map(|name| {
            let info = metadata.info(&name)?;
            let (start, end) = info.data_offsets;
            let range = data + start as u64..data + end as u64;
            let place = Place { source: 0, range, strides: None, packing: Packing::Stored };
            Some(TensorInfo { name, dtype: dtype(info.dtype), shape: info.shape.clone(), place })
        })
        .collect();
    let configs = metadata.metadata().as_ref().map(|m| facts(m.iter())).unwrap_or_default();
    Ok(Listing { tensors, configs, ..Listing::default() })
}

/// The header's bytes, after a check of their length.
fn header(source: &Source) -> Result<Cow<'_, [u8]>, ErrorKind> {
    let length = source.read(0..8, "header length")?;
    let need = Fields::new(&length).u64("header length")?;
    if need > MAX_HEADER {
        return Err(ErrorKind::TooLarge { place: "header".into(), found: need, cap: MAX_HEADER });
    }
    source.read(8..8 + need, "header")
}

fn not_json(error: &serde_json::Error) -> ErrorKind {
    ErrorKind::invalid("header", "a JSON object of tensors", clip(&error.to_string()))
}

/// The format wants the tensors to fill the file exactly.
fn check_length(metadata: &Metadata, have: u64) -> Result<(), ErrorKind> {
    let need = metadata.data_len() as u64;
    match need.cmp(&have) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(ErrorKind::Truncated { place: "tensor data".into(), need, have }),
        std::cmp::Ordering::Less => {
            let found = format!("{} bytes after them", have - need);
            Err(ErrorKind::invalid("tensor data", "tensors up to the end of the file", found))
        }
    }
}

/// The first name that the header gives twice. A map would silently keep only one of the two.
fn repeated_key(header: &str) -> serde_json::Result<Option<String>> {
    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object of tensors")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let (mut seen, mut repeated) = (HashSet::new(), None);
            while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                if let Some(twice) = seen.replace(key) {
                    repeated.get_or_insert(twice);
                }
            }
            Ok(repeated)
        }
    }
    serde_json::Deserializer::from_str(header).deserialize_map(Keys)
}

/// The error of the crate's checks, with the name of the tensor, which the crate does not give.
fn blame(header: &str) -> Option<ErrorKind> {
    #[derive(Deserialize)]
    struct Raw {
        dtype: Dtype,
        shape: Vec<usize>,
        data_offsets: (usize, usize),
    }
    let header: BTreeMap<String, Value> = serde_json::from_str(header).ok()?;
    let mut tensors = Vec::new();
    for (name, value) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        match serde_json::from_value::<Raw>(value) {
            Ok(raw) => tensors.push((name, raw)),
            Err(e) => {
                let expected = "dtype, shape and data_offsets";
                return Some(ErrorKind::invalid(tensor(&name), expected, clip(&e.to_string())));
            }
        }
    }
    tensors.sort_by_key(|(_, raw)| raw.data_offsets);
    let mut at = 0;
    for (name, Raw { dtype, shape, data_offsets: (start, end) }) in &tensors {
        let found = format!("{start} to {end}");
        if *start != at || end < start {
            return Some(ErrorKind::invalid(tensor(name), format!("data_offsets from {at}"), found));
        }
        at = *end;
        let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let bits = elements.and_then(|n| n.checked_mul(dtype.bitsize()));
        if bits.is_none_or(|bits| bits % 8 != 0 || bits / 8 != end - start) {
            let expected = format!("data_offsets that hold {dtype:?} {}", dims(shape));
            return Some(ErrorKind::invalid(tensor(name), expected, found));
        }
    }
    None
}

fn tensor(name: &str) -> String {
    format!("tensor {:?}", clip(name))
}

/// The free-form strings as facts. Trainers put whole configurations in them as JSON.
fn facts<'a>(metadata: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<Config> {
    let mut own = Map::new();
    let mut nested = Vec::new();
    for (key, text) in metadata.collect::<BTreeMap<_, _>>() {
        match serde_json::from_str(text) {
            Ok(Value::Object(facts)) => nested.push(Config { source: format!("metadata {key}"), facts }),
            Ok(value @ (Value::Array(_) | Value::Number(_) | Value::Bool(_))) => {
                own.insert(key.clone(), value);
            }
            _ => {
                own.insert(key.clone(), Value::String(text.clone()));
            }
        }
    }
    if !own.is_empty() {
        nested.insert(0, Config { source: "metadata".into(), facts: own });
    }
    nested
}

fn dtype(dtype: Dtype) -> DType {
    let opaque = |name, block, block_bytes| DType::Opaque { name, block, block_bytes };
    match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U64 => DType::U64,
        Dtype::U32 => DType::U32,
        Dtype::U16 => DType::U16,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        Dtype::F4 => opaque("f4", 2, 1),
        Dtype::F6_E2M3 => opaque("f6_e2m3", 4, 3),
        Dtype::F6_E3M2 => opaque("f6_e3m2", 4, 3),
        Dtype::F8_E8M0 => opaque("f8_e8m0", 1, 1),
        Dtype::F8_E4M3FNUZ => opaque("f8_e4m3fnuz", 1, 1),
        Dtype::F8_E5M2FNUZ => opaque("f8_e5m2fnuz", 1, 1),
        Dtype::C64 => opaque("c64", 1, 8),
        // The enum may grow. Eight elements of any width fill whole bytes.
        other => opaque("unknown", 8, other.bitsize()),
    }
}
