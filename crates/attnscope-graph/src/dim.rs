//! Lengths with a meaning, and the numbers they have in one model.

use std::collections::BTreeMap;
use std::fmt;

use crate::block::Convolutions;

/// Which of the two stacks of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stack {
    /// Reads the source.
    Encoder,
    /// Generates the target.
    Decoder,
}

impl Stack {
    /// Both, in the order in which data flows.
    pub const ALL: [Self; 2] = [Self::Encoder, Self::Decoder];

    /// The first segment of the paths of its nodes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
        }
    }

    /// The sequence it works on.
    pub fn side(self) -> Side {
        match self {
            Self::Encoder => Side::Source,
            Self::Decoder => Side::Target,
        }
    }
}

/// Which of the two sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// What the model reads.
    Source,
    /// What the model generates.
    Target,
}

impl Side {
    /// The first segment of the paths of its nodes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "src",
            Self::Target => "tgt",
        }
    }

    /// The word for it in a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
        }
    }

    /// Its length.
    pub fn length(self) -> Dim {
        match self {
            Self::Source => Dim::Source,
            Self::Target => Dim::Target,
        }
    }
}

/// A length with a meaning. Its number is in [`Sizes`], once it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dim {
    /// Sentences in the batch.
    Batch,
    /// Source positions.
    Source,
    /// Target positions.
    Target,
    /// Width of the residual stream, d_model.
    Model,
    /// Width of the embedding table, where a map widens its rows to the stream.
    Embedding,
    /// Attention heads of a stack.
    Heads(Stack),
    /// Width of one head, d_head.
    Head(Stack),
    /// Heads side by side: heads × d_head, the rows of a q projection.
    Inner(Stack),
    /// Heads of keys and values of a stack, where several heads of queries share one.
    KvHeads(Stack),
    /// Those heads side by side: the rows of a k projection.
    KvInner(Stack),
    /// Width of the feed-forward layer, d_ff.
    FeedForward(Stack),
    /// Rows of an embedding table.
    Vocab(Side),
    /// Rows of a position table.
    Positions(Side),
    /// Mel bands of an audio frame.
    Mels,
    /// Audio frames before the second convolution halves them.
    Frames,
    /// Rows of a relative position table.
    Buckets(Stack),
    /// Rows of a table of token types.
    Types,
    /// Pairs of a head's features that are rotated.
    RotaryPairs(Stack),
    /// What convolutions leave of the source positions.
    Convolved(Convolutions),
    /// A number that is the same in every model.
    Fixed(usize),
}

impl Dim {
    /// The letter that stands for it in shapes: `D`, or `Fe` and `Fd` where the two stacks differ.
    pub fn symbol(self, sizes: &Sizes) -> String {
        let per_stack = |letter: &str, stack: Stack, make: fn(Stack) -> Self| {
            let [a, b] = Stack::ALL.map(|s| sizes.get(make(s)));
            match stack {
                // A model of one stack needs only one letter.
                _ if a == b || a.is_none() != b.is_none() => letter.to_owned(),
                Stack::Encoder => format!("{letter}e"),
                Stack::Decoder => format!("{letter}d"),
            }
        };
        match self {
            Self::Batch => "B".into(),
            Self::Source => "S".into(),
            Self::Target => "T".into(),
            Self::Model => "D".into(),
            Self::Embedding => "E".into(),
            Self::Heads(s) => per_stack("H", s, Self::Heads),
            Self::Head(s) => per_stack("K", s, Self::Head),
            Self::Inner(s) => {
                format!("{}·{}", Self::Heads(s).symbol(sizes), Self::Head(s).symbol(sizes))
            }
            Self::KvHeads(s) if sizes.get(self).is_some() && sizes.get(self) == sizes.get(Self::Heads(s)) => {
                Self::Heads(s).symbol(sizes)
            }
            Self::KvHeads(_) => "Hkv".into(),
            Self::KvInner(s) => {
                format!("{}·{}", Self::KvHeads(s).symbol(sizes), Self::Head(s).symbol(sizes))
            }
            Self::FeedForward(s) => per_stack("F", s, Self::FeedForward),
            Self::Buckets(s) => per_stack("R", s, Self::Buckets),
            Self::Vocab(side) => match [Side::Source, Side::Target].map(|s| sizes.get(Self::Vocab(s))) {
                [Some(a), Some(b)] if a != b => format!("V{}", &side.name()[..1]),
                _ => "V".into(),
            },
            Self::Positions(side) => format!("P{}", &side.name()[..1]),
            Self::Mels => "M".into(),
            Self::Frames => "L".into(),
            Self::Types => "Y".into(),
            Self::RotaryPairs(s) => per_stack("N", s, Self::RotaryPairs),
            Self::Convolved(convolutions) => format!("L{}", convolutions.count()),
            Self::Fixed(n) => n.to_string(),
        }
    }

