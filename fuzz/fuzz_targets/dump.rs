//! What other programs leave behind: JSON, Polygraphy, the debugger's tree, archives, arrays.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::dump::open(bytes));
