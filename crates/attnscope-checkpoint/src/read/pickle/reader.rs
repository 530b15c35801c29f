//! The bytes of a pickle and the arguments of its opcodes.

use std::borrow::Cow;

use super::Node;
use crate::error::ErrorKind;
use crate::read::clip;

/// Text that must be decoded is copied, so that a long one may cost several times its bytes. No text that is needed is so long;
/// Python 2 writes bytes as text.
const MAX_DECODED: usize = 64 << 10;

/// A place in the pickle. Nothing is read past the end.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The file's name for the pickle.
    name: &'a str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'a str, bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, name }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn invalid(&self, expected: &str, found: impl std::fmt::Display) -> ErrorKind {
        ErrorKind::invalid(format!("{} before byte {}", self.name, self.at), expected, found)
    }

    pub(super) fn take(&mut self, n: u64) -> Result<&'a [u8], ErrorKind> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match usize::try_from(n).ok().and_then(|n| rest.get(..n)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => {
                let place = format!("{} at byte {}", self.name, self.at);
                Err(ErrorKind::Truncated { place, need: n, have: rest.len() as u64 })
            }
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ErrorKind> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ErrorKind> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, ErrorKind> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, ErrorKind> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, ErrorKind> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A text argument of protocol 0, without its line end.
    pub(super) fn line(&mut self) -> Result<&'a [u8], ErrorKind> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(end) = rest.iter().position(|&b| b == b'\n') else {
            let place = format!("{}: a line at byte {}", self.name, self.at);
            return Err(ErrorKind::Truncated { place, need: rest.len() as u64 + 1, have: rest.len() as u64 });
        };
        let line = self.take(end as u64)?;
        self.at += 1;
        Ok(line)
    }

    pub(super) fn text_line(&mut self) -> Result<Cow<'a, str>, ErrorKind> {
        let line = self.line()?;
        if line.len() > MAX_DECODED {
            let found = format!("{} bytes", line.len());
            return Err(self.invalid(&format!("a line of at most {MAX_DECODED} bytes"), found));
        }
        Ok(String::from_utf8_lossy(line))
    }

    /// Text of a given length. Python may write lone surrogates, which are not UTF-8; they become replacement marks.
    pub(super) fn text(&mut self, n: u64) -> Result<Node<'a>, ErrorKind> {
        let bytes = self.take(n)?;
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => Node::Str(Cow::Borrowed(text)),
            Err(_) if bytes.len() > MAX_DECODED => Node::Bytes,
            Err(_) => Node::Str(String::from_utf8_lossy(bytes)),
        })
    }

    /// A number as text, parsed.
    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Result<T, ErrorKind> {
        let text = self.text_line()?;
        text.trim().parse().map_err(|_| self.invalid("a number", format!("{:?}", clip(&text))))
    }

    /// `I` and `L`: a number, or one of protocol 0's two spellings of truth. One that fits no `i64` stays text.
    pub(super) fn int_line(&mut self) -> Result<Node<'a>, ErrorKind> {
        let text = self.text_line()?;
        let digits = text.trim().trim_end_matches('L');
        Ok(match (text.as_ref(), digits.parse()) {
            ("00", _) => Node::Bool(false),
            ("01", _) => Node::Bool(true),
            (_, Ok(n)) => Node::Int(n),
            _ if digits.bytes().all(|b| b.is_ascii_digit() || b == b'-') => Node::Str(text),
            _ => return Err(self.invalid("a number", format!("{:?}", clip(&text)))),
        })
    }

    /// A two's complement integer of any length.
    pub(super) fn long(&mut self, n: u64) -> Result<Node<'a>, ErrorKind> {
        let bytes = self.take(n)?;
        Ok(match bytes.last() {
            None => Node::Int(0),
            Some(_) if bytes.len() > 8 => Node::Long(bytes),
            Some(last) => {
                let mut whole = if last & 0x80 == 0 { [0; 8] } else { [0xff; 8] };
                whole.iter_mut().zip(bytes).for_each(|(out, &b)| *out = b);
                Node::Int(i64::from_le_bytes(whole))
            }
        })
    }

    /// `S`: a quoted text with Python's escapes.
    pub(super) fn quoted_line(&mut self) -> Result<Node<'a>, ErrorKind> {
        let line = self.line()?.trim_ascii();
        let inner = match line {
            [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
            _ => {
                return Err(self.invalid(
                    "a quoted text",
                    clip(&String::from_utf8_lossy(line.get(..MAX_DECODED).unwrap_or(line))),
                ));
            }
        };
        Ok(unescape(inner))
    }

    /// `V`: a text whose line ends and other characters are written `\uXXXX`.
    pub(super) fn unicode_line(&mut self) -> Result<Node<'a>, ErrorKind> {
        Ok(unescape(self.line()?))
    }
}

/// Python's escapes. Bytes above 127 are Latin-1 in both protocol 0 texts, as Python reads them.
fn unescape(bytes: &[u8]) -> Node<'_> {
    if let (true, Ok(text)) = (bytes.is_ascii() && !bytes.contains(&b'\\'), std::str::from_utf8(bytes)) {
        return Node::Str(Cow::Borrowed(text));
    }
    if bytes.len() > MAX_DECODED {
        return Node::Bytes;
    }
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let Some((&kind, after)) = after.split_first().filter(|_| first == b'\\') else {
            out.push(char::from(first));
            continue;
        };
        let digits = match kind {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            _ => 0,
        };
        rest = after.get(digits..).unwrap_or_default();
        match kind {
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            _ if digits > 0 => out.push(hex(after.get(..digits))),
            other => out.push(char::from(other)),
        }
    }
    Node::Str(Cow::Owned(out))
}

fn hex(digits: Option<&[u8]>) -> char {
    digits
        .and_then(|d| std::str::from_utf8(d).ok())
        .and_then(|d| u32::from_str_radix(d, 16).ok())
        .and_then(char::from_u32)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}
