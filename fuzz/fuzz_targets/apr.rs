//! .apr files whose checksums are put right first.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::checkpoint::apr(bytes));
