//! The words that explain a node: a formula and a sentence, for every operation.

use crate::dim::{Sizes, Stack};
use crate::graph::Node;
use crate::op::Op;
use crate::role::{AttentionKind, AttentionStep, FeedForwardStep, LayerStep, Role};
use crate::wiring::{NormKind, PositionCount, Positions, Squash};

/// The formula of a node, with numbers where they are known.
pub fn formula(node: &Node, sizes: &Sizes, symbolic: bool) -> String {
    match node.op {
        Op::Ids(side) => format!("{} token ids", side.word()),
        Op::TypeIds(side) => format!("{} token types", side.word()),
        Op::Features => "log-mel spectrogram".into(),
        Op::Embed { scale: crate::Factor::One } => "E[id]".into(),
        Op::Embed { scale } => format!("E[id] × {}", scale.text(sizes, symbolic)),
        Op::Positions { kind, offset, .. } => match kind {
            Positions::Table if offset > 0 => format!("P[position + {offset}]"),
            Positions::Table => "P[position]".into(),
            _ => "sin, cos of position × frequency".into(),
        },
        Op::AddPositions if node.inputs.len() > 2 => "embeddings + positions + types".into(),
        Op::AddPositions => "embeddings + positions".into(),
        Op::Conv1d { stride } => format!("conv, kernel 3, stride {stride}"),
        Op::Transpose => "channels last".into(),
        Op::Same => "the same value".into(),
        Op::Norm { kind, .. } => {
            let scaled = match kind {
                NormKind::Layer => "(x − mean) / √(var + eps)",
                NormKind::Rms => "x / √(mean x² + eps)",
            };
            format!("{scaled} × g{}", if node.weights.len() > 1 { " + b" } else { "" })
        }
        Op::Linear if node.weights.len() > 1 => "x·Wᵀ + b".into(),
        Op::Linear => "x·Wᵀ".into(),
        Op::SplitHeads(_) => "split into heads".into(),
        Op::Rotate { base, .. } => format!("rotate pair i by p·{base}^(−2i/K)"),
        Op::Scores { scale: crate::Factor::One } => "q·kᵀ, scale 1".into(),
        Op::Scores { scale } => format!("q·kᵀ × {}", scale.text(sizes, symbolic)),
        Op::RelativeBias { .. } => "table[bucket(key − query)]".into(),
        Op::Mask(_) => "0 where visible, −∞ where masked".into(),
        Op::AddMask { bias, mask } => {
            let added = [(bias, " + bias"), (mask, " + mask")];
            let added = added.iter().filter(|(is, _)| *is).map(|(_, text)| *text);
            format!("scores{}", added.collect::<String>())
        }
        Op::Squash(Squash::Softmax) => "softmax over keys".into(),
        Op::Squash(Squash::Sigmoid) => "sigmoid of each cell".into(),
        Op::Context => "weights·v".into(),
        Op::MergeHeads(_) => "heads side by side".into(),
        Op::Residual { gain: 1.0 } => "x + sublayer(x)".into(),
        Op::Residual { gain } => format!("x + {gain} × sublayer(x)"),
        Op::Activate(activation) => activation.name().into(),
        Op::Gate => "act × gate".into(),
        Op::Logits { scale } => {
            let times = match scale {
                crate::Factor::One => String::new(),
                _ => format!(" × {}", scale.text(sizes, symbolic)),
            };
            let bias = if node.weights.len() > 1 { " + b" } else { "" };
            format!("x·Wᵀ{times}{bias}")
        }
    }
}

/// A sentence on what a node is for.
pub fn sentence(node: &Node) -> &'static str {
    match node.op {
        Op::Ids(_) => "The token ids that enter this side of the model.",
        Op::TypeIds(_) => "Which of two texts each token belongs to; a single text has type 0 throughout.",
        Op::Features => "The audio as the encoder sees it: the energy in each mel band of each frame.",
        Op::Embed { .. } => "Each id is replaced by its row of the embedding table.",
        Op::Positions { .. } => "A vector for each position, so that order is visible to attention.",
        Op::AddPositions => "Embeddings with their positions: what the first layer reads.",
        Op::Conv1d { .. } => {
            "Neighbouring frames are mixed into features; the second convolution halves the frames."
        }
        Op::Transpose => "Frames become positions: time moves to where tokens are in text models.",
        Op::Same => match node.role {
            Role::Layer(_, _, LayerStep::FeedForward(_)) => {
                "What the feed-forward reads: the stream after attention."
            }
            Role::Layer(_, _, LayerStep::In) => {
                "What the layer reads: the stream as it was left by what came before."
            }
            Role::Layer(_, _, LayerStep::Out) => {
                "What the layer leaves in the stream for what comes after it."
            }
            Role::StackOut(Stack::Encoder) => "The encoder's result, which every cross-attention reads.",
            Role::StackOut(Stack::Decoder) => "The decoder's result, which the output projection reads.",
            _ => "A second name for a value.",
        },
        Op::Norm { .. } => "Each position's features are brought to a common scale.",
        Op::Linear => linear_sentence(node.role),
        Op::SplitHeads(_) => "The width is cut into heads that attend independently.",
        Op::Rotate { .. } => {
            "Each pair of features is rotated by an angle that grows with the position, so that a score depends on the distance."
        }
        Op::Scores { .. } => "How well each query fits each key, before anything is hidden.",
        Op::RelativeBias { .. } => "A learned preference for distances, one a head, added to the scores.",
        Op::Mask(_) => "Which keys each query may see.",
        Op::AddMask { .. } => "The scores with what must not be seen pushed to minus infinity.",
        Op::Squash(_) => "How much of each key's value every query takes.",
        Op::Context => "The values, averaged with the weights, head by head.",
        Op::MergeHeads(_) => "The heads' results side by side again.",
        Op::Residual { .. } => "The sublayer's result is added to the stream that passed it by.",
        Op::Activate(_) => "The non-linearity, element by element.",
        Op::Gate => "One projection lets the other through, feature by feature.",
        Op::Logits { .. } => "A score for every token of the vocabulary at every position.",
    }
}

