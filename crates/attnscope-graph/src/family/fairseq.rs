//! fairseq's Transformer: its wiring is given by the arguments of its training.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, naming};
use crate::wiring::{PositionCount, Positions, Wiring};

/// Files that hold fairseq's `args` or `cfg` beside the weights.
pub(super) const FAMILY: Family = Family {
    id: "fairseq",
    title: "fairseq Transformer",
    model_types: &["fairseq", "transformer", "transformer_iwslt_de_en", "transformer_wmt_en_de"],
    schemes: &[&naming::FAIRSEQ],
    evidence: &[Evidence::HasName("encoder.version")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        source_positions: Positions::SinusoidFairseq,
        target_positions: Positions::SinusoidFairseq,
        position_offset: 2,
        position_count: PositionCount::Tokens,
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["activation_fn"], sets: Sets::Activation, absent: Some("relu") },
        Setting { keys: &["no_scale_embedding"], sets: Sets::NoEmbeddingScale, absent: None },
        Setting { keys: &["encoder_normalize_before"], sets: Sets::NormBefore, absent: None },
        Setting { keys: &["share_decoder_input_output_embed"], sets: Sets::TiedOutput, absent: None },
        Setting { keys: &["share_all_embeddings"], sets: Sets::TiedOutput, absent: None },
        Setting { keys: &["encoder_learned_pos"], sets: Sets::LearnedPositions, absent: None },
    ],
    start: Start::End,
    end: Some(2),
    absent_sizes: &[],
    unsaid: &[],
    flexible: true,
    task_heads: &[],
};
