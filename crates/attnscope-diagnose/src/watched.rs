//! What attention does in one run, for whoever watches a model while it learns.

use attnscope_graph::AttentionPlace;
use attnscope_run::{Input, Prepared, RunError};

use crate::observe::observe;

/// One attention of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedAttention {
    /// Which.
    pub place: AttentionPlace,
    /// Its heads.
    pub heads: Vec<WatchedHead>,
    /// The norm of what it adds, of the stream's that it joins.
    pub output_ratio: Option<f64>,
}

/// One head of it, the mean over queries that are tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WatchedHead {
    /// −Σ a ln a / ln S over queries with at least four keys; `None` where there are none.
    pub entropy: Option<f64>,
    /// Root mean square of the norm of what it adds to the stream.
    pub norm: f64,
}

/// Runs a model and looks at its attentions, in the order of the graph.
///
/// # Errors
/// When the input does not fit the model.
pub fn watch_attention(prepared: &dyn Prepared, input: &Input) -> Result<Vec<WatchedAttention>, RunError> {
    let seen = observe(prepared, input)?;
    let ratio = |place: AttentionPlace| {
        let joined =
            seen.residuals.iter().find(|joined| joined.role.attention().is_some_and(|(own, _)| own == place));
        joined.map(|joined| joined.ratio())
    };
    let head = |head: &crate::heads::HeadSeen| WatchedHead { entropy: head.entropy, norm: head.norm };
    let attention = |own: &crate::observe::AttentionSeen| WatchedAttention {
        place: own.place,
        heads: own.heads.iter().map(head).collect(),
        output_ratio: ratio(own.place),
    };
    Ok(seen.attentions.iter().map(attention).collect())
}
