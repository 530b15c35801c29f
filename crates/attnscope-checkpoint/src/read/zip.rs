//! Zip archives, as far as checkpoints use them. The directory is walked entry by entry with `rawzip`, so that an entry given
//! twice is an error; other zip crates keep a map, in which the last one silently wins.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::ops::Range;

use flate2::read::DeflateDecoder;

use crate::error::ErrorKind;
use crate::pread;
use crate::read::clip;
use crate::source::{self, Source};

/// Far more than any checkpoint has; it bounds the memory of the directory.
const MAX_ENTRIES: usize = 1 << 18;

/// A deflate stream cannot grow by more than 1032 : 1, so a larger claim is false.
const DEFLATE_RATIO: u64 = 1032;

/// The fixed part of a local header.
const LOCAL_HEADER: u64 = 30;

/// One file in the archive, from the central directory alone.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) method: Method,
    /// Bytes once unpacked.
    pub(crate) size: u64,
    packed: u64,
    header: u64,
}

/// How an entry is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Stored,
    Deflated,
    /// By its number; an error only if the entry is needed.
    Other(u16),
    Encrypted,
}

/// The entries of the archive in the order of its directory; folders are left out.
pub(crate) fn entries(source: &Source) -> Result<Vec<Entry>, ErrorKind> {
    let mut buffer = vec![0; rawzip::MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let archive = rawzip::ZipLocator::new()
        .locate_in_reader(source, &mut buffer, source.len())
        .map_err(|(_, e)| directory(e))?;
    let mut entries = Vec::new();
    let mut walk = archive.entries(&mut buffer);
    while let Some(record) = walk.next_entry().map_err(directory)? {
        if entries.len() == MAX_ENTRIES {
            let expected = format!("at most {MAX_ENTRIES} entries");
            return Err(ErrorKind::invalid("zip directory", expected, "more"));
        }
        if !record.is_dir() {
            entries.push(Entry::new(&record));
        }
    }
    let mut seen = HashSet::with_capacity(entries.len());
    if let Some(e) = entries.iter().find(|e: &&Entry| !seen.insert(e.name.as_str())) {
        let found = format!("{:?} twice", clip(&e.name));
        return Err(ErrorKind::invalid("zip directory", "each entry once", found));
    }
    check_disjoint(&entries)?;
    Ok(entries)
}

/// Refuses entries that share bytes: that is how a small archive pretends to be large.
fn check_disjoint(entries: &[Entry]) -> Result<(), ErrorKind> {
    let mut by_place: Vec<&Entry> = entries.iter().collect();
    by_place.sort_by_key(|e| e.header);
    for pair in by_place.windows(2) {
        if let [a, b] = pair
            && b.header < a.least_end()
        {
            let expected = format!("bytes of its own, from {} on", a.least_end());
            let found = format!("{}, inside {}", b.header, a.place());
            return Err(ErrorKind::invalid(b.place(), expected, found));
        }
    }
    Ok(())
}

impl Entry {
    fn new(record: &rawzip::ZipFileHeaderRecord<'_>) -> Self {
        let method = match record.compression_method() {
            _ if record.flags().is_encrypted() => Method::Encrypted,
            rawzip::CompressionMethod::STORE => Method::Stored,
            rawzip::CompressionMethod::DEFLATE => Method::Deflated,
            other => Method::Other(other.as_u16()),
        };
        Self {
            name: String::from_utf8_lossy(record.file_path().as_bytes()).into_owned(),
            method,
            size: record.uncompressed_size_hint(),
            packed: record.compressed_size_hint(),
            header: record.local_header_offset(),
        }
    }

    /// Where it ends at the earliest: its local header may have fields that the directory does not tell of.
    fn least_end(&self) -> u64 {
        self.header.saturating_add(LOCAL_HEADER).saturating_add(self.packed)
    }

    /// The bytes in the file that hold this entry, packed or not, after a check of its sizes.
    pub(crate) fn locate(&self, source: &Source) -> Result<Range<u64>, ErrorKind> {
        self.check_sizes()?;
        let end = self.header.saturating_add(LOCAL_HEADER);
        let header = source.read(self.header..end, self.place())?;
        let [b'P', b'K', 3, 4, .., n0, n1, x0, x1] = *header else {
            return Err(ErrorKind::invalid(self.place(), "a local header", "other bytes"));
        };
        let names = u64::from(u16::from_le_bytes([n0, n1])) + u64::from(u16::from_le_bytes([x0, x1]));
        let have = source.len();
        let start = self.header.saturating_add(LOCAL_HEADER + names);
        let end = start.saturating_add(self.packed);
        if end > have {
            let have = have.saturating_sub(start);
            return Err(ErrorKind::Truncated { place: self.place(), need: self.packed, have });
        }
        Ok(start..end)
    }

    /// The unpacked bytes: the file's own where they are stored, else inflated, at most `cap` of them.
    pub(crate) fn unpack<'s>(&self, source: &'s Source, cap: u64) -> Result<Cow<'s, [u8]>, ErrorKind> {
        if self.size > cap {
            return Err(ErrorKind::TooLarge { place: self.place(), found: self.size, cap });
        }
        let bytes = self.start(source, self.size)?;
        if bytes.len() as u64 != self.size {
            let have = bytes.len() as u64;
            return Err(ErrorKind::Truncated { place: self.place(), need: self.size, have });
        }
        Ok(bytes)
    }

    /// The first unpacked bytes, fewer than `most` only if the entry ends before.
    pub(crate) fn start<'s>(&self, source: &'s Source, most: u64) -> Result<Cow<'s, [u8]>, ErrorKind> {
        let range = self.locate(source)?;
        if self.method == Method::Stored {
            return source.read(range.start..range.end.min(range.start.saturating_add(most)), self.place());
        }
        let mut bytes = Vec::new();
        let most = most.min(self.size);
        DeflateDecoder::new(source.stream(range))
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(|e| self.not_inflated(e))?;
        Ok(Cow::Owned(bytes))
    }

    /// Writes the unpacked bytes in pieces, and returns how many there were: at most `most` + 1.
    pub(crate) fn copy(&self, source: &Source, most: u64, into: &mut impl Write) -> Result<u64, ErrorKind> {
        let range = self.locate(source)?;
        let packed = source.stream(range);
        let mut bytes: Box<dyn Read + '_> = match self.method {
            Method::Stored => Box::new(packed),
            _ => Box::new(DeflateDecoder::new(packed)),
        };
        let mut buffer = vec![0; pread::BLOCK];
        let mut copied = 0;
        while copied <= most {
            let piece = bytes.read(&mut buffer).map_err(|e| self.not_inflated(e))?;
            if piece == 0 {
                break;
            }
            into.write_all(&buffer[..piece]).map_err(ErrorKind::Write)?;
            copied += piece as u64;
        }
        Ok(copied)
    }

    fn not_inflated(&self, error: std::io::Error) -> ErrorKind {
        match source::from_io(error) {
            ErrorKind::Io(e) => ErrorKind::invalid(self.place(), "a deflate stream", e),
            other => other,
        }
    }

    /// The name of this entry in errors.
    pub(crate) fn place(&self) -> String {
        format!("entry {:?}", clip(&self.name))
    }

    fn check_sizes(&self) -> Result<(), ErrorKind> {
        let most = match self.method {
            Method::Stored if self.size != self.packed => {
                let found = format!("{} bytes packed, {} unpacked", self.packed, self.size);
                return Err(ErrorKind::invalid(self.place(), "equal sizes for stored bytes", found));
            }
            Method::Stored => return Ok(()),
            Method::Deflated => self.packed.saturating_mul(DEFLATE_RATIO),
            Method::Encrypted => return Err(self.unsupported("is encrypted")),
            Method::Other(n) => return Err(self.unsupported(&format!("is packed with zip method {n}"))),
        };
        if self.size > most {
            let expected = format!("at most {most} bytes out of {} deflated ones", self.packed);
            return Err(ErrorKind::invalid(self.place(), expected, self.size));
        }
        Ok(())
    }

    fn unsupported(&self, what: &str) -> ErrorKind {
        ErrorKind::Unsupported {
            what: format!("{} {what}", self.place()),
            help: "write the file again with stored or deflated entries".into(),
        }
    }
}

/// Explains a broken directory in terms of the file.
fn directory(error: rawzip::Error) -> ErrorKind {
    match error.kind() {
        rawzip::ErrorKind::MissingEndOfCentralDirectory | rawzip::ErrorKind::Eof => {
            ErrorKind::NoDirectory { what: "zip directory" }
        }
        rawzip::ErrorKind::IO(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            ErrorKind::NoDirectory { what: "zip directory" }
        }
        rawzip::ErrorKind::IO(_) => match error.into_kind() {
            rawzip::ErrorKind::IO(e) => source::from_io(e),
            kind => ErrorKind::invalid("zip directory", "a list of entries", rawzip::Error::from(kind)),
        },
        _ => ErrorKind::invalid("zip directory", "a list of entries", error),
    }
}
