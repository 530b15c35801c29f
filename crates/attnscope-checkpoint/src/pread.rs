//! Reads that leave no page of a large file resident in this process.
//!
//! Pages of a map that have been touched count as this process's memory until the kernel wants them back; a
//! read into a small reused buffer does not, and from the page cache it is faster than faulting pages in.

use std::cell::RefCell;
use std::ops::Range;

use crate::error::ErrorKind;
use crate::source::Source;

/// How much is read at once: it fits in a core's own cache, and a system call costs nothing beside it.
pub(crate) const BLOCK: usize = 256 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Gives `use_bytes` the bytes of `range`, of which there are at most [`BLOCK`], in this thread's buffer or as
/// they lie in memory. `use_bytes` must not come back here.
pub(crate) fn with<T>(
    source: &Source,
    range: Range<u64>,
    use_bytes: impl FnOnce(&[u8]) -> T,
) -> Result<T, ErrorKind> {
    #[cfg(unix)]
    if let Some(file) = source.file() {
        use std::os::unix::fs::FileExt;
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        return BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < len {
                buffer.resize(len.max(BLOCK), 0);
            }
            let bytes = buffer.get_mut(..len).unwrap_or_default();
            file.read_exact_at(bytes, range.start)?;
            Ok(use_bytes(bytes))
        });
    }
    Ok(use_bytes(mapped(source, range)?))
}

/// The bytes of `range` as they lie in the map or in memory.
pub(crate) fn mapped(source: &Source, range: Range<u64>) -> Result<&[u8], ErrorKind> {
    let bytes = source.bytes();
    let ends = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
    ends.and_then(|(start, end)| bytes.get(start..end)).ok_or_else(|| ErrorKind::Truncated {
        place: format!("bytes from {}", range.start),
        need: range.end,
        have: bytes.len() as u64,
    })
}

/// The ranges of at most [`BLOCK`] bytes that make up `range`.
pub(crate) fn blocks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let step = BLOCK as u64;
    let count = range.end.saturating_sub(range.start).div_ceil(step);
    (0..count).map(move |i| {
        let start = range.start + i * step;
        start..range.end.min(start + step)
    })
}
