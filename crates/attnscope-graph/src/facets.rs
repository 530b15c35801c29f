//! The table of operations: what every part of the program must know of an operation besides its arithmetic, a row each.
//!
//! A new operation is a row here, a shape rule beside the enum, words, and a kernel in each executor; whoever reads the table
//! needs
//! no change. The match is exhaustive, and so are those of the kernels: what is missing does not compile.

use crate::block::RecurrentCell;
use crate::dim::Side;
use crate::op::{Capped, Op, Pooling};
use crate::wiring::NormKind;

/// What is known of an operation without its arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facets {
    /// Its name in JSON.
    pub name: &'static str,
    /// What PyTorch would call the layer; nothing for what only renames or reshapes.
    pub module: Option<&'static str>,
    /// What it is for, at a glance.
    pub kind: OpKind,
    /// How its tensor relates to its input's.
    pub layout: Layout,
    /// The sequence whose positions it reads by itself, not through its inputs.
    pub reads: Option<Side>,
    /// The last dimension counts keys, so that it grows with a cache while queries do not.
    pub counts_keys: bool,
    /// A run can be given its tensor instead of computing it: not what is only a name of another one, a step within an
    /// attention, a table that layers share, or a part of the input.
    pub can_be_given: bool,
    /// A cell's value is only moved, or follows from one cell of the first input.
    pub follows_one_cell: bool,
    /// A step between the heads of q, k and v and their merge, which an executor may take together with its neighbours.
    pub within_attention: bool,
    /// Which inputs are read whole although only some positions of the result are computed.
    pub reads_whole: Whole,
    /// What it does with its first weight; the others are read whole.
    pub first_weight: WeightUse,
}

/// What an operation is for, at a glance: a drawing's colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// Given by the user.
    Input,
    /// Tokens and positions as vectors.
    Embedding,
    /// A learned map.
    Linear,
    /// A step of an attention.
    Attention,
    /// What an attention may see or prefers to.
    Mask,
    /// What the residual stream passes through.
    Stream,
    /// Element by element.
    Activation,
    /// The model's scores.
    Output,
}

/// How an operation's tensor relates to the one it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A separate tensor, in the order of its dimensions.
    Own,
    /// Another name of its input.
    Name,
    /// Its input's values; an executor may leave the heads where they are: [batch, length, head · feature].
    NameInHeads,
    /// A separate tensor, whose heads an executor may keep as [batch, length, head · feature].
    OwnInHeads,
}

/// Which inputs of an operation are read whole for each position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// None: a position follows from the same position of the inputs.
    None,
    /// All of them.
    All,
    /// The second one: keys or values.
    Second,
}

/// What an operation does with a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightUse {
    /// Looks up some rows.
    Table,
    /// Multiplies with it, as the right side.
    Product,
    /// Reads all values.
    Values,
}

impl Facets {
    /// What most operations are: a tensor of its own, position by position, that could be given as well.
    const fn own(name: &'static str, kind: OpKind) -> Self {
        Self {
            name,
            module: None,
            kind,
            layout: Layout::Own,
            reads: None,
            counts_keys: false,
            can_be_given: true,
            follows_one_cell: false,
            within_attention: false,
            reads_whole: Whole::None,
            first_weight: WeightUse::Values,
        }
    }

    /// A step between the split and the merge of heads.
    const fn of_attention(name: &'static str, module: &'static str) -> Self {
        let own = Self::own(name, OpKind::Attention);
        Self { module: Some(module), can_be_given: false, within_attention: true, ..own }
    }

    /// The same values under another name or in another order.
    const fn moved(name: &'static str, kind: OpKind, layout: Layout) -> Self {
        Self { layout, can_be_given: false, follows_one_cell: true, ..Self::own(name, kind) }
    }

    /// A part of the input.
    const fn input(name: &'static str, side: Side) -> Self {
        Self { reads: Some(side), can_be_given: false, ..Self::own(name, OpKind::Input) }
    }

    /// A learned map of features.
    const fn map(name: &'static str, kind: OpKind) -> Self {
        Self { module: Some("Linear"), first_weight: WeightUse::Product, ..Self::own(name, kind) }
    }

    /// A layer that torch has a module for.
    const fn layer(name: &'static str, module: &'static str, kind: OpKind) -> Self {
        Self { module: Some(module), ..Self::own(name, kind) }
    }

    /// Whether an input is read whole although only some positions of the result are computed.
    pub fn reads_input_whole(&self, input: usize) -> bool {
        match self.reads_whole {
            Whole::None => false,
            Whole::All => true,
            Whole::Second => input == 1,
        }
    }
}

