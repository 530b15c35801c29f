//! The pickle inside a PyTorch file, so that mutations reach the machine and not the zip around it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::checkpoint::pickle(bytes));
