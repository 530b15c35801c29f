//! OPT: a decoder alone, under fairseq's names; learned positions that count tokens, ReLU.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, naming};
use crate::names::NameScheme;
use crate::wiring::{EmbeddingScale, NormPlace, PositionCount, Positions, Wiring};

const NAMES: NameScheme = NameScheme {
    id: "Hugging Face OPT",
    tables: &[
        naming::FAIRSEQ_LAYERS,
        &[
            ("tgt.embed", "decoder.embed_tokens"),
            ("tgt.positions", "decoder.embed_positions"),
            ("decoder.out", "decoder.final_layer_norm"),
            ("logits", "lm_head"),
        ],
    ],
    buffers: &[],
    pairs: None,
};

/// opt-125m to opt-66b. That of 350 million has embeddings of another width, and a map that is not read here.
pub(super) const FAMILY: Family = Family {
    id: "opt",
    title: "OPT",
    model_types: &["opt", "OPTForCausalLM", "OPTModel"],
    schemes: &[&NAMES],
    evidence: &[Evidence::NamedByConfig],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: Wiring {
        norm_place: NormPlace::Pre,
        decoder_final_norm: true,
        source_positions: Positions::None,
        target_positions: Positions::Table,
        position_offset: 2,
        position_count: PositionCount::Tokens,
        embedding_scale: EmbeddingScale::None,
        shared_embeddings: false,
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["activation_function"], sets: Sets::Activation, absent: Some("relu") },
        Setting { keys: &["do_layer_norm_before"], sets: Sets::NormBefore, absent: Some("true") },
        Setting { keys: &["_remove_final_layer_norm"], sets: Sets::Unsupported("false"), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
