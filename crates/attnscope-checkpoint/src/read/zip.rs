//! Zip archives, as far as checkpoints use them. The directory is walked entry by entry with `rawzip`, so that an
//! entry given twice is seen; the other zip crates keep a map, and the last one wins unseen.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;

use crate::error::ErrorKind;
use crate::read::clip;
use crate::source::Source;

/// No checkpoint comes near this; it bounds what a directory may cost.
const MAX_ENTRIES: usize = 1 << 18;

/// A deflate stream cannot grow by more than 1032 : 1, so a larger claim is a lie.
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
pub(crate) fn entries(bytes: &[u8]) -> Result<Vec<Entry>, ErrorKind> {
    let archive = rawzip::ZipArchive::from_slice(bytes).map_err(|e| directory(&e))?;
    let mut entries = Vec::new();
    let mut walk = archive.entries();
    while let Some(record) = walk.next_entry().map_err(|e| directory(&e))? {
        if entries.len() == MAX_ENTRIES {
            let expected = format!("at most {MAX_ENTRIES} entries");
            return Err(ErrorKind::invalid("zip directory", expected, "more"));
        }
        if !record.is_dir() {
            entries.push(Entry::new(&record));
        }
    }
    let mut seen = HashSet::with_capacity(entries.len());
    match entries.iter().find(|e: &&Entry| !seen.insert(e.name.as_str())) {
        Some(e) => {
            Err(ErrorKind::invalid("zip directory", "each entry once", format!("{:?} twice", clip(&e.name))))
        }
        None => Ok(entries),
    }
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

    /// The bytes in the file that hold this entry, packed or not. Its sizes are believable afterwards.
    pub(crate) fn locate(&self, source: &Source) -> Result<Range<u64>, ErrorKind> {
        self.check_sizes()?;
        let mut header = [0u8; LOCAL_HEADER as usize];
        read_at(source, self.header, &mut header).map_err(|e| self.outside(source, e))?;
        let [b'P', b'K', 3, 4, .., n0, n1, x0, x1] = header else {
            return Err(ErrorKind::invalid(self.place(), "a local header", "other bytes"));
        };
        let names = u64::from(u16::from_le_bytes([n0, n1])) + u64::from(u16::from_le_bytes([x0, x1]));
        let have = source.bytes().len() as u64;
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
        let packed = slice(source, self.locate(source)?).unwrap_or_default();
        if self.method == Method::Stored {
            return Ok(Cow::Borrowed(packed));
        }
        let bytes = inflate(packed, self.size)
            .map_err(|e| ErrorKind::invalid(self.place(), "a deflate stream", e))?;
        if bytes.len() as u64 != self.size {
            let have = bytes.len() as u64;
            return Err(ErrorKind::Truncated { place: self.place(), need: self.size, have });
        }
        Ok(Cow::Owned(bytes))
    }

    /// The first unpacked bytes, fewer than `most` only if the entry ends before.
    pub(crate) fn start<'s>(&self, source: &'s Source, most: u64) -> Result<Cow<'s, [u8]>, ErrorKind> {
        let range = self.locate(source)?;
        match self.method {
            Method::Stored => {
                let end = range.end.min(range.start.saturating_add(most));
                Ok(Cow::Borrowed(slice(source, range.start..end).unwrap_or_default()))
            }
            _ => inflate(slice(source, range).unwrap_or_default(), most.min(self.size))
                .map(Cow::Owned)
                .map_err(|e| ErrorKind::invalid(self.place(), "a deflate stream", e)),
        }
    }

    /// How errors speak of this entry.
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

    fn outside(&self, source: &Source, error: std::io::Error) -> ErrorKind {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                let have = (source.bytes().len() as u64).saturating_sub(self.header);
                ErrorKind::Truncated { place: self.place(), need: LOCAL_HEADER, have }
            }
            _ => ErrorKind::Io(error),
        }
    }
}

/// What a broken directory means to somebody who has only seen the file.
fn directory(error: &rawzip::Error) -> ErrorKind {
    match error.kind() {
        rawzip::ErrorKind::MissingEndOfCentralDirectory | rawzip::ErrorKind::Eof => {
            ErrorKind::Truncated { place: "zip directory, at the end of the file".into(), need: 22, have: 0 }
        }
        _ => ErrorKind::invalid("zip directory", "a list of entries", error),
    }
}

fn inflate(packed: &[u8], most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    flate2::read::DeflateDecoder::new(packed).take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The bytes of a range that has been checked against the file.
pub(crate) fn slice(source: &Source, range: Range<u64>) -> Option<&[u8]> {
    source.bytes().get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// Reads a local header with a system call where there is a file: touching a map brings in the 64 kB around each
/// header, which for a thousand storages is more memory than the whole listing.
fn read_at(source: &Source, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
    #[cfg(unix)]
    if let Some(file) = source.file() {
        return std::os::unix::fs::FileExt::read_exact_at(file, out, offset);
    }
    let end = offset.saturating_add(out.len() as u64);
    let bytes = slice(source, offset..end).ok_or(std::io::ErrorKind::UnexpectedEof)?;
    out.copy_from_slice(bytes);
    Ok(())
}
