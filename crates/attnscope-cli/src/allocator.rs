//! The system's allocator, with an error message instead of an abort when memory runs out.
//!
//! Tensors are allocated fallibly, and their errors say which tensor did not fit. Everything else (a string, a list of nodes)
//! is small, and no caller can go on without it: the standard library would end the
//! process by a signal, which a script cannot tell from a crash.
#![allow(unsafe_code)] // An allocator hands out pointers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Write};

/// Up to this many bytes, a failed allocation ends the process. A smaller tensor cannot be what fills the memory.
const SMALL: usize = 64 << 10;

pub(crate) struct Allocator;

// SAFETY: every pointer comes from the system's allocator and goes back to it with the layout it was asked for with.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        given(unsafe { System.realloc(pointer, layout, size) }, size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn given(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() && size <= SMALL {
        out_of_memory();
    }
    pointer
}

/// Nothing here may allocate, nor run what others have left to be run at the end of the process: it may hold locks.
#[cold]
fn out_of_memory() -> ! {
    const WORDS: &str = "error: attnscope is out of memory\n\
        help: free some memory, or raise the limit that this process has (ulimit -v, or that of its container)\n";
    let _ = io::stderr().write_all(WORDS.as_bytes());
    #[cfg(unix)]
    signal_hook::low_level::exit(2);
    #[cfg(not(unix))]
    std::process::exit(2);
}
