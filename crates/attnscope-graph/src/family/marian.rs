//! Marian: the Transformer of 2017 with swish, no norm of embeddings, none at the ends of the stacks.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Start, hugging_face, naming};
use crate::wiring::{Activation, Positions, Wiring};

/// opus-mt and similar models.
pub(super) const FAMILY: Family = Family {
    id: "marian",
    title: "Marian",
    model_types: &["marian", "MarianMTModel"],
    schemes: &[&naming::HUGGING_FACE],
    evidence: &[Evidence::Lacks("src.embed_pos.weight"), Evidence::Lacks("encoder.out.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::Swish,
        source_positions: Positions::SinusoidHalves,
        target_positions: Positions::SinusoidHalves,
        ..Wiring::VASWANI
    },
    settings: &hugging_face("gelu", "false"),
    start: Start::Token { key: "pad_token_id", usual: None },
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
