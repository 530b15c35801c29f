//! FSMT: fairseq's translation models of 2019 under Hugging Face's names, with a vocabulary for each language.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, naming};
use crate::names::NameScheme;
use crate::wiring::{PositionCount, Positions, Wiring};

const NAMES: NameScheme = NameScheme {
    id: "Hugging Face FSMT",
    tables: &[naming::FAIRSEQ_LAYERS, naming::FAIRSEQ_EMBEDDINGS, &[("logits", "decoder.output_projection")]],
    buffers: &["embed_positions.weight"],
    pairs: None,
};

/// wmt19-en-ru and similar models.
pub(super) const FAMILY: Family = Family {
    id: "fsmt",
    title: "FSMT",
    model_types: &["fsmt", "FSMTForConditionalGeneration", "FSMTModel"],
    schemes: &[&NAMES],
    evidence: &[Evidence::NamedByConfig],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        source_positions: Positions::SinusoidFairseq,
        target_positions: Positions::SinusoidFairseq,
        position_offset: 2,
        position_count: PositionCount::Tokens,
        shared_embeddings: false,
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["activation_function"], sets: Sets::Activation, absent: Some("relu") },
        Setting { keys: &["scale_embedding"], sets: Sets::EmbeddingScale, absent: Some("true") },
        Setting { keys: &["pad_token_id"], sets: Sets::PadPosition, absent: Some("1") },
    ],
    start: Start::End,
    end: Some(2),
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
