//! Scans a JSON text for its lists of numbers: where they lie and which shapes they have. The numbers stay in the file, because
//! a parsed tree would take about thirty times their bytes.

use std::ops::Range;

use crate::error::ErrorKind;
use crate::memory::room;
use crate::read::fields::elements;

/// Levels of nesting: dimensions, and the keys around them.
const MAX_DEPTH: usize = 64;
/// Values that are kept; numbers in lists are not.
const MAX_ITEMS: usize = 1 << 20;

/// A value.
#[derive(Debug, PartialEq)]
pub(super) enum Item {
    Object(Vec<(String, Item)>),
    List(Vec<Item>),
    /// Nested lists of numbers, all of one shape: the bytes from the first bracket to the last.
    Numbers {
        shape: Vec<usize>,
        range: Range<usize>,
    },
    /// A string: the bytes between its quotes, as they are written.
    Text(Range<usize>),
    /// A single number, true, false or null.
    Single,
}

impl Item {
    /// The value under a key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(entries) => entries.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

/// Reads a text to its end.
pub(super) fn scan(bytes: &[u8]) -> Result<Item, ErrorKind> {
    let at = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let mut scanner = Scanner { bytes, at, items: 0 };
    let item = scanner.value(0)?;
    scanner.skip_space();
    match scanner.peek() {
        None => Ok(item),
        Some(_) => Err(scanner.wrong("the end of the text")),
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    items: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn wrong(&self, expected: &str) -> ErrorKind {
        let line = 1 + self.bytes.iter().take(self.at).filter(|&&b| b == b'\n').count();
        let found = match self.peek() {
            None => "the end of the file".to_owned(),
            Some(b) => format!("{:?}", char::from(b)),
        };
        ErrorKind::invalid(format!("line {line}, byte {}", self.at), expected, found)
    }

    fn take(&mut self, byte: u8, expected: &str) -> Result<(), ErrorKind> {
        self.skip_space();
        if self.peek() != Some(byte) {
            return Err(self.wrong(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Item, ErrorKind> {
        self.skip_space();
        self.items += 1;
        if depth > MAX_DEPTH || self.items > MAX_ITEMS {
            let place = format!("byte {}", self.at);
            let expected =
                format!("at most {MAX_DEPTH} levels and {MAX_ITEMS} values outside of lists of numbers");
            return Err(ErrorKind::invalid(place, expected, "more"));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => Ok(Item::Text(self.text()?)),
            _ => self.single().map(|()| Item::Single),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Item, ErrorKind> {
        self.at += 1;
        let mut entries = Vec::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Item::Object(entries));
        }
        loop {
            self.skip_space();
            let key = self.text()?;
            let key = unescaped(self.bytes, key).ok_or_else(|| self.wrong("a key"))?;
            self.take(b':', "a colon")?;
            entries.push((key, self.value(depth + 1)?));
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.wrong("a comma or a closing brace")),
            }
        }
        self.at += 1;
        Ok(Item::Object(entries))
    }

    fn list(&mut self, depth: usize) -> Result<Item, ErrorKind> {
        let start = self.at;
        self.at += 1;
        let mut items = Vec::new();
        let mut singles = 0;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Item::Numbers { shape: vec![0], range: start..self.at });
        }
        loop {
            match self.value(depth + 1)? {
                Item::Single => {
                    singles += 1;
                    // Numbers in lists are not kept.
                    self.items -= 1;
                }
                item => items.push(item),
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.wrong("a comma or a closing bracket")),
            }
        }
        self.at += 1;
        Ok(self.collapsed(items, singles, start))
    }

    /// Lists of numbers of one shape become one; anything else stays a list.
    fn collapsed(&mut self, items: Vec<Item>, singles: usize, start: usize) -> Item {
        let range = start..self.at;
        if items.is_empty() {
            return Item::Numbers { shape: vec![singles], range };
        }
        let shape_of = |item: &Item| match item {
            Item::Numbers { shape, .. } => Some(shape.clone()),
            _ => None,
        };
        let first = items.first().and_then(shape_of);
        let all_alike = singles == 0 && first.is_some() && items.iter().all(|item| shape_of(item) == first);
        match first {
            Some(inner) if all_alike => {
                self.items = self.items.saturating_sub(items.len());
                let shape = [vec![items.len()], inner].concat();
                Item::Numbers { shape, range }
            }
            _ => Item::List(items),
        }
    }

    /// The bytes between the quotes.
    fn text(&mut self) -> Result<Range<usize>, ErrorKind> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong("a string"));
        }
        let start = self.at + 1;
        let mut end = start;
        loop {
            match self.bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => {
                    self.at = self.bytes.len();
                    return Err(self.wrong("a closing quote"));
                }
            }
        }
        self.at = end + 1;
        Ok(start..end)
    }

    fn single(&mut self) -> Result<(), ErrorKind> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length =
            rest.iter().take_while(|b| !matches!(b, b',' | b']' | b'}') && !b.is_ascii_whitespace()).count();
        let word = rest.get(..length).unwrap_or_default();
        if number(word).is_none() {
            return Err(self.wrong("a value"));
        }
        self.at += length;
        Ok(())
    }
}

/// A string with its escapes decoded.
pub(super) fn unescaped(bytes: &[u8], range: Range<usize>) -> Option<String> {
    let quoted = bytes.get(range.start.checked_sub(1)?..range.end.checked_add(1)?)?;
    serde_json::from_slice(quoted).ok()
}

/// A number as JSON or Python writes it. `null` stands for NaN, which JSON cannot write.
fn number(word: &[u8]) -> Option<f64> {
    match word {
        b"null" | b"NaN" => Some(f64::NAN),
        b"Infinity" => Some(f64::INFINITY),
        b"-Infinity" => Some(f64::NEG_INFINITY),
        b"true" => Some(1.0),
        b"false" => Some(0.0),
        [b'-' | b'0'..=b'9', ..] => std::str::from_utf8(word).ok()?.parse().ok(),
        _ => None,
    }
}

/// The numbers of nested lists, in the order in which they are written.
pub(super) fn numbers(text: &[u8], count: usize) -> Result<Vec<f64>, ErrorKind> {
    let is_between = |b: &u8| matches!(b, b'[' | b']' | b',') || b.is_ascii_whitespace();
    let words = text.split(is_between).filter(|word| !word.is_empty());
    let expected = |found: &str| ErrorKind::invalid("a list of numbers", format!("{count} numbers"), found);
    let mut values = room(count as u64, "a list of numbers")?;
    for word in words {
        if values.len() == count {
            return Err(expected("more"));
        }
        values.push(number(word).ok_or_else(|| expected("something else"))?);
    }
    if values.len() == count { Ok(values) } else { Err(expected(&values.len().to_string())) }
}

/// Checks that the number of elements of a shape does not overflow.
pub(super) fn checked(shape: &[usize], name: &str) -> Result<(), ErrorKind> {
    elements(shape, format!("tensor {:?}: shape", crate::read::clip(name))).map(|_| ())
}
