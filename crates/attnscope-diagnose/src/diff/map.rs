//! A file that says which names belong together: two columns, or the plain part of TOML. A name may be a pattern, in which
//! `{n}` stands for the same text on both sides and `{n+1}` for the next number.

use std::path::{Path, PathBuf};

use super::error::DiffError;

/// What the user says about names, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct NameMap {
    path: PathBuf,
    pub(super) lines: Vec<MapLine>,
}

/// Two names, or two patterns, that belong together.
#[derive(Debug, Clone)]
pub(super) struct MapLine {
    /// Its number in the file, from 1.
    pub(super) number: usize,
    names: [Pattern; 2],
}

/// A name with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `{n}`, `{n+1}`: a name, and what is added to its number.
    Hole(String, i64),
}

/// What the placeholders of a name stand for.
type Captured = Vec<(String, String)>;

impl NameMap {
    /// Reads a map: a line is two names with `=` or white space between them, quoted or not. `#` begins a remark; a line in
    /// brackets is a heading, as TOML has them. The path is for errors.
    ///
    /// # Errors
    /// When a line is not two names, or their placeholders do not fit each other.
    pub fn parse(path: &Path, text: &str) -> Result<Self, DiffError> {
        let mut lines = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim_start_matches('\u{feff}').trim();
            if line.is_empty() || line.starts_with('#') || line.starts_with('[') {
                continue;
            }
            let names = pair(line).ok_or("two names").and_then(|(a, b)| patterns(&a, &b));
            let names = names.map_err(|expected| DiffError::Map {
                path: path.to_owned(),
                place: format!("line {}", i + 1),
                expected,
                found: format!("{:?}", line.chars().take(60).collect::<String>()),
            })?;
            lines.push(MapLine { number: i + 1, names });
        }
        // A literal name takes precedence over a pattern.
        lines.sort_by_key(|line| line.names.iter().any(Pattern::has_holes));
        Ok(Self { path: path.to_owned(), lines })
    }

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The names that belong to a name, each with the place of its line in [`NameMap::lines`].
    pub(super) fn partners<'m>(&'m self, name: &'m str) -> impl Iterator<Item = (usize, String)> + 'm {
        self.lines.iter().enumerate().flat_map(move |(i, line)| {
            let [a, b] = &line.names;
            let ways = [(a, b), (b, a)].into_iter();
            ways.filter_map(move |(from, to)| Some((i, to.filled(&from.captures(name)?)?)))
        })
    }
}

impl MapLine {
    /// Both names as they were written.
    pub(super) fn names(&self) -> [&str; 2] {
        [&self.names[0].text, &self.names[1].text]
    }

    /// Whether the first or the second name is, or fits, this one.
    pub(super) fn fits(&self, which: usize, name: &str) -> bool {
        self.names[which].captures(name).is_some()
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (before, inner) = rest.split_at(at);
            let (inner, after) = inner[1..].split_once('}').ok_or("a `}` after every `{`")?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            } else if !pieces.is_empty() {
                return Err("something between two placeholders");
            }
            pieces.push(hole(inner).ok_or("placeholders like {n}, {layer} or {n+1}")?);
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self { text: text.to_owned(), pieces })
    }

    fn has_holes(&self) -> bool {
        self.holes().next().is_some()
    }

    fn holes(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Hole(name, _) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// What the placeholders stand for in a name that fits. Each matches as little as possible, and never a dot, a slash or a
    /// colon.
    fn captures(&self, name: &str) -> Option<Captured> {
        let mut captured: Captured = Vec::new();
        let mut rest = name;
        for (i, piece) in self.pieces.iter().enumerate() {
            let (hole, plus) = match piece {
                Piece::Text(text) => {
                    rest = rest.strip_prefix(text.as_str())?;
                    continue;
                }
                Piece::Hole(hole, plus) => (hole, *plus),
            };
            let end = match self.pieces.get(i + 1) {
                Some(Piece::Text(text)) if i + 2 == self.pieces.len() => {
                    rest.strip_suffix(text.as_str())?.len()
                }
                Some(Piece::Text(text)) => {
                    rest.char_indices().skip(1).find(|(at, _)| rest[*at..].starts_with(text.as_str()))?.0
                }
                _ => rest.len(),
            };
            let (found, after) = rest.split_at(end);
            if found.is_empty() || found.contains(['.', '/', ':']) {
                return None;
            }
            let value = shifted(found, -plus)?;
            match captured.iter().find(|(name, _)| name == hole) {
                Some((_, before)) if *before != value => return None,
                Some(_) => {}
                None => captured.push((hole.clone(), value)),
            }
            rest = after;
        }
        rest.is_empty().then_some(captured)
    }

    fn filled(&self, captured: &Captured) -> Option<String> {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Hole(hole, plus) => {
                let (_, value) = captured.iter().find(|(name, _)| name == hole)?;
                shifted(value, *plus)
            }
        };
        self.pieces.iter().map(piece).collect()
    }
}

