//! Buffers that are used again: fresh pages cost more than most kernels that fill them.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::MmapMut;

/// From this size on, in elements, a buffer has pages of its own, large ones where the system has them.
const LARGE: usize = 1 << 20;

/// Buffers that nobody holds.
#[derive(Debug, Default)]
pub(crate) struct Pool(Arc<Free>);

type Free = Mutex<Vec<Memory>>;

/// A piece of memory.
#[derive(Debug)]
enum Memory {
    Small(Vec<f32>),
    Large(MmapMut),
}

/// Memory that was asked for and is not there, in bytes. What a pass needs is checked before it starts, so that this is
/// rare; it unwinds from whichever kernel asked to the pass, which makes an error of it.
#[derive(Debug)]
pub(super) struct OutOfMemory(pub(super) u64);

fn out_of_memory(len: usize) -> ! {
    std::panic::resume_unwind(Box::new(OutOfMemory((len as u64).saturating_mul(4))))
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
        // Two megabytes at a time instead of four kilobytes: a wish, which not every system can fulfil.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Self::Large(map)
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
    /// A buffer of that length. What it holds is left over from before.
    pub(crate) fn take(&self, len: usize) -> Buffer {
        if len == 0 {
            return Buffer::default();
        }
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest that is large enough, and not so large that keeping it would be a waste.
        let sizes = free.iter().enumerate().map(|(i, memory)| (memory.values().len(), i));
        let best = sizes.filter(|&(size, _)| size >= len && size / 2 <= len.max(1 << 12)).min();
        let memory = best.map(|(_, i)| free.swap_remove(i));
        drop(free);
        let memory = memory.unwrap_or_else(|| Memory::new(len));
        Buffer { memory: Some(memory), len, home: Arc::downgrade(&self.0) }
    }

    /// A buffer of that length that holds zeros.
    pub(crate) fn take_zeroed(&self, len: usize) -> Buffer {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }
}

/// A buffer, which goes back to where it came from when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Option<Memory>,
    len: usize,
    home: Weak<Free>,
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
            home.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        }
    }
}

/// The values of a tensor, which several may hold; the executor uses their memory again when nobody does.
#[derive(Debug, Clone, Default)]
pub struct Shared(Option<Arc<Buffer>>);

impl Shared {
    pub(crate) fn new(buffer: Buffer) -> Self {
        Self(Some(Arc::new(buffer)))
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
