//! Quotes of a table that are not closed where their field ends. A reader of CSV takes what follows as a part of the field, and
//! joins rows to one without a word.

use std::fmt;
use std::io::{self, Read};

/// No field is longer.
const MOST_FIELD: usize = 16 << 20;

/// A byte order mark, which is no part of the first field.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Bytes of a table, passed on as they are, while their quotes are followed.
pub(super) struct Quotes<R> {
    bytes: R,
    delimiter: u8,
    place: Place,
    /// From 1.
    line: usize,
    /// Bytes until now.
    read: usize,
    ended: bool,
}

/// Where in a row the next byte is.
#[derive(Clone, Copy)]
enum Place {
    /// At the beginning of a field.
    Start,
    /// In a field without quotes.
    Plain,
    /// In a field within quotes.
    Quoted(Opened),
    /// Behind a quote of such a field: its end, or the first of two that stand for one.
    Quote(Opened),
}

/// Where a quote was opened.
#[derive(Clone, Copy)]
struct Opened {
    line: usize,
    byte: usize,
}

/// A quote that is not closed where its field ends.
#[derive(Debug)]
pub(super) struct OpenQuote {
    /// The line in which it is opened, from 1.
    pub(super) line: usize,
    pub(super) found: String,
}

impl fmt::Display for OpenQuote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: a quote is not closed: {}", self.line, self.found)
    }
}

impl std::error::Error for OpenQuote {}

impl<R> Quotes<R> {
    pub(super) fn new(bytes: R, delimiter: u8) -> Self {
        Self { bytes, delimiter, place: Place::Start, line: 1, read: 0, ended: false }
    }

    /// Follows one byte.
    fn step(&mut self, byte: u8) -> Result<(), OpenQuote> {
        let ends = byte == self.delimiter || byte == b'\r' || byte == b'\n';
        let here = Opened { line: self.line, byte: self.read };
        self.place = match self.place {
            Place::Start if self.read < MARK.len() && byte == MARK[self.read] => Place::Start,
            Place::Start | Place::Plain if ends => Place::Start,
            Place::Start if byte == b'"' => Place::Quoted(here),
            Place::Start | Place::Plain => Place::Plain,
            Place::Quoted(opened) if byte == b'"' => Place::Quote(opened),
            Place::Quoted(opened) if self.read - opened.byte > MOST_FIELD => {
                return Err(OpenQuote { line: opened.line, found: "none in 16 MiB".into() });
            }
            Place::Quoted(opened) => Place::Quoted(opened),
            Place::Quote(opened) if byte == b'"' => Place::Quoted(opened),
            Place::Quote(_) if ends => Place::Start,
            Place::Quote(opened) => {
                let found = format!("more of the field behind the next quote, in line {}", self.line);
                return Err(OpenQuote { line: opened.line, found });
            }
        };
        self.read += 1;
        self.line += usize::from(byte == b'\n');
        Ok(())
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let count = self.bytes.read(buffer)?;
        let followed = match (count, self.place) {
            (0, Place::Quoted(opened)) => {
                Err(OpenQuote { line: opened.line, found: "the end of the file".into() })
            }
            _ => buffer[..count].iter().try_for_each(|&byte| self.step(byte)),
        };
        followed.map(|()| count).map_err(|open| {
            self.ended = true;
            io::Error::new(io::ErrorKind::InvalidData, open)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(usize, String)> {
        let mut all = Vec::new();
        let end = Quotes::new(text.as_bytes(), b',').read_to_end(&mut all);
        let Err(error) = end else {
            assert_eq!(all, text.as_bytes());
            return None;
        };
        let open = error.downcast::<OpenQuote>().unwrap();
        Some((open.line, open.found))
    }

    #[test]
    fn quotes_that_are_closed_are_passed_on() {
        for text in [
            "a,b\n1,2\n",
            "a,b\n\"one, two\",\"three\nfour\"\n",
            "\"a\",\"b\"\r\n\"say \"\"no\"\"\",2",
            "5\" disk,plain \"words\"\n",
            "\u{feff}\"a\",\"b\"\n",
            "\"\",\"\"\"\"\n",
            "",
        ] {
            assert_eq!(found(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_is_told_where_it_opens() {
        let end = "the end of the file";
        for (text, line, what) in [
            ("a,b\n1,\"open\n3,4\n", 2, end),
            ("a,b\n\n1,\"open\n3,\"four\"\n", 3, "in line 4"),
            ("a,b\n1,\"two\" three\n", 2, "in line 2"),
            ("\"", 1, end),
        ] {
            let (at, found) = found(text).unwrap_or_else(|| panic!("{text:?}"));
            assert_eq!(at, line, "{text:?}: {found}");
            assert!(found.contains(what), "{text:?}: {found}");
        }
    }
}
