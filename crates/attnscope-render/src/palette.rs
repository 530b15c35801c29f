//! Colours by kind of box, for everything that is not a terminal.

use crate::diagram::Kind;

/// A fill light enough for black text and for paper, a border dark enough to hold in black and white.
pub(crate) struct Hue {
    pub(crate) fill: &'static str,
    pub(crate) line: &'static str,
    /// The word in class names.
    pub(crate) name: &'static str,
}

/// All kinds, in the order of [`Kind`].
pub(crate) const KINDS: [Kind; 10] = [
    Kind::Input,
    Kind::Outside,
    Kind::Embedding,
    Kind::Linear,
    Kind::Attention,
    Kind::Mask,
    Kind::Stream,
    Kind::Activation,
    Kind::Stack,
    Kind::Output,
];

/// Shades of Okabe and Ito's set, which colour-blind readers can tell apart.
pub(crate) fn hue(kind: Kind) -> Hue {
    let (fill, line, name) = match kind {
        Kind::Input => ("#ffffff", "#404040", "input"),
        Kind::Outside => ("#f4f4f4", "#8a8a8a", "outside"),
        Kind::Embedding => ("#e3f0fa", "#2f7fb8", "embedding"),
        Kind::Linear => ("#fdf0dc", "#c17d00", "linear"),
        Kind::Attention => ("#f8e6f0", "#b0588a", "attention"),
        Kind::Mask => ("#efefef", "#6b6b6b", "mask"),
        Kind::Stream => ("#e2f3ed", "#00825f", "stream"),
        Kind::Activation => ("#fbf8d8", "#a39a00", "activation"),
        Kind::Stack => ("#dfe8f3", "#1f4e79", "stack"),
        Kind::Output => ("#ffffff", "#404040", "output"),
    };
    Hue { fill, line, name }
}

/// The border of a hole: Okabe and Ito's vermilion, always with a dash, so that it shows without colour too.
pub(crate) const HOLE: &str = "#c44600";
