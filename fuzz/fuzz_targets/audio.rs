//! Recordings: wav, flac, mp3.

#![no_main]

libfuzzer_sys::fuzz_target!(init: attnscope_fuzz::input::quiet(), |bytes: &[u8]| attnscope_fuzz::input::audio(bytes));
