//! A bound on JSON before it is parsed: a parsed value takes some thirty times the bytes of `0,`.

use crate::error::ErrorKind;

/// Values in a header, an index or a config. Tables of a hundred thousand tensors stay below.
pub const MAX_JSON_VALUES: usize = 1 << 20;

/// Refuses JSON with more values than `most`. Errors call it `place`.
///
/// # Errors
/// When there are more.
pub fn check_json_values(json: &[u8], most: usize, place: &str) -> Result<(), ErrorKind> {
    // Every value but the first follows one of these; those inside strings only make the bound stricter.
    let values = json.iter().filter(|b| matches!(b, b',' | b'[' | b'{')).count();
    if values > most {
        return Err(ErrorKind::invalid(place, format!("at most {most} values"), values));
    }
    Ok(())
}
