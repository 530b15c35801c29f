//! A worked example, judged and printed.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attnscope_fuzz::worked::judge_and_print(bytes));
