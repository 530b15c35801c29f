//! Little-endian fields read in order, and the checks that every table of tensors needs.

use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Range;

use crate::error::ErrorKind;
use crate::source::{self, Source};
use crate::tensor::TensorInfo;

/// More tensors than any model has. In memory a table takes a few times its bytes, so the file's size alone would not bound it.
pub(crate) const MAX_TENSORS: u64 = 1 << 18;

/// What is read from a file at once. Headers are short and their fields shorter.
const WINDOW: u64 = 16 << 10;

/// A place in a file from which fields are taken; nothing is ever read past the end.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    held: Held<'a>,
    at: u64,
    end: u64,
}

#[derive(Debug)]
enum Held<'a> {
    Slice(&'a [u8]),
    /// The bytes from `from` on that were read last.
    Window {
        source: &'a Source,
        bytes: Vec<u8>,
        from: u64,
    },
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { held: Held::Slice(bytes), at: 0, end: bytes.len() as u64 }
    }

    /// Fields of a range of a file, which errors call `place`.
    pub(crate) fn of(source: &'a Source, range: Range<u64>, place: impl Display) -> Result<Self, ErrorKind> {
        let have = source.len();
        if range.end > have {
            return Err(ErrorKind::Truncated { place: place.to_string(), need: range.end, have });
        }
        if range.start > range.end {
            let expected = format!("an end after {}", range.start);
            return Err(ErrorKind::invalid(place.to_string(), expected, range.end));
        }
        let held = Held::Window { source, bytes: Vec::new(), from: range.start };
        Ok(Self { held, at: range.start, end: range.end })
    }

    /// Bytes from the start of the file.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    pub(crate) fn left(&self) -> u64 {
        self.end - self.at
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, place: impl Display) -> Result<&[u8], ErrorKind> {
        let at = self.at;
        self.skip(len, &place)?;
        // In range: the ends of a slice fit in a usize.
        match &mut self.held {
            Held::Slice(bytes) => Ok(&bytes[at as usize..(at + len) as usize]),
            Held::Window { source, bytes, from } => {
                if at < *from || at + len > *from + bytes.len() as u64 {
                    let end = self.end.min(at.saturating_add(len.max(WINDOW)));
                    bytes.clear();
                    *bytes = source::buffer(end - at, place)?;
                    source.read_into(at, bytes)?;
                    *from = at;
                }
                let start = (at - *from) as usize;
                Ok(&bytes[start..start + len as usize])
            }
        }
    }

    /// Passes over the next `len` bytes, which are not read.
    pub(crate) fn skip(&mut self, len: u64, place: impl Display) -> Result<(), ErrorKind> {
        if len > self.left() {
            return Err(ErrorKind::Truncated { place: place.to_string(), need: len, have: self.left() });
        }
        self.at += len;
        Ok(())
    }

    fn array<const N: usize>(&mut self, place: impl Display) -> Result<[u8; N], ErrorKind> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, place)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self, place: impl Display) -> Result<u8, ErrorKind> {
        Ok(u8::from_le_bytes(self.array(place)?))
    }

    pub(crate) fn u16(&mut self, place: impl Display) -> Result<u16, ErrorKind> {
        Ok(u16::from_le_bytes(self.array(place)?))
    }

    pub(crate) fn u32(&mut self, place: impl Display) -> Result<u32, ErrorKind> {
        Ok(u32::from_le_bytes(self.array(place)?))
    }

    pub(crate) fn u64(&mut self, place: impl Display) -> Result<u64, ErrorKind> {
        Ok(u64::from_le_bytes(self.array(place)?))
    }

    pub(crate) fn i32(&mut self, place: impl Display) -> Result<i32, ErrorKind> {
        Ok(i32::from_le_bytes(self.array(place)?))
    }

    /// A signed count or size that must not be negative.
    pub(crate) fn natural(&mut self, place: impl Display + Copy) -> Result<u64, ErrorKind> {
        let value = self.i32(place)?;
        u64::try_from(value).map_err(|_| ErrorKind::invalid(place.to_string(), "0 or more", value))
    }

    /// The next `len` bytes as text.
    pub(crate) fn text(&mut self, len: u64, place: impl Display + Copy) -> Result<&str, ErrorKind> {
        let bytes = self.take(len, place)?;
        std::str::from_utf8(bytes).map_err(|e| {
            let at = e.valid_up_to();
            ErrorKind::invalid(place.to_string(), "UTF-8", format!("another byte after {at} bytes"))
        })
    }

    /// Refuses a count of entries that cannot fit in what is left of the file, each taking at least
    /// `smallest` bytes, before anything is reserved for them.
    pub(crate) fn check_count(
        &self,
        count: u64,
        smallest: u64,
        place: impl Display,
    ) -> Result<(), ErrorKind> {
        match count.checked_mul(smallest) {
            Some(need) if need <= self.left() => Ok(()),
            need => Err(ErrorKind::Truncated {
                place: place.to_string(),
                need: need.unwrap_or(u64::MAX),
                have: self.left(),
            }),
        }
    }
}

