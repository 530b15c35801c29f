//! The bytes of one file: read when they are asked for, or in memory from the start.
//!
//! Nothing is mapped. A mapped file that another program truncates kills this process by SIGBUS when a page of it is
//! touched; a read that is too short is an error with a message.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, ErrorKind};
use crate::inputs::open_input;
use crate::memory::room;

/// Bytes of somebody else, who keeps them as long as they are needed: a tensor of a run, an array of another program in this process.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A file's bytes and the name under which errors speak of them.
#[derive(Debug)]
pub(crate) struct Source {
    name: PathBuf,
    bytes: Bytes,
}

enum Bytes {
    File {
        file: File,
        opened: Stamp,
    },
    Memory(Cow<'static, [u8]>),
    /// Pieces that follow each other, each with its end.
    Pieces(Vec<(u64, SharedBytes)>),
    /// So many that do not exist yet.
    Planned(u64),
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File { .. } => "a file",
            Self::Memory(_) => "in memory",
            Self::Pieces(_) => "pieces in memory",
            Self::Planned(_) => "planned",
        })
    }
}

/// What a file looked like when it was opened: a different stamp later means that the file was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    len: u64,
    written: Option<SystemTime>,
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self { len: meta.len(), written: meta.modified().ok() })
    }
}

impl Source {
    /// Opens a file as an input; nothing is read yet.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, open_input)
    }

    /// Opens a file that is not an input, to recognise its format.
    pub(crate) fn look(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, |path| File::open(path))
    }

    fn open_with(path: &Path, open: impl FnOnce(&Path) -> io::Result<File>) -> Result<Self, Error> {
        let at = |e| Error::new(path, ErrorKind::Io(e));
        // Asked before opening: opening a pipe would wait for a writer.
        let meta = std::fs::metadata(path).map_err(at)?;
        if !meta.is_file() {
            return Err(Error::new(path, ErrorKind::Unrecognised { found: "not a regular file".into() }));
        }
        if meta.len() == 0 {
            return Err(Error::new(path, ErrorKind::Unrecognised { found: "the file is empty".into() }));
        }
        let file = open(path).map_err(at)?;
        let opened = Stamp::of(&file).map_err(at)?;
        Ok(Self { name: path.to_owned(), bytes: Bytes::File { file, opened } })
    }

    /// Bytes that are already here: the embedded model, a fuzzer's input.
    pub(crate) fn memory(name: impl Into<PathBuf>, bytes: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { name: name.into(), bytes: Bytes::Memory(bytes.into()) }
    }

    /// Bytes of others, one after the other.
    pub(crate) fn pieces(name: impl Into<PathBuf>, pieces: impl IntoIterator<Item = SharedBytes>) -> Self {
        let mut end = 0;
        let place = |piece: SharedBytes| {
            end += (*piece).as_ref().len() as u64;
            (end, piece)
        };
        Self { name: name.into(), bytes: Bytes::Pieces(pieces.into_iter().map(place).collect()) }
    }

    /// So many bytes that training will write: they have a length, and reading them is an error.
    pub(crate) fn planned(name: impl Into<PathBuf>, len: u64) -> Self {
        Self { name: name.into(), bytes: Bytes::Planned(len) }
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// How many bytes it had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::File { opened, .. } => opened.len,
            Bytes::Memory(bytes) => bytes.len() as u64,
            Bytes::Pieces(pieces) => pieces.last().map_or(0, |(end, _)| *end),
            Bytes::Planned(len) => *len,
        }
    }

    /// Whether reading costs nothing.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.bytes, Bytes::Memory(_) | Bytes::Pieces(_))
    }

    /// The bytes of a range, which errors call `place`: borrowed where they are in memory, else read. The caller has checked
    /// the length.
    pub(crate) fn read(&self, range: Range<u64>, place: impl Display) -> Result<Cow<'_, [u8]>, ErrorKind> {
        let have = self.len();
        if range.start > range.end || range.end > have {
            let (need, have) = (range.end.saturating_sub(range.start), have.saturating_sub(range.start));
            return Err(ErrorKind::Truncated { place: place.to_string(), need, have });
        }
        if let Bytes::Memory(bytes) = &self.bytes {
            // In range, so both ends fit in a usize.
            return Ok(Cow::Borrowed(&bytes[range.start as usize..range.end as usize]));
        }
        if let Bytes::Planned(_) = self.bytes {
            return Err(ErrorKind::Untrained);
        }
        if let Some(bytes) = self.in_one_piece(&range) {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = buffer(range.end - range.start, place)?;
        self.read_into(range.start, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// The first bytes, `most` at the most.
    pub(crate) fn start(&self, most: u64) -> Result<Cow<'_, [u8]>, ErrorKind> {
        self.read(0..most.min(self.len()), "the start of the file")
    }

    /// Fills `out` with the bytes from `at` on.
    pub(crate) fn read_into(&self, at: u64, out: &mut [u8]) -> Result<(), ErrorKind> {
        match &self.bytes {
            Bytes::File { file, opened } => {
                let read = read_exact_at(file, out, at);
                // Checked also after a successful read: a file that was overwritten in place may be half old, half new.
                let now = Stamp::of(file)?;
                match read {
                    _ if now != *opened => Err(ErrorKind::Changed { was: opened.len, now: now.len }),
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.past_the_end(at, out)),
                    read => Ok(read?),
                }
            }
            Bytes::Memory(bytes) => {
                let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..at.checked_add(out.len())?));
                out.copy_from_slice(from.ok_or_else(|| self.past_the_end(at, out))?);
                Ok(())
            }
            Bytes::Pieces(pieces) => {
                let mut left = &mut *out;
                let mut from = at;
                let first = pieces.partition_point(|(end, _)| *end <= at);
                for (end, piece) in pieces.iter().skip(first) {
                    let piece = (**piece).as_ref();
                    let start = piece.len().saturating_sub((end - from) as usize);
                    let take = left.len().min(piece.len() - start);
                    let (now, later) = std::mem::take(&mut left).split_at_mut(take);
                    now.copy_from_slice(&piece[start..start + take]);
                    (left, from) = (later, *end);
                }
                match left.is_empty() {
                    true => Ok(()),
                    false => Err(self.past_the_end(at, out)),
                }
            }
            Bytes::Planned(_) => Err(ErrorKind::Untrained),
        }
    }

    /// The bytes of a range that lies in one of several pieces.
    fn in_one_piece(&self, range: &Range<u64>) -> Option<&[u8]> {
        let Bytes::Pieces(pieces) = &self.bytes else { return None };
        let (end, piece) = pieces.get(pieces.partition_point(|(end, _)| *end <= range.start))?;
        let bytes = (**piece).as_ref();
        let start = end - bytes.len() as u64;
        // Within the piece, so both fit in a usize.
        bytes.get((range.start - start) as usize..range.end.checked_sub(start)? as usize)
    }

    fn past_the_end(&self, at: u64, out: &[u8]) -> ErrorKind {
        let (need, have) = (out.len() as u64, self.len().saturating_sub(at));
        ErrorKind::Truncated { place: format!("bytes from {at}"), need, have }
    }

    /// The bytes of a range one after the other.
    pub(crate) fn stream(&self, range: Range<u64>) -> Stream<'_> {
        Stream { source: self, left: range }
    }

    /// An error about this file.
    pub(crate) fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::new(&self.name, kind)
    }
}

