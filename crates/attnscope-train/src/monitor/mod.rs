//! Monitors: what attention and gradients do while a model learns, measured now and then on examples that are held out.

mod judge;
mod measure;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use judge::judge;
pub(crate) use measure::{Watched, block_norms};

/// What was seen after a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MonitorMetric {
    /// The step.
    pub step: u64,
    /// Nats a target that another pair's source costs; `null` for a model without cross-attention.
    pub source_cost: Option<f64>,
    /// Every attention of the model.
    pub attentions: Vec<AttentionMetric>,
    /// The norm of the gradient of each block in that step, divided by the number of targets.
    pub gradient_norms: BTreeMap<String, f64>,
    /// The share of padding in the batches since the last look.
    pub padding: f64,
}

/// What one attention does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttentionMetric {
    /// `decoder.0.cross_attn`
    pub path: String,
    /// Of each head: 1 is uniform, 0 is one key; `null` where no query has four keys.
    pub entropy: Vec<Option<f64>>,
    /// The norm of what each head adds to the stream.
    pub head_norms: Vec<f64>,
    /// The norm of what the attention adds, of the stream's that it joins.
    pub output_ratio: Option<f64>,
    /// Heads that add next to nothing beside the others.
    pub dead_heads: Vec<usize>,
}

/// What a monitor has to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// The step after which it was said.
    pub step: u64,
    /// The step at which it began.
    pub began: u64,
    /// What it is about.
    pub fault: Fault,
    /// Where, as far as it is somewhere.
    pub place: Option<String>,
    /// In words, with the numbers.
    pub says: String,
}

/// What can go wrong while a model learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Another source costs next to nothing.
    SourceIgnored,
    /// Every head of an attention looks at one key.
    EntropyCollapse,
    /// A head adds next to nothing.
    DeadHead,
    /// A block learns nothing.
    VanishingGradient,
    /// A block's gradient is far larger than it was.
    ExplodingGradient,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::SourceIgnored => "source-ignored",
            Self::EntropyCollapse => "entropy-collapse",
            Self::DeadHead => "dead-head",
            Self::VanishingGradient => "vanishing-gradient",
            Self::ExplodingGradient => "exploding-gradient",
        }
    }
}

/// What monitors remember from look to look.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MonitorMemory {
    /// What is the case now, by fault and place.
    streaks: BTreeMap<String, Streak>,
    /// Gradient norms of earlier looks, by block.
    #[serde(with = "crate::exact::lists")]
    norms: BTreeMap<String, Vec<f64>>,
}

/// Something that is the case look after look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Streak {
    began: u64,
    looks: u64,
    told: bool,
}