/// The number of elements of a shape. A shape that overflows but for a zero dimension is refused, too, so that strides can
/// always be computed.
pub(crate) fn elements(shape: &[usize], place: impl Display) -> Result<usize, ErrorKind> {
    let nonzero = shape.iter().filter(|&&d| d != 0).try_fold(1usize, |n, &d| n.checked_mul(d));
    match nonzero {
        Some(_) if shape.contains(&0) => Ok(0),
        Some(n) => Ok(n),
        None => Err(ErrorKind::invalid(
            place.to_string(),
            "a shape whose size can be counted",
            format!("{shape:?}"),
        )),
    }
}

/// Refuses two tensors of one name.
pub(crate) fn check_unique(tensors: &[TensorInfo]) -> Result<(), ErrorKind> {
    let mut seen = HashSet::with_capacity(tensors.len());
    match tensors.iter().find(|t| !seen.insert(t.name.as_str())) {
        Some(twice) => Err(ErrorKind::Duplicate { name: twice.name.clone() }),
        None => Ok(()),
    }
}

/// Refuses two tensors that share bytes: in formats without views, that is how a small file pretends to be large.
pub(crate) fn check_disjoint(tensors: &[TensorInfo]) -> Result<(), ErrorKind> {
    let mut by_place: Vec<_> = tensors.iter().filter(|t| !t.place.range.is_empty()).collect();
    by_place.sort_by_key(|t| t.place.range.start);
    for pair in by_place.windows(2) {
        if let [a, b] = pair
            && b.place.range.start < a.place.range.end
        {
            return Err(ErrorKind::invalid(
                format!("tensor {:?}", b.name),
                format!("bytes of its own, from {} on", a.place.range.end),
                format!("{}, inside tensor {:?}", b.place.range.start, a.name),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_past_the_end() {
        let mut f = Fields::new(&[1, 2, 3]);
        assert_eq!(f.u16("a").unwrap(), 0x0201);
        assert!(matches!(f.u16("b"), Err(ErrorKind::Truncated { need: 2, have: 1, .. })));
        assert!(f.take(u64::MAX, "c").is_err());
        assert_eq!(f.u8("d").unwrap(), 3);
        assert_eq!(f.left(), 0);
    }

    #[test]
    fn a_section_lies_inside_its_file() {
        let source = Source::memory("m", vec![0; 4]);
        let section = |from: u64, to: u64| Fields::of(&source, from..to, "s");
        assert!(section(3, 2).is_err() && section(0, 5).is_err() && section(u64::MAX, u64::MAX).is_err());
        let mut f = section(1, 4).unwrap();
        assert_eq!((f.position(), f.left()), (1, 3));
        assert!(f.take(4, "past its end").is_err());
    }

    /// Fields that lie across the end of what was read at once.
    #[test]
    fn windows_join() {
        let bytes: Vec<u8> = (0..WINDOW as u32).flat_map(u32::to_le_bytes).collect();
        let source = Source::memory("m", bytes);
        let mut f = Fields::of(&source, 2..source.len(), "s").unwrap();
        f.skip(2, "the rest of the first").unwrap();
        for i in 1..WINDOW as u32 {
            assert_eq!(f.u32("a").unwrap(), i);
        }
        assert_eq!(f.left(), 0);
    }

    #[test]
    fn shapes_that_cannot_be_counted() {
        assert_eq!(elements(&[], "s").unwrap(), 1);
        assert_eq!(elements(&[3, 0], "s").unwrap(), 0);
        assert!(elements(&[1 << 40, 1 << 40], "s").is_err());
        assert!(elements(&[0, 1 << 40, 1 << 40], "s").is_err());
    }
}
