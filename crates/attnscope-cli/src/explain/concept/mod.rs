//! The ideas behind an encoder-decoder, each told with the numbers of the model at hand.

mod attention;
mod parts;
mod stream;

use super::Concept;

pub(super) use attention::{mask_rows, row_sums};
pub(super) use stream::output;

pub(super) const CONCEPTS: &[Concept] = &[
    Concept {
        id: "scaled-dot-product",
        title: "why scores are scaled before the softmax",
        tell: attention::scaled,
    },
    Concept { id: "heads", title: "why the width is split", tell: attention::heads },
    Concept { id: "masks", title: "what each attention may not see", tell: attention::masks },
    Concept { id: "cross-attention", title: "how the decoder reads its source", tell: attention::cross },
    Concept { id: "relative-bias", title: "distances as a learned bias", tell: attention::relative },
    Concept {
        id: "residual-and-norm",
        title: "the stream that every sublayer adds to",
        tell: stream::residual,
    },
    Concept { id: "positions", title: "how order gets in", tell: stream::positions },
    Concept {
        id: "teacher-forcing",
        title: "what the decoder reads and what it should write",
        tell: stream::forcing,
    },
    Concept { id: "output-projection", title: "from d_model to the vocabulary", tell: stream::output },
    Concept { id: "embeddings", title: "from tokens to vectors", tell: parts::embeddings },
    Concept { id: "feed-forward", title: "what each position does by itself", tell: parts::feed_forward },
    Concept { id: "decoding", title: "how a sentence is generated", tell: parts::decoding },
];
