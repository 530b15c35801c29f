//! Little-endian fields read in order, and the checks that every table of tensors needs.

use std::collections::HashSet;
use std::fmt::Display;

use crate::error::ErrorKind;
use crate::tensor::TensorInfo;

/// More tensors than any model has. A table takes a few times its bytes once it is read, so the file's size
/// alone would not bound the memory.
pub(crate) const MAX_TENSORS: u64 = 1 << 18;

/// A place in a file from which fields are taken; nothing is ever read past the end.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Fields of `bytes[from..to]`, which is `place` to the user.
    pub(crate) fn section(
        bytes: &'a [u8],
        from: u64,
        to: u64,
        place: impl Display,
    ) -> Result<Self, ErrorKind> {
        let have = bytes.len() as u64;
        let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
        match range.and_then(|(from, to)| Some((bytes.get(..to)?, from))) {
            Some((bytes, at)) if at <= bytes.len() => Ok(Self { bytes, at }),
            Some(_) => Err(ErrorKind::invalid(place.to_string(), format!("an end after {from}"), to)),
            None => Err(ErrorKind::Truncated { place: place.to_string(), need: to, have }),
        }
    }

    /// Bytes from the start of the file.
    pub(crate) fn position(&self) -> u64 {
        self.at as u64
    }

    pub(crate) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, place: impl Display) -> Result<&'a [u8], ErrorKind> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => {
                Err(ErrorKind::Truncated { place: place.to_string(), need: len, have: rest.len() as u64 })
            }
        }
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
    pub(crate) fn text(&mut self, len: u64, place: impl Display + Copy) -> Result<&'a str, ErrorKind> {
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

/// The number of elements of a shape. A shape that only a zero keeps from overflowing is refused too, so that
/// strides of what is believed can always be computed.
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

/// Refuses two tensors that share bytes: in formats without views it is how a small file claims to be large.
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
        assert!(Fields::section(&[0; 4], 3, 2, "s").is_err());
        assert!(Fields::section(&[0; 4], 0, 5, "s").is_err());
        assert!(Fields::section(&[0; 4], u64::MAX, u64::MAX, "s").is_err());
    }

    #[test]
    fn shapes_that_cannot_be_counted() {
        assert_eq!(elements(&[], "s").unwrap(), 1);
        assert_eq!(elements(&[3, 0], "s").unwrap(), 0);
        assert!(elements(&[1 << 40, 1 << 40], "s").is_err());
        assert!(elements(&[0, 1 << 40, 1 << 40], "s").is_err());
    }
}