/// Two patterns whose placeholders are the same.
fn patterns(a: &str, b: &str) -> Result<[Pattern; 2], &'static str> {
    let names = [Pattern::parse(a)?, Pattern::parse(b)?];
    let all_in = |one: &Pattern, other: &Pattern| one.holes().all(|hole| other.holes().any(|h| h == hole));
    match all_in(&names[0], &names[1]) && all_in(&names[1], &names[0]) {
        true => Ok(names),
        false => Err("every placeholder on both sides"),
    }
}

/// `n`, `layer`, `n+1`, `n-1`.
fn hole(text: &str) -> Option<Piece> {
    let (name, plus) = match text.find(['+', '-']) {
        Some(at) => (&text[..at], text[at..].trim_start_matches('+').parse::<i32>().ok()?),
        None => (text, 0),
    };
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_word.then(|| Piece::Hole(name.to_owned(), i64::from(plus)))
}

/// A text, or a number with its offset; leading zeros are dropped, because node paths have none.
fn shifted(text: &str, plus: i64) -> Option<String> {
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<i64>().ok()).flatten();
    match number {
        Some(n) => n.checked_add(plus).filter(|n| *n >= 0).map(|n| n.to_string()),
        None => (plus == 0).then(|| text.to_owned()),
    }
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

/// A name as written in a map: in quotes where needed.
pub(super) fn quoted(name: &str) -> String {
    let plain = !name.contains(|c: char| c.is_whitespace() || ['=', '"', '\'', '#', '['].contains(&c));
    match (plain, name.contains('"')) {
        (true, _) => name.to_owned(),
        (false, false) => format!("\"{name}\""),
        (false, true) => format!("'{name}'"),
    }
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
        for name in ["a.b", "a b", "x=y", "it's", "say \"x\""] {
            let line = format!("{} = node", quoted(name));
            assert_eq!(pair(&line), both(name, "node"), "{line}");
        }
    }

    fn partners(map: &str, name: &str) -> Vec<String> {
        let map = NameMap::parse(Path::new("map"), map).unwrap_or_default();
        map.partners(name).map(|(_, name)| name).collect()
    }

    #[test]
    fn a_placeholder_stands_for_the_same_on_both_sides() {
        let map = "enc.layer.{n}.attn = encoder.{n}.self_attn.out";
        assert_eq!(partners(map, "enc.layer.11.attn"), ["encoder.11.self_attn.out"]);
        assert_eq!(partners(map, "encoder.0.self_attn.out"), ["enc.layer.0.attn"]);
        for other in ["enc.layer..attn", "enc.layer.1.2.attn", "enc.layer.1.attn.x", "x.enc.layer.1.attn"] {
            assert_eq!(partners(map, other), [""; 0], "{other}");
        }
        let several = "h{n}_{part} = encoder.{n}.self_attn.{part}";
        assert_eq!(partners(several, "h3_q"), ["encoder.3.self_attn.q"]);
        let twice = "b{n}.l{n} = encoder.{n}.in";
        assert_eq!(partners(twice, "b2.l2"), ["encoder.2.in"]);
        assert_eq!(partners(twice, "b2.l3"), [""; 0]);
    }

    #[test]
    fn numbers_may_be_counted_from_elsewhere() {
        let map = "block_{n+1} = encoder.{n}.out";
        assert_eq!(partners(map, "block_1"), ["encoder.0.out"]);
        assert_eq!(partners(map, "block_01"), ["encoder.0.out"]);
        assert_eq!(partners(map, "encoder.4.out"), ["block_5"]);
        assert_eq!(partners(map, "block_0"), [""; 0]);
        assert_eq!(partners(map, "block_x"), [""; 0]);
    }

    #[test]
    fn a_written_out_name_counts_before_a_pattern() {
        let map = "t{n} = encoder.{n}.out\nt2 = logits";
        assert_eq!(partners(map, "t2"), ["logits", "encoder.2.out"]);
    }

    #[test]
    fn errors_keep_file_and_line() {
        for (bad, word) in [
            ("a{n} = b", "every placeholder on both sides"),
            ("a{n = b{n}", "a `}` after every `{`"),
            ("a{n}{m} = b{n}.{m}", "something between two placeholders"),
            ("a{} = b{}", "placeholders like"),
            ("a{n+x} = b{n}", "placeholders like"),
            ("a", "two names"),
        ] {
            let error = NameMap::parse(Path::new("names.map"), &format!("x = y\n{bad}\n"));
            let said = error.map(|_| String::new()).unwrap_or_else(|e| e.to_string());
            assert!(said.starts_with("names.map: line 2: expected ") && said.contains(word), "{bad}: {said}");
        }
    }
}
