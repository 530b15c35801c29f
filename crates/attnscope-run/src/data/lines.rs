//! Lines of a file, plain or compressed, with their numbers.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use attnscope_checkpoint::open_input;
use flate2::bufread::MultiGzDecoder;

use super::{LineError, RowFault};

/// No example is longer. A compressed file may hold a line without end.
const MOST_LINE: u64 = 16 << 20;

/// What gzip files begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The bytes of a file, plain or compressed: which, its first bytes say.
///
/// # Errors
/// When it cannot be read.
pub fn open_plain_or_gzip(file: &Path) -> Result<Box<dyn BufRead>, LineError> {
    let io = |why| LineError::Io { file: file.to_owned(), why };
    let mut reader = BufReader::with_capacity(1 << 16, open_input(file).map_err(io)?);
    let compressed = reader.fill_buf().map_err(io)?.starts_with(&GZIP);
    Ok(match compressed {
        true => Box::new(BufReader::new(MultiGzDecoder::<BufReader<File>>::new(reader))),
        false => Box::new(reader),
    })
}

/// The lines of a file, without their ends. A byte order mark is no part of the first.
pub struct Lines {
    reader: Box<dyn BufRead>,
    file: PathBuf,
    number: usize,
}

impl Lines {
    /// Those of a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(file: &Path) -> Result<Self, LineError> {
        Ok(Self { reader: open_plain_or_gzip(file)?, file: file.to_owned(), number: 0 })
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The next line, or nothing at the end.
    fn line(&mut self) -> Result<Option<(usize, String)>, LineError> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(MOST_LINE).read_until(b'\n', &mut bytes);
        if read.map_err(|why| LineError::reading(&self.file, why))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let ended = bytes.pop_if(|last| *last == b'\n').is_some();
        if !ended && bytes.len() as u64 == MOST_LINE {
            return Err(LineError::TooLong { file: self.file.clone(), line: self.number });
        }
        bytes.pop_if(|last| *last == b'\r');
        if self.number == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let found = format!("other bytes at byte {}", e.utf8_error().valid_up_to() + 1);
            RowFault::new(&self.file, self.number, "UTF-8", found)
        })?;
        Ok(Some((self.number, text)))
    }
}

impl Iterator for Lines {
    type Item = Result<(usize, String), LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.line().transpose()
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("file", &self.file)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
