//! M2M-100 and dense NLLB: as Pegasus, with fairseq's sinusoids, whose first position comes after the pad id.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, hugging_face, naming};
use crate::wiring::{NormPlace, PositionCount, Positions, Wiring};

/// m2m100_418M, nllb-200 (dense).
pub(super) const FAMILY: Family = Family {
    id: "m2m_100",
    title: "M2M-100 / NLLB",
    model_types: &["m2m_100", "M2M100ForConditionalGeneration"],
    schemes: &[&naming::HUGGING_FACE],
    evidence: &[
        Evidence::Lacks("src.embed_pos.weight"),
        Evidence::Has("encoder.out.weight"),
        Evidence::Lacks("logits.bias"),
        Evidence::Lacks("src.positions.weight"),
    ],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        norm_place: NormPlace::Pre,
        encoder_final_norm: true,
        decoder_final_norm: true,
        source_positions: Positions::SinusoidFairseq,
        target_positions: Positions::SinusoidFairseq,
        position_offset: 2,
        position_count: PositionCount::Tokens,
        ..Wiring::VASWANI
    },
    settings: &SETTINGS,
    start: Start::End,
    end: Some(2),
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};

const SETTINGS: [Setting; 3] = {
    let [activation, scale] = hugging_face("relu", "true");
    [activation, scale, Setting { keys: &["pad_token_id"], sets: Sets::PadPosition, absent: Some("1") }]
};
