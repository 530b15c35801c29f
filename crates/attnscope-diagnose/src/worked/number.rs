//! Numbers of a TOML file, and how they were written.

use toml::de::DeValue;

/// A whole number, in any base that TOML has.
pub(super) fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok()
}

/// A number, whole or not.
pub(super) fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(_) => integer(value).map(|n| n as f64),
        DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
        _ => None,
    }
}

/// How many digits a number is written with after the point: 2 for 0.50, 3 for 1e-3.
pub(super) fn digits_of(value: &DeValue<'_>) -> u32 {
    let Some(float) = value.as_float() else { return 0 };
    let text = float.as_str().to_ascii_lowercase();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = mantissa
        .split_once('.')
        .map_or(0, |(_, digits)| digits.matches(|c: char| c.is_ascii_digit()).count());
    let digits = i64::try_from(digits).unwrap_or(0) - exponent.parse::<i64>().unwrap_or(0);
    u32::try_from(digits.clamp(0, 15)).unwrap_or(0)
}

/// What a value is, for an error.
pub(super) fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        DeValue::Integer(integer) => integer.as_str().chars().take(40).collect(),
        DeValue::Float(float) => float.as_str().chars().take(40).collect(),
        other => match other.type_str() {
            kind @ ("array" | "integer") => format!("an {kind}"),
            kind => format!("a {kind}"),
        },
    }
}
