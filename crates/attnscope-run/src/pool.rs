//! Buffers that are reused: new pages cost more than most kernels that fill them.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use memmap2::MmapMut;

use crate::error::RunError;

/// From this size on, in elements, a buffer has its own pages, huge ones where the system has them.
const LARGE: usize = 1 << 20;

/// Free buffers. Clones share one pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Stock>>);

/// What a pool has, and what it has lent. It keeps no more than the last pass used at once.
#[derive(Debug, Default)]
struct Stock {
    /// The one that came back last is the last.
    free: Vec<Memory>,
    /// Elements of what others hold.
    lent: usize,
    /// The most of that since the last pass was over.
    most: usize,
}

impl Stock {
    /// Takes a buffer that is large enough, and not so large that keeping it would be a waste.
    fn take(&mut self, len: usize, largest: usize) -> Option<Memory> {
        let sizes = self.free.iter().enumerate().map(|(i, memory)| (memory.len(), i));
        let best = sizes.filter(|&(size, _)| size >= len && size <= largest).min();
        best.map(|(_, i)| self.free.remove(i))
    }

    fn lend(&mut self, len: usize) {
        self.lent += len;
        self.most = self.most.max(self.lent);
    }

    /// Gives back to the system what is more than a pass used at once, what came back first before the rest.
    fn trim(&mut self) {
        let mut more = self.free.iter().map(Memory::len).sum::<usize>().saturating_sub(self.most);
        self.free.retain(|memory| {
            let goes = more > 0;
            more = more.saturating_sub(if goes { memory.len() } else { 0 });
            !goes
        });
        self.most = self.lent;
    }
}

/// A piece of memory.
#[derive(Debug)]
enum Memory {
    Small(Vec<f32>),
    Large(MmapMut),
}

/// Bytes that could not be allocated. The need of a pass is checked before it starts, so this is rare; it unwinds from the
/// kernel to the pass, which returns it as an error.
#[derive(Debug)]
struct OutOfMemory(u64);

/// Turns a failed allocation during `work` into an error. Its unfinished results must not be read.
pub(crate) fn catching<T>(work: impl FnOnce() -> T) -> Result<T, RunError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Ok(result),
        Err(panic) => match panic.downcast::<OutOfMemory>() {
            Ok(missing) => Err(RunError::OutOfMemory { need: missing.0 }),
            Err(panic) => resume_unwind(panic),
        },
    }
}

fn out_of_memory(len: usize) -> ! {
    resume_unwind(Box::new(OutOfMemory((len as u64).saturating_mul(4))))
}

impl Memory {
    fn new(len: usize) -> Self {
        if len < LARGE {
            let mut values = Vec::new();
            if values.try_reserve_exact(len).is_err() {
                out_of_memory(len);
            }
            values.resize(len, 0.0);
            return Self::Small(values);
        }
        let map = len.checked_mul(size_of::<f32>()).map(MmapMut::map_anon);
        let Some(Ok(map)) = map else { out_of_memory(len) };
        // Pages of two megabytes instead of four kilobytes: a hint, ignored where huge pages are off.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Self::Large(map)
    }

    /// How many elements there is room for.
    fn len(&self) -> usize {
        self.values().len()
    }

    fn values(&self) -> &[f32] {
        match self {
            Self::Small(values) => values,
            Self::Large(map) => pulp::bytemuck::cast_slice(map),
        }
    }

    fn values_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Small(values) => values,
            Self::Large(map) => pulp::bytemuck::cast_slice_mut(map),
        }
    }
}

impl Pool {
    /// A buffer of that length. Its contents are arbitrary.
    pub(crate) fn take(&self, len: usize) -> Buffer {
        self.take_of(len, len.max(1 << 12).saturating_mul(2).saturating_add(1))
    }

    /// The same for values that somebody may keep: in memory of just that size.
    pub(crate) fn take_to_keep(&self, len: usize) -> Buffer {
        self.take_of(len, len.saturating_add(len / 64))
    }

    fn take_of(&self, len: usize, largest: usize) -> Buffer {
        if len == 0 {
            return Buffer::default();
        }
        let memory = self.stock().take(len, largest);
        let memory = memory.unwrap_or_else(|| Memory::new(len));
        self.stock().lend(memory.len());
        Buffer { memory: Some(memory), len, home: Arc::downgrade(&self.0) }
    }

