//! A heap with an end. libFuzzer's own limit on allocations needs a sanitizer, which needs a nightly compiler.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The readers keep to this whatever the file; an input of 64 kB may inflate to as many MB.
const MOST: usize = 256 << 20;

struct Heap {
    live: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap { live: AtomicUsize::new(0) };

impl Heap {
    fn grow(&self, bytes: usize) {
        if self.live.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > MOST {
            // Nothing may be allocated here; writing to stderr does not. libFuzzer keeps the input.
            let _ = std::io::stderr().write_all(b"the input took too much of the heap\n");
            std::process::abort();
        }
    }

    fn shrink(&self, bytes: usize) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.grow(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.grow(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.shrink(layout.size());
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.grow(size);
        self.shrink(layout.size());
        unsafe { System.realloc(at, layout, size) }
    }
}
