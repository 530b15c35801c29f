//! What a user may not expect of a model or of an input. It is no part of an answer's JSON.

use attnscope_graph::Side;

/// A remark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A side is longer than the model's table of positions: it does not run on that.
    TooFewPositions {
        /// The side.
        side: Side,
        /// Positions that the model has.
        rows: usize,
        /// Positions that were asked for.
        length: usize,
    },
}