impl Op {
    /// The operation's row of the table.
    pub fn facets(&self) -> Facets {
        use OpKind::{Activation, Attention, Embedding, Linear, Mask, Output, Stream};
        match *self {
            Self::Ids(side) => Facets::input("ids", side),
            Self::TypeIds(side) => Facets::input("type_ids", side),
            Self::Features => Facets::input("features", Side::Source),
            Self::Embed { .. } => Facets {
                first_weight: WeightUse::Table,
                reads_whole: Whole::All,
                ..Facets::layer("embed", "Embedding", Embedding)
            },
            Self::Positions { side, .. } => Facets {
                first_weight: WeightUse::Table,
                reads: Some(side),
                ..Facets::layer("positions", "Positions", Embedding)
            },
            Self::AddPositions => Facets::layer("add_positions", "Add", Embedding),
            Self::Conv1d { .. } => {
                Facets { reads_whole: Whole::All, ..Facets::layer("conv1d", "Conv1d", Linear) }
            }
            Self::Transpose => Facets {
                can_be_given: true,
                reads_whole: Whole::All,
                ..Facets::moved("transpose", Stream, Layout::Own)
            },
            Self::Same => Facets::moved("same", Stream, Layout::Name),
            Self::Norm { kind: NormKind::Layer, .. } => Facets::layer("norm", "LayerNorm", Stream),
            Self::Norm { kind: NormKind::Rms, .. } => Facets::layer("norm", "RMSNorm", Stream),
            Self::Linear => Facets::map("linear", Linear),
            Self::SplitHeads(_) => Facets::moved("split_heads", Attention, Layout::NameInHeads),
            Self::Rotate { side, .. } => Facets {
                layout: Layout::OwnInHeads,
                reads: Some(side),
                can_be_given: false,
                reads_whole: Whole::All,
                ..Facets::layer("rotate", "Rotary", Attention)
            },
            Self::Scores { .. } => Facets {
                counts_keys: true,
                reads_whole: Whole::Second,
                ..Facets::of_attention("scores", "MatMul")
            },
            Self::SoftCap { of: Capped::Scores, .. } => Facets {
                counts_keys: true,
                follows_one_cell: true,
                ..Facets::of_attention("soft_cap", "SoftCap")
            },
            Self::SoftCap { of: Capped::Logits, .. } => {
                Facets { follows_one_cell: true, ..Facets::layer("soft_cap", "SoftCap", Output) }
            }
            Self::RelativeBias { stack, .. } => Facets {
                reads: Some(stack.side()),
                counts_keys: true,
                can_be_given: false,
                ..Facets::layer("relative_bias", "RelativeBias", Mask)
            },
            Self::Mask(kind) => Facets {
                reads: Some(kind.queries),
                counts_keys: true,
                can_be_given: false,
                ..Facets::layer("mask", "Mask", Mask)
            },
            Self::AddMask { .. } => Facets {
                counts_keys: true,
                follows_one_cell: true,
                ..Facets::of_attention("add_mask", "Add")
            },
            Self::Normalise(_) => Facets {
                counts_keys: true,
                follows_one_cell: true,
                ..Facets::of_attention("squash", "Softmax")
            },
            Self::Context { .. } => {
                Facets { reads_whole: Whole::Second, ..Facets::of_attention("context", "MatMul") }
            }
            Self::MergeHeads(_) => {
                Facets { can_be_given: true, ..Facets::moved("merge_heads", Attention, Layout::Own) }
            }
            Self::Residual { .. } => Facets::layer("residual", "Add", Stream),
            Self::Activate(_) => Facets::layer("activate", "Activation", Activation),
            Self::Gate => Facets::layer("gate", "Mul", Activation),
            Self::Recur { cell, .. } => {
                let module = match cell {
                    RecurrentCell::Rnn => "RNN",
                    RecurrentCell::Lstm => "LSTM",
                };
                let own = Facets::layer("recur", module, Linear);
                Facets { reads_whole: Whole::All, first_weight: WeightUse::Product, ..own }
            }
            Self::Hidden => Facets { can_be_given: true, ..Facets::moved("hidden", Stream, Layout::Own) },
            Self::Beside => Facets { reads_whole: Whole::All, ..Facets::layer("beside", "Concat", Stream) },
            Self::LastState { .. } => Facets {
                can_be_given: true,
                reads_whole: Whole::All,
                ..Facets::moved("last_state", Stream, Layout::Own)
            },
            Self::Pool { pooling, padding_of, .. } => {
                let module = match pooling {
                    Pooling::Max => "MaxPool",
                    Pooling::Mean => "MeanPool",
                    Pooling::First => "FirstToken",
                    Pooling::Last => "LastToken",
                };
                Facets { reads: padding_of, reads_whole: Whole::All, ..Facets::layer("pool", module, Stream) }
            }
            Self::Flatten { .. } => Facets {
                module: Some("Flatten"),
                reads_whole: Whole::All,
                ..Facets::moved("flatten", Stream, Layout::Name)
            },
            Self::Dropout { .. } => {
                Facets { module: Some("Dropout"), ..Facets::moved("dropout", Stream, Layout::Name) }
            }
            Self::Logits { .. } => Facets::map("logits", Output),
        }
    }
}
