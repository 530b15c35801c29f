//! Generation: against Hugging Face's and OpenAI's own, and as a command.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod bleu;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod hugging_face;
mod marian;
mod whisper;
