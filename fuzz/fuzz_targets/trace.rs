//! The trace.json of a saved trace, compared with itself.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::trace::open_and_compare(bytes));
