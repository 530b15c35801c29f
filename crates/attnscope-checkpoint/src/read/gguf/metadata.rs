//! GGUF's typed keys and values.

use serde_json::{Map, Value};

use crate::error::ErrorKind;
use crate::list::{List, StoredList};
use crate::listing::Config;
use crate::read::fields::Fields;

pub(super) type Facts = Map<String, Value>;

/// The shortest pair: an empty key's length, a type, a byte.
const SMALLEST_PAIR: u64 = 8 + 4 + 1;
const MAX_KEYS: u64 = 1 << 16;
/// The format's own limit.
const MAX_KEY: u64 = 65_535;
/// What is kept of all keys and values together. Templates and licences are the long ones, some 100 KB.
const MAX_KEPT: u64 = 16 << 20;
/// An array longer than this is kept as its length and its first few values.
const SHORT_ARRAY: u64 = 64;
const FIRST_FEW: u64 = 8;
/// The format allows arrays of arrays; no known file has them. The depth bounds the recursion.
const MAX_DEPTH: u32 = 4;
/// More than the pieces of any vocabulary, and more than the bytes of any normalisation table.
const MOST_ELEMENTS: u64 = 4_000_000;
/// The format's numbers for the types that this reader distinguishes.
const TEXT: u32 = 8;
const ARRAY: u32 = 9;
/// The keys whose arrays can be read later.
const TOKENIZER: &str = "tokenizer.";

/// Reads `count` pairs. A long array becomes `{"length": n, "first": […]}`; where each array of the tokenizer lies is kept.
pub(super) fn read(f: &mut Fields<'_>, count: u64) -> Result<(Facts, Vec<StoredList>), ErrorKind> {
    if count > MAX_KEYS {
        return Err(ErrorKind::invalid("metadata count", format!("at most {MAX_KEYS}"), count));
    }
    f.check_count(count, SMALLEST_PAIR, "metadata")?;
    let (mut facts, mut lists) = (Map::new(), Vec::new());
    let mut budget = Budget(MAX_KEPT);
    for _ in 0..count {
        let length = f.u64("length of a metadata key")?;
        if length > MAX_KEY {
            return Err(ErrorKind::TooLarge { place: "a metadata key".into(), found: length, cap: MAX_KEY });
        }
        budget.spend(length)?;
        let key = f.text(length, "a metadata key")?.to_owned();
        let kind = f.u32(format_args!("type of {key:?}"))?;
        let start = f.position();
        let value = value(f, kind, &key, 0, Some(&mut budget))?;
        if kind == ARRAY && key.starts_with(TOKENIZER) {
            lists.push(StoredList { key: key.clone(), source: 0, range: start..f.position() });
        }
        if facts.insert(key.clone(), value).is_some() {
            return Err(ErrorKind::invalid("metadata", "each key once", format!("{key:?} twice")));
        }
    }
    Ok((facts, lists))
}

/// The elements of an array, the type and number of which come first.
pub(super) fn list(f: &mut Fields<'_>, key: &str) -> Result<List, ErrorKind> {
    let kind = f.u32(key)?;
    let count = f.u64(key)?;
    if count > MOST_ELEMENTS {
        return Err(ErrorKind::invalid(key, format!("at most {MOST_ELEMENTS} elements"), count));
    }
    if kind == TEXT {
        let text = |f: &mut Fields<'_>| {
            let length = f.u64(key)?;
            Ok(String::from_utf8_lossy(f.take(length, key)?).into_owned())
        };
        return Ok(List::Texts((0..count).map(|_| text(f)).collect::<Result<_, ErrorKind>>()?));
    }
    let number = |f: &mut Fields<'_>| {
        let value = value(f, kind, key, MAX_DEPTH, None)?;
        let number = value.as_f64().or_else(|| value.as_bool().map(|b| f64::from(u8::from(b))));
        number.ok_or_else(|| ErrorKind::invalid(key, "texts or finite numbers", format!("type {kind}")))
    };
    Ok(List::Numbers((0..count).map(|_| number(f)).collect::<Result<_, _>>()?))
}