    /// The meaning of the letter, for a legend.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Batch => "sentences in the batch",
            Self::Source => "source positions",
            Self::Target => "target positions",
            Self::Model => "d_model, width of the residual stream",
            Self::Embedding => "width of the embedding table",
            Self::Heads(_) => "attention heads",
            Self::Head(_) => "d_head, width of one head",
            Self::Inner(_) => "heads side by side",
            Self::KvHeads(_) => "heads of keys and values",
            Self::KvInner(_) => "heads of keys and values side by side",
            Self::FeedForward(_) => "d_ff, width of the feed-forward layer",
            Self::Vocab(_) => "vocabulary",
            Self::Positions(_) => "rows of the position table",
            Self::Mels => "mel bands",
            Self::Frames => "audio frames",
            Self::Buckets(_) => "relative position buckets",
            Self::Types => "token types",
            Self::RotaryPairs(_) => "pairs of features that are rotated",
            Self::Convolved(_) => "positions after convolutions",
            Self::Fixed(_) => "features, a size of this layer's own",
        }
    }
}

/// The numbers behind the dimensions of one model, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes(BTreeMap<Dim, usize>);

impl Sizes {
    /// The number of a dimension. `Head` follows from the width of q and the head count, `KvHeads` from it and the width
    /// of k.
    pub fn get(&self, dim: Dim) -> Option<usize> {
        match dim {
            Dim::Fixed(n) => Some(n),
            Dim::Convolved(convolutions) => Some(convolutions.length(self.get(Dim::Source)?)),
            Dim::Head(stack) => {
                let (inner, heads) = (self.get(Dim::Inner(stack))?, self.get(Dim::Heads(stack))?);
                (heads > 0 && inner.is_multiple_of(heads)).then(|| inner / heads)
            }
            Dim::KvHeads(stack) => {
                let (inner, size) = (self.get(Dim::KvInner(stack))?, self.get(Dim::Head(stack))?);
                (size > 0 && inner.is_multiple_of(size)).then(|| inner / size)
            }
            _ => self.0.get(&dim).copied(),
        }
    }

    /// Sets a number.
    pub fn set(&mut self, dim: Dim, size: usize) {
        self.0.insert(dim, size);
    }

    /// The same sizes with the lengths of one input.
    pub fn with_lengths(&self, batch: usize, source: usize, target: usize) -> Self {
        let mut sizes = self.clone();
        sizes.set(Dim::Batch, batch);
        sizes.set(Dim::Source, source);
        sizes.set(Dim::Target, target);
        sizes.set(Dim::Frames, source.saturating_mul(2));
        sizes
    }

    /// A shape in numbers, or `None` while one of its dimensions is unknown.
    pub fn shape(&self, dims: &[Dim]) -> Option<Vec<usize>> {
        dims.iter().map(|&d| self.get(d)).collect()
    }
}

/// A shape for a reader: numbers where they are known, letters elsewhere. `[T, 512]`.
#[derive(Debug, Clone, Copy)]
pub struct ShapeText<'a> {
    /// The dimensions.
    pub dims: &'a [Dim],
    /// Their numbers.
    pub sizes: &'a Sizes,
    /// Letters even where numbers are known.
    pub symbolic: bool,
}

impl fmt::Display for ShapeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |&dim: &Dim| match self.sizes.get(dim) {
            Some(n) if !self.symbolic => n.to_string(),
            _ => dim.symbol(self.sizes),
        };
        write!(f, "[{}]", self.dims.iter().map(part).collect::<Vec<_>>().join(", "))
    }
}
