//! Which keys a mask hides from a query, and why.

use attnscope_graph::MaskKind;

/// Why a query cannot see a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskReason {
    /// The key comes after the query.
    Future,
    /// The key is padding.
    Padding,
    /// Both.
    FuturePadding,
}

/// Why a cell is masked, or nothing if it is visible: the one rule behind every mask.
pub fn masked_by(
    kind: MaskKind,
    query: usize,
    key: usize,
    is_token: impl Fn() -> bool,
) -> Option<MaskReason> {
    let future = kind.causal && key > query;
    let padding = kind.padding && !is_token();
    match (future, padding) {
        (true, true) => Some(MaskReason::FuturePadding),
        (true, false) => Some(MaskReason::Future),
        (false, true) => Some(MaskReason::Padding),
        (false, false) => None,
    }
}
