//! A file that says which names belong together: two columns, or the plain part of TOML.

use std::path::Path;

use super::error::DiffError;

/// Reads a map: a line is two names with `=` or white space between them, quoted or not. `#` begins a remark; a line in
/// brackets is a heading, as TOML has them. The path is for the error.
///
/// # Errors
/// When a line is not two names.
pub fn parse_map(path: &Path, text: &str) -> Result<Vec<(String, String)>, DiffError> {
    let mut map = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with('[') {
            continue;
        }
        let names = pair(line).ok_or_else(|| DiffError::Map {
            path: path.to_owned(),
            place: format!("line {}", i + 1),
            expected: "two names",
            found: format!("{:?}", line.chars().take(60).collect::<String>()),
        })?;
        map.push(names);
    }
    Ok(map)
}

fn pair(line: &str) -> Option<(String, String)> {
    let (first, rest) = name(line)?;
    let rest = rest.trim_start();
    let (second, rest) = name(rest.strip_prefix('=').unwrap_or(rest))?;
    let rest = rest.trim();
    (rest.is_empty() || rest.starts_with('#')).then_some((first, second))
}

/// A name, in quotes or to the next white space or `=`, and what comes after it.
fn name(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    let (name, rest) = match text.chars().next()? {
        quote @ ('"' | '\'') => text.get(1..)?.split_once(quote)?,
        _ => {
            let end = text.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(text.len());
            text.split_at(end)
        }
    };
    (!name.is_empty()).then(|| (name.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_toml() {
        let both = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(pair("a.b  c.d"), both("a.b", "c.d"));
        assert_eq!(pair("\"a b\" = 'c'  # why"), both("a b", "c"));
        assert_eq!(pair("x=y"), both("x", "y"));
        for bad in ["one", "a b c", "\"a", "= b", "a ="] {
            assert_eq!(pair(bad), None, "{bad}");
        }
    }
}
