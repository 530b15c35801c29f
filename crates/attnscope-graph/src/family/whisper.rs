//! Whisper under Hugging Face's names.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, naming};
use crate::wiring::{Activation, Biases, EmbeddingScale, Front, NormPlace, Positions, Switch, Wiring};

/// whisper-tiny to whisper-large-v3. The config's `scale_embedding` is not applied by the model, so it is not read.
pub(super) const FAMILY: Family = Family {
    id: "whisper",
    title: "Whisper",
    model_types: &["whisper", "WhisperForConditionalGeneration"],
    schemes: &[&naming::HUGGING_FACE],
    evidence: &[Evidence::Has("audio.conv1.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: WIRING,
    settings: &[Setting { keys: &["activation_function"], sets: Sets::Activation, absent: Some("gelu") }],
    start: Start::Prompt,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};

/// The wiring of Whisper, under all names of its weights.
pub(super) const WIRING: Wiring = Wiring {
    activation: Activation::Gelu,
    norm_place: NormPlace::Pre,
    encoder_final_norm: true,
    decoder_final_norm: true,
    source_positions: Positions::Table,
    target_positions: Positions::Table,
    embedding_scale: EmbeddingScale::None,
    shared_embeddings: false,
    // Audio always fills the window, and the decoder masks only later positions.
    padding_mask: Switch::Off,
    front: Front::Audio,
    biases: Biases { k: false, ..Biases::ALL },
    ..Wiring::VASWANI
};
