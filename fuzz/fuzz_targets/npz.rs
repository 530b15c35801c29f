//! NumPy archives.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::checkpoint::open(bytes));
