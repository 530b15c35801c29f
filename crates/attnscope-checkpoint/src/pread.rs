//! Reads large files through one small buffer per thread.

use std::cell::RefCell;
use std::ops::Range;

use crate::error::ErrorKind;
use crate::source::Source;

/// How much is read at once: it fits in a core's own cache, and is large enough that the cost of the system call does not
/// matter.
pub(crate) const BLOCK: usize = 256 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Gives `use_bytes` the bytes of `range`, of which there are at most [`BLOCK`], in this thread's buffer or as
/// they lie in memory. `use_bytes` must not call this function.
pub(crate) fn with<T>(
    source: &Source,
    range: Range<u64>,
    use_bytes: impl FnOnce(&[u8]) -> T,
) -> Result<T, ErrorKind> {
    if source.is_memory() {
        return Ok(use_bytes(&source.read(range.clone(), format_args!("bytes from {}", range.start))?));
    }
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            buffer.resize(len.max(BLOCK), 0);
        }
        let bytes = buffer.get_mut(..len).unwrap_or_default();
        source.read_into(range.start, bytes)?;
        Ok(use_bytes(bytes))
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
