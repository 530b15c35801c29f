//! LongT5 with local attention: T5 v1.1 whose encoder sees a window of positions.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, naming, t5};
use crate::names::NameScheme;
use crate::wiring::{Activation, LogitScale, Wiring};

const NAMES: NameScheme = NameScheme {
    id: "Hugging Face LongT5",
    tables: &[
        &[
            ("encoder.{n}.self_attn.q", "encoder.block.{n}.layer.0.LocalSelfAttention.q"),
            ("encoder.{n}.self_attn.k", "encoder.block.{n}.layer.0.LocalSelfAttention.k"),
            ("encoder.{n}.self_attn.v", "encoder.block.{n}.layer.0.LocalSelfAttention.v"),
            ("encoder.{n}.self_attn.out", "encoder.block.{n}.layer.0.LocalSelfAttention.o"),
            (
                "encoder.{n}.self_attn.bias",
                "encoder.block.{n}.layer.0.LocalSelfAttention.relative_attention_bias",
            ),
        ],
        naming::T5_TABLE,
    ],
    buffers: &[],
    pairs: None,
};

/// long-t5-local-base and -large. Those with transient global attention are told by name.
pub(super) const FAMILY: Family = Family {
    id: "longt5",
    title: "LongT5",
    model_types: &["longt5", "LongT5ForConditionalGeneration", "LongT5Model"],
    schemes: &[&NAMES],
    evidence: &[Evidence::HasName("LocalSelfAttention.q.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::Relu,
        gated: true,
        window: Some(254),
        logit_scale: LogitScale::None,
        ..t5::WIRING
    },
    settings: &[
        Setting { keys: t5::ACTIVATION, sets: Sets::Activation, absent: Some("relu") },
        Setting { keys: t5::NORM_EPS, sets: Sets::NormEps, absent: Some("1e-6") },
        Setting {
            keys: &["relative_attention_max_distance"],
            sets: Sets::RelativeMaxDistance,
            absent: Some("128"),
        },
        Setting {
            keys: &["scale_decoder_outputs", "tie_word_embeddings"],
            sets: Sets::LogitScale,
            absent: Some("true"),
        },
        Setting { keys: &["local_radius"], sets: Sets::Reach, absent: Some("127") },
        Setting { keys: &["encoder_attention_type"], sets: Sets::Unsupported("\"local\""), absent: None },
    ],
    start: Start::Id(0),
    end: None,
    absent_sizes: t5::ABSENT_SIZES,
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
