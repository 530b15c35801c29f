//! Features from another front end: NumPy arrays and safetensors.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::input::features(bytes));
