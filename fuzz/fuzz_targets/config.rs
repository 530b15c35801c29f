//! A config.json and names of tensors, up to the drawing.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::config::recognise_and_draw(bytes));