/// A buffer of zeros; too little memory is an error, not an abort.
pub(crate) fn buffer(len: u64, place: impl Display) -> Result<Vec<u8>, ErrorKind> {
    let mut bytes = room(len, place)?;
    // It fits: there is room for as many.
    bytes.resize(len as usize, 0);
    Ok(bytes)
}

/// A range of a source, for decoders that pull.
#[derive(Debug)]
pub(crate) struct Stream<'s> {
    source: &'s Source,
    left: Range<u64>,
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left.end.saturating_sub(self.left.start)).unwrap_or(usize::MAX);
        let take = left.min(out.len());
        let out = &mut out[..take];
        self.source.read_into(self.left.start, out).map_err(into_io)?;
        self.left.start += take as u64;
        Ok(take)
    }
}

impl rawzip::ReaderAt for &Source {
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let left = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let take = left.min(out.len());
        self.read_into(at, &mut out[..take]).map_err(into_io)?;
        Ok(take)
    }
}

/// Wraps an error as an I/O error, for interfaces that know no others; [`from_io`] unwraps it.
fn into_io(kind: ErrorKind) -> io::Error {
    match kind {
        ErrorKind::Io(e) => e,
        kind => io::Error::other(kind),
    }
}

/// The kind of error that a [`Stream`] wrapped, or the plain one.
pub(crate) fn from_io(error: io::Error) -> ErrorKind {
    match error.downcast::<ErrorKind>() {
        Ok(kind) => kind,
        Err(error) => ErrorKind::Io(error),
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !out.is_empty() {
        match file.seek_read(out, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => (out, at) = (&mut out[n..], at + n as u64),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_file_and_memory_give_the_same_bytes() {
        let bytes: Vec<u8> = (0..200).collect();
        let on_disk = file(&bytes);
        for source in [Source::open(on_disk.path()).unwrap(), Source::memory("m", bytes.clone())] {
            assert_eq!(source.len(), 200);
            assert_eq!(source.read(3..7, "it").unwrap().as_ref(), [3, 4, 5, 6]);
            assert_eq!(source.start(1000).unwrap().as_ref(), bytes);
            let mut streamed = Vec::new();
            source.stream(190..200).read_to_end(&mut streamed).unwrap();
            assert_eq!(streamed, bytes[190..]);
            for range in [0..201, 300..301, 0..u64::MAX] {
                assert!(matches!(source.read(range, "it"), Err(ErrorKind::Truncated { .. })));
            }
        }
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_open_is_an_error() {
        let on_disk = file(&[1; 100]);
        let source = Source::open(on_disk.path()).unwrap();
        on_disk.as_file().set_len(10).unwrap();
        let error = source.read(0..100, "it").unwrap_err();
        assert!(matches!(error, ErrorKind::Changed { was: 100, now: 10 }), "{error}");
        // An error also where the bytes of this read still exist.
        assert!(matches!(source.read(0..5, "it"), Err(ErrorKind::Changed { .. })));
        let through = source.stream(0..5).read(&mut [0; 5]).unwrap_err();
        assert!(matches!(from_io(through), ErrorKind::Changed { .. }));
    }

    #[test]
    fn a_file_that_is_written_over_in_place_is_an_error() {
        let on_disk = file(&[1; 100]);
        let source = Source::open(on_disk.path()).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        on_disk.as_file().set_modified(later).unwrap();
        assert!(matches!(source.read(0..5, "it"), Err(ErrorKind::Changed { was: 100, now: 100 })));
    }

    #[test]
    fn pieces_are_read_as_one_run_of_bytes() {
        let piece = |bytes: std::ops::Range<u8>| -> SharedBytes { Arc::new(bytes.collect::<Vec<u8>>()) };
        let source = Source::pieces("held", [piece(0..3), piece(3..3), piece(3..10), piece(10..12)]);
        let all: Vec<u8> = (0..12).collect();
        assert_eq!(source.len(), 12);
        for from in 0..=12 {
            for to in from..=12 {
                let range = from as usize..to as usize;
                let read = source.read(from..to, "it").unwrap();
                assert_eq!(*read, all[range.clone()]);
                let inside = [0..3, 3..10, 10..12].iter().any(|piece| piece.start <= from && to <= piece.end);
                // Nothing is copied within a piece.
                assert!(range.is_empty() || inside == matches!(read, Cow::Borrowed(_)), "{from}..{to}");
            }
        }
        assert!(matches!(source.read(10..13, "it"), Err(ErrorKind::Truncated { .. })));
        assert!(matches!(source.read_into(11, &mut [0; 2]), Err(ErrorKind::Truncated { .. })));
    }

    #[test]
    fn what_is_only_planned_cannot_be_read() {
        let source = Source::planned("recipe", 100);
        assert_eq!(source.len(), 100);
        assert!(matches!(source.read(0..5, "it"), Err(ErrorKind::Untrained)));
        assert!(matches!(source.read_into(0, &mut [0; 5]), Err(ErrorKind::Untrained)));
    }

    #[test]
    fn what_does_not_fit_in_memory_is_an_error() {
        let refused = buffer(u64::MAX, "it").unwrap_err();
        assert!(matches!(refused, ErrorKind::Shortage { .. } | ErrorKind::Memory { .. }), "{refused}");
    }
}
