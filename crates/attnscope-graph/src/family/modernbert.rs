//! ModernBERT: an encoder alone, norms before the sublayers, rotary positions, a gated feed-forward, and a window in two of
//! three layers.

use crate::architecture::{ENCODER_ONLY, Head};
use crate::block::Block;
use crate::family::{
    Evidence, Family, KnownHead, STREAM_MAP, Sets, Setting, Start, Task, gguf_names, naming,
};
use crate::layer_set::LayerSet;
use crate::rotary::RotaryPairs;
use crate::wiring::{Activation, Biases, EmbeddingNorm, EmbeddingScale, NormPlace, Positions, Wiring};

const GELU: Block = Block::Activation { function: Activation::Gelu };
const NORM: Block = Block::Norm {};
/// What stands before the outputs of every head.
const TRANSFORM: &[Block] = &[STREAM_MAP, GELU, NORM];

/// ModernBERT-base and -large.
pub(super) const FAMILY: Family = Family {
    id: "modernbert",
    title: "ModernBERT",
    model_types: &["modernbert", "modern-bert", "ModernBertForMaskedLM", "ModernBertModel"],
    schemes: &[&naming::MODERNBERT, &gguf_names::MODERNBERT],
    evidence: &[Evidence::Lacks("encoder.0.self_attn.norm.weight")],
    stacks: ENCODER_ONLY,
    head: Head::Transform,
    wiring: Wiring {
        activation: Activation::Gelu,
        gated: true,
        norm_place: NormPlace::Pre,
        first_norm_absent: true,
        encoder_final_norm: true,
        source_embedding_norm: EmbeddingNorm::AfterPositions,
        source_positions: Positions::Rotary,
        target_positions: Positions::None,
        rotary_base: Some(160_000.0),
        rotary_pairs: Some(RotaryPairs::Halves),
        window: Some(128),
        window_layers: Some(LayerSet::NOT_THIRD),
        window_rotary_base: Some(Wiring::ROTARY_BASE),
        embedding_scale: EmbeddingScale::None,
        shared_embeddings: false,
        biases: Biases { head: false, ..Biases::NONE },
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["hidden_activation"], sets: Sets::Activation, absent: Some("gelu") },
        Setting {
            keys: &["norm_eps", "{arch}.attention.layer_norm_epsilon"],
            sets: Sets::NormEps,
            absent: Some("1e-5"),
        },
        Setting { keys: &["norm_bias"], sets: Sets::NormBiases, absent: Some("false") },
        Setting { keys: &["attention_bias"], sets: Sets::AttentionBiases, absent: Some("false") },
        Setting { keys: &["mlp_bias"], sets: Sets::FeedForwardBiases, absent: Some("false") },
        Setting { keys: &["classifier_bias"], sets: Sets::HeadBias, absent: Some("false") },
        Setting {
            keys: &[
                "rope_parameters.full_attention.rope_theta",
                "global_rope_theta",
                "{arch}.rope.freq_base",
            ],
            sets: Sets::RotaryBase,
            absent: Some("160000"),
        },
        Setting {
            keys: &[
                "rope_parameters.sliding_attention.rope_theta",
                "local_rope_theta",
                "{arch}.rope.freq_base_swa",
            ],
            sets: Sets::WindowRotaryBase,
            absent: Some("10000"),
        },
        Setting {
            keys: &["rope_parameters.full_attention", "rope_scaling"],
            sets: Sets::RotaryScaling,
            absent: None,
        },
        Setting {
            keys: &["rope_parameters.sliding_attention.rope_type"],
            sets: Sets::Unsupported("\"default\""),
            absent: None,
        },
        Setting {
            keys: &["local_attention", "{arch}.attention.sliding_window"],
            sets: Sets::Window,
            absent: Some("128"),
        },
        Setting {
            keys: &["global_attn_every_n_layers", "{arch}.attention.sliding_window_pattern"],
            sets: Sets::FirstOfEvery,
            absent: Some("3"),
        },
        Setting { keys: &["layer_types"], sets: Sets::LayerTypes, absent: None },
        // Its head has an activation of its own key, which has always been that of the layers.
        Setting { keys: &["classifier_activation"], sets: Sets::Unsupported("\"gelu\""), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[
        KnownHead {
            task: Task::Text,
            blocks: &[Block::MeanPool {}, STREAM_MAP, GELU, NORM],
            output: "classifier.weight",
            only_with: Some(("classifier_pooling", "mean")),
        },
        KnownHead {
            task: Task::Text,
            blocks: &[Block::FirstToken {}, STREAM_MAP, GELU, NORM],
            output: "classifier.weight",
            only_with: None,
        },
        KnownHead { task: Task::Tokens, blocks: TRANSFORM, output: "classifier.weight", only_with: None },
        KnownHead { task: Task::Span, blocks: TRANSFORM, output: "classifier.weight", only_with: None },
    ],
};
