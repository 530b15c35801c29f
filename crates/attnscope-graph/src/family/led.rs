//! LED: BART whose encoder sees a window of positions. No token has global attention, as in Hugging Face's code where no mask of
//! global tokens is given.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{DECODER_HEADS, Evidence, Family, Sets, Setting, Start, bart, naming};
use crate::names::NameScheme;
use crate::wiring::Wiring;

const NAMES: NameScheme = NameScheme {
    id: "Hugging Face LED",
    tables: &[
        &[
            ("encoder.{n}.self_attn.q", "encoder.layers.{n}.self_attn.longformer_self_attn.query"),
            ("encoder.{n}.self_attn.k", "encoder.layers.{n}.self_attn.longformer_self_attn.key"),
            ("encoder.{n}.self_attn.v", "encoder.layers.{n}.self_attn.longformer_self_attn.value"),
            ("encoder.{n}.self_attn.out", "encoder.layers.{n}.self_attn.output"),
        ],
        naming::FAIRSEQ_LAYERS,
        naming::FAIRSEQ_EMBEDDINGS,
        &[
            ("logits", "lm_head"),
            ("logits", "classification_head.out_proj"),
            ("logits", "qa_outputs"),
            ("classifier.1.linear", "classification_head.dense"),
            ("logits.bias", "final_logits_bias"),
        ],
    ],
    buffers: &["final_logits_bias"],
    pairs: None,
};

/// led-base-16384, led-large-16384 and PRIMERA.
pub(super) const FAMILY: Family = Family {
    id: "led",
    title: "LED",
    model_types: &["led", "LEDForConditionalGeneration", "LEDModel"],
    schemes: &[&NAMES],
    evidence: &[Evidence::HasName("longformer_self_attn.query.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring { position_offset: 0, window: Some(512), ..bart::WIRING },
    settings: &[
        Setting { keys: &["activation_function"], sets: Sets::Activation, absent: Some("gelu") },
        Setting { keys: &["attention_window"], sets: Sets::Window, absent: Some("512") },
    ],
    start: Start::End,
    end: Some(2),
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: DECODER_HEADS,
};