    /// Called when a pass is over: what it did not need goes back to the system.
    pub(crate) fn pass_is_over(&self) {
        self.stock().trim();
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of that length that holds zeros.
    pub(crate) fn take_zeroed(&self, len: usize) -> Buffer {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }
}

/// A buffer, which returns to its pool when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Option<Memory>,
    len: usize,
    home: Weak<Mutex<Stock>>,
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.memory.as_ref().map_or(&[], |memory| &memory.values()[..self.len])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory.values_mut()[..self.len])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(memory), Some(home)) = (self.memory.take(), self.home.upgrade()) {
            let mut stock = home.lock().unwrap_or_else(PoisonError::into_inner);
            stock.lent = stock.lent.saturating_sub(memory.len());
            stock.free.push(memory);
        }
    }
}

/// The shared values of a tensor; the executor reuses their memory when the last owner drops them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Option<Arc<Buffer>>);

impl Shared {
    pub(crate) fn new(buffer: Buffer) -> Self {
        Self(Some(Arc::new(buffer)))
    }

    /// The values to write over: the same memory where nobody else holds it, else a copy.
    pub(crate) fn into_buffer(self, pool: &Pool) -> Buffer {
        let Some(buffer) = self.0 else { return Buffer::default() };
        Arc::try_unwrap(buffer).unwrap_or_else(|held| {
            let mut copy = pool.take(held.len());
            copy.copy_from_slice(&held);
            copy
        })
    }
}

impl From<Vec<f32>> for Shared {
    fn from(values: Vec<f32>) -> Self {
        let len = values.len();
        Self::new(Buffer { memory: Some(Memory::Small(values)), len, home: Weak::new() })
    }
}

impl Deref for Shared {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.0.as_deref().map_or(&[], |buffer| buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_nobody_holds_it() {
        let pool = Pool::default();
        for len in [5000, LARGE + 3] {
            let mut buffer = pool.take(len);
            buffer.fill(7.0);
            let (first, second) = (Shared::new(buffer), pool.take_zeroed(len));
            let copy = first.clone();
            assert!(second.iter().all(|&x| x == 0.0) && copy.iter().all(|&x| x == 7.0));
            let at = copy.as_ptr();
            drop(first);
            assert_ne!(pool.take(len).as_ptr(), at);
            drop(copy);
            let again = [pool.take(len), pool.take(len)];
            assert!(again.iter().any(|buffer| buffer.as_ptr() == at));
            assert_eq!(again[0].len(), len);
        }
    }

    #[test]
    fn a_small_tensor_does_not_hold_a_large_buffer() {
        let pool = Pool::default();
        let at = pool.take(LARGE).as_ptr();
        assert_ne!(pool.take(LARGE / 4).as_ptr(), at);
        assert_eq!(pool.take(LARGE - 7).as_ptr(), at);
    }

    #[test]
    fn what_a_pass_did_not_need_goes_back() {
        let pool = Pool::default();
        let free = || pool.stock().free.iter().map(Memory::len).sum::<usize>();
        drop([pool.take(5000), pool.take(9000), pool.take(LARGE)]);
        pool.pass_is_over();
        assert_eq!(free(), 14_000 + LARGE); // All of it was used at once.
        drop(pool.take(9000));
        pool.pass_is_over();
        assert_eq!(free(), 9000);
        // What others still hold is theirs.
        let kept = pool.take(9000);
        pool.pass_is_over();
        drop(kept);
        assert_eq!(free(), 9000);
    }

    #[test]
    fn a_tensor_that_is_kept_has_memory_of_its_own_size() {
        let pool = Pool::default();
        drop(pool.take(9000));
        assert_eq!(pool.take_to_keep(5000).memory.as_ref().map(Memory::len), Some(5000));
        assert_eq!(pool.take(5000).memory.as_ref().map(Memory::len), Some(5000));
        drop(pool.take(9000));
        assert_eq!(pool.take_to_keep(9000).memory.as_ref().map(Memory::len), Some(9000));
    }

    #[test]
    fn memory_that_is_not_there_unwinds_with_its_size() {
        for len in [usize::MAX, 1 << 60] {
            let unwound = std::panic::catch_unwind(|| Pool::default().take(len)).unwrap_err();
            assert_eq!(unwound.downcast::<OutOfMemory>().unwrap().0, (len as u64).saturating_mul(4));
        }
    }

    #[test]
    fn a_tensor_outlives_its_pool() {
        let shared = Shared::new(Pool::default().take_zeroed(3));
        assert_eq!(*shared, [0.0; 3]);
        assert_eq!(*Shared::from(vec![1.0]), [1.0]);
        assert!(Shared::default().is_empty());
    }
}
