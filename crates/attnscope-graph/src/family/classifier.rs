//! Text classifiers as this program trains them: a config lists the blocks, and files call tensors as the graph does.

use crate::architecture::{Head, NO_STACK};
use crate::family::{Evidence, Family, Sets, Setting, Start};
use crate::names::NameScheme;
use crate::wiring::{EmbeddingScale, NormPlace, Positions, Wiring};

/// The graph's own names.
const NAMES: NameScheme = NameScheme { id: "attnscope", tables: &[], buffers: &[], pairs: None };

/// Its blocks, and its layers where it has some, are in the config; without one it is not recognised.
pub(super) const FAMILY: Family = Family {
    id: "classifier",
    title: "Text classifier",
    model_types: &["attnscope-classifier"],
    schemes: &[&NAMES],
    evidence: &[Evidence::NamedByConfig],
    stacks: NO_STACK,
    head: Head::None,
    wiring: Wiring {
        embedding_scale: EmbeddingScale::None,
        source_positions: Positions::None,
        target_positions: Positions::None,
        norm_place: NormPlace::Pre,
        encoder_final_norm: true,
        tied_output: false,
        shared_embeddings: false,
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["activation_function"], sets: Sets::Activation, absent: Some("relu") },
        Setting { keys: &["sinusoidal_positions"], sets: Sets::SinusoidalPositions, absent: Some("false") },
        Setting { keys: &["layer_norm_eps"], sets: Sets::NormEps, absent: Some("1e-5") },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