pub(super) fn config(facts: Facts) -> Vec<Config> {
    if facts.is_empty() { Vec::new() } else { vec![Config { source: "metadata".into(), facts }] }
}

/// How many bytes of values may still be kept.
struct Budget(u64);

impl Budget {
    fn spend(&mut self, bytes: u64) -> Result<(), ErrorKind> {
        match self.0.checked_sub(bytes) {
            Some(left) => self.0 = left,
            None => {
                let found = (MAX_KEPT - self.0).saturating_add(bytes);
                return Err(ErrorKind::TooLarge { place: "metadata".into(), found, cap: MAX_KEPT });
            }
        }
        Ok(())
    }
}

/// One value. Without a budget it is skipped, and `Null` is returned.
fn value(
    f: &mut Fields<'_>,
    kind: u32,
    key: &str,
    depth: u32,
    keep: Option<&mut Budget>,
) -> Result<Value, ErrorKind> {
    Ok(match kind {
        0 => f.u8(key)?.into(),
        1 => f.u8(key)?.cast_signed().into(),
        2 => f.u16(key)?.into(),
        3 => f.u16(key)?.cast_signed().into(),
        4 => f.u32(key)?.into(),
        5 => f.i32(key)?.into(),
        6 => decimal(f32::from_bits(f.u32(key)?)),
        7 => match f.u8(key)? {
            0 => false.into(),
            1 => true.into(),
            other => return Err(ErrorKind::invalid(key, "0 or 1", other)),
        },
        8 => {
            let length = f.u64(key)?;
            match keep {
                Some(budget) => {
                    budget.spend(length)?;
                    // Vocabularies hold bytes that are not whole characters.
                    String::from_utf8_lossy(f.take(length, key)?).into()
                }
                None => {
                    f.skip(length, key)?;
                    Value::Null
                }
            }
        }
        9 => array(f, key, depth, keep)?,
        10 => f.u64(key)?.into(),
        11 => f.u64(key)?.cast_signed().into(),
        12 => f64::from_bits(f.u64(key)?).into(),
        other => return Err(ErrorKind::invalid(format!("type of {key:?}"), "0 to 12", other)),
    })
}

fn array(
    f: &mut Fields<'_>,
    key: &str,
    depth: u32,
    mut keep: Option<&mut Budget>,
) -> Result<Value, ErrorKind> {
    if depth == MAX_DEPTH {
        return Err(ErrorKind::invalid(key, format!("arrays at most {MAX_DEPTH} deep"), "a deeper one"));
    }
    let kind = f.u32(key)?;
    let length = f.u64(key)?;
    let smallest = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        other => return Err(ErrorKind::invalid(format!("type of elements of {key:?}"), "0 to 12", other)),
    };
    f.check_count(length, smallest, key)?;
    let kept = match keep {
        None => 0,
        Some(_) if length <= SHORT_ARRAY => length,
        Some(_) => FIRST_FEW,
    };
    let mut values = Vec::new();
    for _ in 0..kept {
        if let Some(budget) = keep.as_deref_mut() {
            budget.spend(size_of::<Value>() as u64)?;
        }
        values.push(value(f, kind, key, depth + 1, keep.as_deref_mut())?);
    }
    skip(f, kind, smallest, length - kept, key, depth)?;
    Ok(match keep {
        None => Value::Null,
        Some(_) if kept == length => values.into(),
        Some(_) => serde_json::json!({ "length": length, "first": values }),
    })
}

/// Skips `count` elements: at once where they have a fixed size, else one by one.
fn skip(
    f: &mut Fields<'_>,
    kind: u32,
    size: u64,
    count: u64,
    key: &str,
    depth: u32,
) -> Result<(), ErrorKind> {
    if !matches!(kind, 8 | 9) {
        return f.skip(size.saturating_mul(count), key);
    }
    for _ in 0..count {
        value(f, kind, key, depth + 1, None)?;
    }
    Ok(())
}

/// An f32 as the shortest decimal that gives it: 1e-6 rather than 9.999999974752427e-7.
fn decimal(value: f32) -> Value {
    value.to_string().parse::<f64>().unwrap_or(f64::from(value)).into()
}
