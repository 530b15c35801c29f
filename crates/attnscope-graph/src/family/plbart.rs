//! PLBart: BART for programs, with scaled embeddings and a language at the end of every sentence.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{DECODER_HEADS, Evidence, Family, Start, bart, hugging_face, naming};
use crate::wiring::{EmbeddingScale, Wiring};

/// plbart-base and its fine-tunes.
pub(super) const FAMILY: Family = Family {
    id: "plbart",
    title: "PLBart",
    model_types: &["plbart", "PLBartForConditionalGeneration", "PLBartModel"],
    schemes: &[&naming::HUGGING_FACE],
    // By its tensors it is BART.
    evidence: &[Evidence::NamedByConfig],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring { embedding_scale: EmbeddingScale::SqrtDModel, ..bart::WIRING },
    settings: &hugging_face("gelu", "true"),
    start: Start::LastOfSentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: DECODER_HEADS,
};
