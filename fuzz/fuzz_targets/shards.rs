//! The index of a sharded model.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::shards::open(bytes));
