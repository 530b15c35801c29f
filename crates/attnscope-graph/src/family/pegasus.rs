//! Pegasus: sinusoidal positions, norms before the sublayers and one at the end of each stack.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Start, hugging_face, naming};
use crate::wiring::{NormPlace, Positions, Wiring};

/// pegasus-large and its fine-tunes.
pub(super) const FAMILY: Family = Family {
    id: "pegasus",
    title: "Pegasus",
    model_types: &["pegasus", "PegasusForConditionalGeneration"],
    schemes: &[&naming::HUGGING_FACE],
    evidence: &[
        Evidence::Lacks("src.embed_pos.weight"),
        Evidence::Has("encoder.out.weight"),
        Evidence::Has("logits.bias"),
    ],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        norm_place: NormPlace::Pre,
        encoder_final_norm: true,
        decoder_final_norm: true,
        source_positions: Positions::SinusoidHalves,
        target_positions: Positions::SinusoidHalves,
        ..Wiring::VASWANI
    },
    settings: &hugging_face("gelu", "false"),
    start: Start::Id(0),
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
