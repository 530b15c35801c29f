//! The ideas behind an encoder-decoder and the text classifiers, each explained with the numbers of the given model.

mod attention;
mod blocks;
mod parts;
mod stream;

use super::Concept;

pub(super) use attention::{mask_rows, row_sums};
pub(super) use stream::output;

pub(super) const CONCEPTS: &[Concept] = &[
    Concept {
        id: "scaled-dot-product",
        title: "why scores are scaled before the softmax",
        of_two_stacks: false,
        tell: attention::scaled,
    },
    Concept { id: "heads", title: "why the width is split", of_two_stacks: false, tell: attention::heads },
    Concept { id: "masks", title: "what each attention masks", of_two_stacks: false, tell: attention::masks },
    Concept {
        id: "cross-attention",
        title: "how the decoder reads its source",
        of_two_stacks: true,
        tell: attention::cross,
    },
    Concept {
        id: "relative-bias",
        title: "distances as a learned bias",
        of_two_stacks: false,
        tell: attention::relative,
    },
    Concept {
        id: "residual-and-norm",
        title: "the stream that every sublayer adds to",
        of_two_stacks: false,
        tell: stream::residual,
    },
    Concept {
        id: "positions",
        title: "how the order of tokens is encoded",
        of_two_stacks: false,
        tell: stream::positions,
    },
    Concept {
        id: "teacher-forcing",
        title: "what the decoder reads and what it predicts",
        of_two_stacks: true,
        tell: stream::forcing,
    },
    Concept {
        id: "output-projection",
        title: "from d_model to the vocabulary",
        of_two_stacks: false,
        tell: stream::output,
    },
    Concept {
        id: "embeddings",
        title: "from tokens to vectors",
        of_two_stacks: false,
        tell: parts::embeddings,
    },
    Concept {
        id: "feed-forward",
        title: "what each position does by itself",
        of_two_stacks: false,
        tell: parts::feed_forward,
    },
    Concept {
        id: "decoding",
        title: "how a sentence is generated",
        of_two_stacks: true,
        tell: parts::decoding,
    },
    Concept {
        id: "lstm",
        title: "reading position by position",
        of_two_stacks: false,
        tell: blocks::recurrent,
    },
    Concept {
        id: "convolution",
        title: "a window along the positions",
        of_two_stacks: false,
        tell: blocks::convolution,
    },
    Concept {
        id: "pooling",
        title: "one vector of all positions",
        of_two_stacks: false,
        tell: blocks::pooling,
    },
    Concept {
        id: "dropout",
        title: "values left out at random",
        of_two_stacks: false,
        tell: blocks::dropout,
    },
];
