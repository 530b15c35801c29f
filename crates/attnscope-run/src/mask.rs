//! Which keys a mask hides from a query, and why.

use attnscope_graph::MaskKind;

/// Why a query cannot see a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskReason {
    /// The key comes after the query.
    Future,
    /// The key is padding.
    Padding,
    /// The key comes after the query, and is padding.
    FuturePadding,
    /// The key is outside the window of the query.
    Window,
    /// The key is outside the window, and is padding.
    WindowPadding,
}

impl MaskReason {
    /// The same cell where padding is no reason.
    pub fn without_padding(self) -> Option<Self> {
        match self {
            Self::Future | Self::FuturePadding => Some(Self::Future),
            Self::Window | Self::WindowPadding => Some(Self::Window),
            Self::Padding => None,
        }
    }

    /// The same cell where a later place is no reason.
    pub fn without_future(self) -> Option<Self> {
        match self {
            Self::Padding | Self::FuturePadding => Some(Self::Padding),
            Self::Window | Self::WindowPadding => Some(self),
            Self::Future => None,
        }
    }
}

/// Why a cell is masked, or nothing if it is visible: the one rule behind every mask.
pub fn masked_by(
    kind: MaskKind,
    query: usize,
    key: usize,
    is_token: impl Fn() -> bool,
) -> Option<MaskReason> {
    let padding = kind.padding && !is_token();
    match (kind.is_in_view(query, key), padding) {
        (true, false) => None,
        (true, true) => Some(MaskReason::Padding),
        (false, true) if kind.causal && key > query => Some(MaskReason::FuturePadding),
        (false, false) if kind.causal && key > query => Some(MaskReason::Future),
        (false, true) => Some(MaskReason::WindowPadding),
        (false, false) => Some(MaskReason::Window),
    }
}

/// How many queries are padding whose window holds no token. Nobody reads what they compute, so that they do not count as fully
/// masked. Without a window padding sees the tokens of its row, and a row without any is worth a remark.
pub(crate) fn padding_without_keys(
    kind: MaskKind,
    [batch, queries, keys]: [usize; 3],
    is_padding: impl Fn(usize, usize) -> bool,
    is_visible: impl Fn(usize, usize, usize) -> bool,
) -> usize {
    if kind.reach.is_none() {
        return 0;
    }
    let all = (0..batch).flat_map(|row| (0..queries).map(move |query| (row, query)));
    let lone = |&(row, query): &(usize, usize)| {
        is_padding(row, query) && !(0..keys).any(|key| is_visible(row, query, key))
    };
    all.filter(lone).count()
}
