//! A Transformer as one value.
//!
//! [`recognise`] turns a listing of tensors and what configs say into a [`Model`]: a [`Graph`] of nodes with
//! symbolic dimensions, the [`Wiring`] it was built from, the [`Sizes`] behind the dimensions, and a [`Binding`] of
//! its weights to the tensors. Drawing, counting and running are derived from these.
//!
//! ```
//! use attnscope_graph::{Architecture, Wiring, build};
//!
//! let graph = build(&Architecture::encoder_decoder(2, 2), &Wiring::VASWANI);
//! let scores = graph.find("decoder.1.cross_attn.scores").map(|id| graph.node(id));
//! assert_eq!(scores.map(|n| n.dims.len()), Some(4)); // [batch, head, query, key]
//! ```

mod architecture;
mod bind;
mod block;
mod build;
mod contradiction;
mod count;
mod dim;
mod facets;
mod facts;
mod family;
pub mod figures;
mod graph;
mod identify;
mod kv_sharing;
mod layer_set;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.
mod listing;
mod measure;
mod names;
mod observe;
mod op;
mod other;
mod plan;
mod recognise;
mod rewire;
mod role;
mod rotary;
mod rotary_config;
mod select;
mod snapshot;
mod task_head;
mod wiring;
pub mod words;

pub use architecture::{
    Architecture, Classifier, DECODER_ONLY, ENCODER_DECODER, ENCODER_ONLY, Head, NO_STACK, StackShape,
};
pub use bind::{Binding, Slot};
pub use block::{Block, BlockError, Convolutions, RecurrentCell};
pub use build::build;
pub use contradiction::{Contradiction, Outcome};
pub use count::{multiply_adds, output_bytes, torchinfo_multiply_adds};
pub use dim::{Dim, ShapeText, Side, Sizes, Stack};
pub use facets::{Facets, Layout, OpKind, WeightUse, Whole};
pub use facts::{Config, Fact, FactError, Topic, token_keys};
pub use family::{CLASSIFIER, Evidence, FAMILIES, Family, Meant, Sets, Setting, Start};
pub use graph::{AddedPositions, Graph, Node, NodeId, NodePath, Weight, WeightId};
pub use kv_sharing::KvSharing;
pub use layer_set::LayerSet;
pub use names::{Found, NameScheme, Row, TensorSpec};
pub use op::{Capped, Factor, MaskKind, Op, Pooling};
pub use other::{Other, OtherKind};
pub use plan::plan_tensors;
pub use recognise::{ASSUMED, Model, Recognised, recognise};
pub use rewire::WiringError;
pub use role::{
    AttentionKind, AttentionPlace, AttentionStep, AudioStep, BlockStep, Direction, EntryStep,
    FeedForwardStep, HeadStep, LayerPart, LayerStep, RecurrentStep, Role, WeightKind, WeightRole,
};
pub use rotary::{Rotary, RotaryFactors, RotaryPairs, RotaryScaling};
pub use select::Selector;
pub use snapshot::{
    Cut, SNAPSHOTS, Snapshot, View, computed_before, order_note, snapshot_numbers, snapshots,
};
pub use task_head::TaskHead;
pub use wiring::{
    Activation, Biases, CrossMask, EmbeddingNorm, EmbeddingScale, Front, GainAt, LogitScale, NormGain,
    NormKind, NormPlace, Normaliser, PositionCount, Positions, ScoreScale, Switch, Wiring,
};
