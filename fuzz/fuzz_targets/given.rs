//! Maps, thresholds and pairs, as a user writes them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::given::read(bytes));
