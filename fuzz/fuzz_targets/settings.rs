//! A generation_config.json, up to a few generated tokens.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::settings::generate(bytes));
