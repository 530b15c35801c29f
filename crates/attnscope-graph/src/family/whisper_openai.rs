//! Whisper under OpenAI's names, in OpenAI's own files and in whisper.cpp's.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Start, naming, whisper};

/// tiny.en to large-v3, as downloaded by the `whisper` package, and `ggml-*.bin`.
pub(super) const FAMILY: Family = Family {
    id: "whisper",
    title: "Whisper",
    model_types: &["whisper"],
    schemes: &[&naming::OPENAI_WHISPER],
    evidence: &[Evidence::Has("audio.conv1.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: whisper::WIRING,
    settings: &[],
    start: Start::Prompt,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