/// A sentence on what a linear map is for.
fn linear_sentence(role: Role) -> &'static str {
    use AttentionKind::{CrossAttention, SelfAttention};
    use AttentionStep::{K, Out, Q, V};
    match role {
        Role::Layer(_, _, LayerStep::Attention(kind, step)) => match (kind, step) {
            (CrossAttention, Q) => {
                "What each target position asks of the source, a learned map of the decoder's stream."
            }
            (CrossAttention, K) => {
                "What each source position can be found by, a learned map of the encoder's output."
            }
            (CrossAttention, V) => {
                "What each source position gives when it is looked at, from the encoder's output."
            }
            (SelfAttention, Q) => "What each position asks for: a learned map of the stream.",
            (SelfAttention, K) => "What each position can be found by: a learned map of the stream.",
            (SelfAttention, V) => {
                "What each position gives when it is looked at: a learned map of the stream."
            }
            (_, Out) => "The heads' results, mixed and brought back to the stream's width.",
            _ => "A learned map, the same at every position.",
        },
        Role::Layer(_, _, LayerStep::FeedForward(step)) => match step {
            FeedForwardStep::Hidden => {
                "Each position by itself, widened to the features that the activation works on."
            }
            FeedForwardStep::Gate => "A second projection, which lets the first through feature by feature.",
            FeedForwardStep::Out => "Each position brought back to the stream's width.",
            _ => "A learned map, the same at every position.",
        },
        _ => "A learned map, the same at every position.",
    }
}

/// Why a node's tensor has the shape it has.
pub fn why_shape(node: &Node) -> &'static str {
    match node.op {
        Op::Ids(_) => "one id a position, one row a sentence",
        Op::TypeIds(_) => "one type a position, one row a sentence",
        Op::Features => "one column a frame of 10 ms, one row a mel band",
        Op::Embed { .. } => {
            "each id becomes a row of d_model numbers; the table's height, the vocabulary, is gone"
        }
        Op::Positions { count: PositionCount::Places, .. } => {
            "one vector a position, the same for every sentence"
        }
        Op::Positions { count: PositionCount::Tokens, .. } => {
            "one vector a position; padding makes sentences differ"
        }
        Op::AddPositions => "a sum keeps the shape: positions are repeated for every sentence",
        Op::Conv1d { stride: 1 } => {
            "a kernel of 3 with one zero at each end keeps the frames; channels become d_model"
        }
        Op::Conv1d { .. } => "stride 2 keeps every second frame",
        Op::Transpose => {
            "channels and frames change places, so that frames stand where tokens stand in text models"
        }
        Op::Same => "the same tensor under another name",
        Op::Norm { .. } => "each position is normed over its own features, so nothing is added or dropped",
        Op::Linear => "the map acts on the last dimension only: the weight's rows are the new width",
        Op::SplitHeads(_) => {
            "the width H·K is cut into H slices of K, and the heads move before the positions"
        }
        Op::Rotate { .. } => "a rotation keeps the shape: two features become two",
        Op::Scores { .. } => {
            "every query meets every key, in every head: queries are rows, keys are columns; square only where both \
             come from the same sequence"
        }
        Op::RelativeBias { .. } => {
            "one number for each head and each pair of positions, the same for every sentence"
        }
        Op::Mask(_) => "one number for each pair of positions, the same for every head",
        Op::AddMask { .. } => "bias and mask are repeated over batch or heads, and added cell by cell",
        Op::Squash(Squash::Softmax) => "each row of scores becomes a row of weights that adds up to 1",
        Op::Squash(Squash::Sigmoid) => "each score becomes a weight by itself",
        Op::Context => {
            "the sum over keys removes their dimension: each query is left with one vector of K a head"
        }
        Op::MergeHeads(_) => "H vectors of K side by side are H·K again",
        Op::Residual { .. } => {
            "two tensors can only be added if their shapes agree: every sublayer returns d_model"
        }
        Op::Activate(_) => "element by element",
        Op::Gate => "two tensors of one shape, multiplied element by element",
        Op::Logits { .. } => "the last dimension goes from d_model to one score a token of the vocabulary",
    }
}
