//! A formula and a sentence for every operation.

use crate::block::RecurrentCell;
use crate::dim::{Dim, Side, Sizes, Stack};
use crate::graph::Node;
use crate::kv_sharing::KvSharing;
use crate::op::{Capped, Op, Pooling};
use crate::role::{AttentionKind, AttentionStep, BlockStep, EntryStep, FeedForwardStep, LayerStep, Role};
use crate::rotary::Rotary;
use crate::wiring::{NormGain, NormKind, Normaliser, PositionCount, Positions};

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
        Op::Conv1d { kernel, stride, .. } => format!("conv, kernel {kernel}, stride {stride}"),
        Op::Transpose if node.role == Role::Entry(Side::Source, EntryStep::Embed) => "channels last".into(),
        Op::Transpose => "channels and positions change places".into(),
        Op::Recur { cell: RecurrentCell::Rnn, .. } => "h = tanh(x + h₋₁·Wᵀ + b)".into(),
        Op::Recur { cell: RecurrentCell::Lstm, .. } => {
            "i, f, g, o of x + h₋₁·Wᵀ + b; c = f×c₋₁ + i×g; h = o×tanh(c)".into()
        }
        Op::Hidden => "h of h and c".into(),
        Op::Beside => "side by side".into(),
        Op::LastState { reverse: false } => "h at the last position".into(),
        Op::LastState { reverse: true } => "h at the first position, read last".into(),
        Op::Pool { pooling: Pooling::Max, .. } => "max over positions".into(),
        Op::Pool { pooling: Pooling::Mean, .. } => "mean over positions".into(),
        Op::Pool { pooling: Pooling::First, .. } => "the first position".into(),
        Op::Pool { pooling: Pooling::Last, .. } => "the position of the source's last token".into(),
        Op::Flatten { .. } => "all positions in one row".into(),
        Op::Dropout { p } => format!("dropout {p}, while training"),
        Op::Same => "the same value".into(),
        Op::Norm { kind, gain, .. } => {
            let scaled = match kind {
                NormKind::Layer => "(x − mean) / √(var + eps)",
                NormKind::Rms => "x / √(mean x² + eps)",
            };
            let gain = match gain {
                NormGain::Weight => "g",
                NormGain::OnePlusWeight => "(1 + g)",
            };
            format!("{scaled} × {gain}{}", if node.weights.len() > 1 { " + b" } else { "" })
        }
        Op::Linear if node.weights.len() > 1 => "x·Wᵀ + b".into(),
        Op::Linear => "x·Wᵀ".into(),
        Op::SplitHeads(_) => "split into heads".into(),
        Op::Rotate { rotary, .. } => rotation(rotary),
        Op::SoftCap { cap, .. } => format!("{cap} × tanh(x / {cap})"),
        Op::Scores { scale: crate::Factor::One, sharing } => format!("q·kᵀ, scale 1{}", tiled(sharing)),
        Op::Scores { scale, sharing } => format!("q·kᵀ × {}{}", scale.text(sizes, symbolic), tiled(sharing)),
        Op::RelativeBias { .. } => "table[bucket(key − query)]".into(),
        Op::Mask(_) => "0 where visible, −∞ where masked".into(),
        Op::AddMask { bias, mask } => {
            let added = [(bias, " + bias"), (mask, " + mask")];
            let added = added.iter().filter(|(is, _)| *is).map(|(_, text)| *text);
            format!("scores{}", added.collect::<String>())
        }
        Op::Normalise(Normaliser::Softmax) => "softmax over keys".into(),
        Op::Normalise(Normaliser::Sigmoid) => "sigmoid of each cell".into(),
        Op::Context { sharing } => format!("weights·v{}", tiled(sharing)),
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

/// What is said of heads of keys and values that are shared in another order than the usual one.
fn tiled(sharing: KvSharing) -> &'static str {
    match sharing {
        KvSharing::Repeat => "",
        KvSharing::Tile => ", every so many heads share k and v",
    }
}

/// By which angle a pair of features is rotated.
fn rotation(rotary: Rotary) -> String {
    let Rotary { base, share, scaling, .. } = rotary;
    let (first, exponent) = match share {
        1.0 => (String::new(), "−2i/K".to_owned()),
        _ => (format!(" of the first {share}·K features"), format!("−2i/({share}·K)")),
    };
    let scaled = scaling.map(|scaling| format!(", {scaling}")).unwrap_or_default();
    format!("rotate pair i{first} by p·{base}^({exponent}){scaled}")
}

/// What a node is for, in a sentence.
pub fn sentence(node: &Node) -> &'static str {
    match node.op {
        Op::Ids(_) => "The token ids that enter this side of the model.",
        Op::TypeIds(_) => "Which of two texts each token belongs to; in a single text all types are 0.",
        Op::Features => "The audio as the encoder reads it: the energy in each mel band of each frame.",
        Op::Embed { .. } => "Each id is replaced by its row of the embedding table.",
        Op::Positions { .. } => "A vector for each position, so that order is visible to attention.",
        Op::AddPositions => "Embeddings with their positions: what the first layer reads.",
        Op::Conv1d { .. } if matches!(node.role, Role::Block(..)) => {
            "A window slides along the positions; what stands in it is mixed into new features."
        }
        Op::Conv1d { stride: 1, .. } => "Neighbouring frames are mixed into features.",
        Op::Conv1d { .. } => "Neighbouring frames are mixed into features, and fewer frames are left.",
        Op::Transpose if matches!(node.role, Role::Block(..)) => {
            "Features and positions change places, as the next step reads them."
        }
        Op::Transpose => "Frames become positions: time moves to where tokens are in text models.",
        Op::Same => match node.role {
            Role::Layer(_, _, LayerStep::FeedForward(_)) => {
                "What the feed-forward reads: the stream after attention."
            }
            Role::Layer(_, _, LayerStep::In) => {
                "What the layer reads: the residual stream after the layers before it."
            }
            Role::Layer(_, _, LayerStep::Out) => "The residual stream after this layer.",
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
        Op::Scores { .. } => "How well each query fits each key, before the mask.",
        Op::SoftCap { of: Capped::Scores, .. } => {
            "Scores pressed together, so that none is larger than the cap."
        }
        Op::SoftCap { of: Capped::Logits, .. } => {
            "Logits pressed together, so that none is larger than the cap."
        }
        Op::RelativeBias { .. } => "A learned bias per distance and head, added to the scores.",
        Op::Mask(_) => "Which keys each query may see.",
        Op::AddMask { .. } => "The scores with masked keys at minus infinity.",
        Op::Normalise(_) => "How much of each key's value every query takes.",
        Op::Context { .. } => "The values, averaged with the weights, head by head.",
        Op::MergeHeads(_) => "The heads' results side by side again.",
        Op::Residual { .. } => "The sublayer's output is added to the residual stream.",
        Op::Activate(_) => "The non-linearity, element by element.",
        Op::Gate => "One projection gates the other, feature by feature.",
        Op::Recur { .. } => {
            "A state that is carried from position to position and takes in each position's input."
        }
        Op::Hidden => "The state that others read; the cell state stays within the layer.",
        Op::Beside => "Both directions' features in one row.",
        Op::LastState { .. } => "What the layer knows once it has read all positions.",
        Op::Pool { .. } => "One value of each feature for the whole text, whatever its length.",
        Op::Flatten { .. } => "Every position keeps features of its own: the order of words stays visible.",
        Op::Dropout { .. } => {
            "Some values are set to 0 at random while training; nothing happens outside of it."
        }
        Op::Logits { .. } if is_of_classes(node) => "A score for every class.",
        Op::Logits { .. } => "A score for every token of the vocabulary at every position.",
    }
}

/// Whether logits are scores of classes, not of tokens.
fn is_of_classes(node: &Node) -> bool {
    matches!(node.dims.last(), Some(Dim::Fixed(_)))
}

/// What a linear map is for, in a sentence.
fn linear_sentence(role: Role) -> &'static str {
    use AttentionKind::{CrossAttention, SelfAttention};
    use AttentionStep::{K, Out, Q, V};
    match role {
        Role::Layer(_, _, LayerStep::Attention(kind, step)) => match (kind, step) {
            (CrossAttention, Q) => {
                "What each target position looks for in the source: a learned map of the decoder's stream."
            }
            (CrossAttention, K) => "What queries are compared with: a learned map of the encoder's output.",
            (CrossAttention, V) => {
                "What attention takes from each source position: a learned map of the encoder's output."
            }
            (SelfAttention, Q) => "What each position looks for: a learned map of the stream.",
            (SelfAttention, K) => "What queries are compared with: a learned map of the stream.",
            (SelfAttention, V) => "What attention takes from each position: a learned map of the stream.",
            (_, Out) => "The heads' results, mixed and brought back to the stream's width.",
            _ => "A learned map, the same at every position.",
        },
        Role::Layer(_, _, LayerStep::FeedForward(step)) => match step {
            FeedForwardStep::Hidden => {
                "Each position by itself, widened to the features that the activation works on."
            }
            FeedForwardStep::Gate => "A second projection, which gates the first, feature by feature.",
            FeedForwardStep::Out => "Each position brought back to the stream's width.",
            _ => "A learned map, the same at every position.",
        },
        Role::Block(_, BlockStep::Recurrent(..)) => {
            "What each position gives to the gates, for all positions at once; the state comes to it step by step."
        }
        Role::Block(..) => "A learned map of all features.",
        _ => "A learned map, the same at every position.",
    }
}

/// Why a node's tensor has the shape it has.
pub fn why_shape(node: &Node) -> &'static str {
    match node.op {
        Op::Ids(_) => "one id per position, one row per sentence",
        Op::TypeIds(_) => "one type per position, one row per sentence",
        Op::Features => "one column per frame of 10 ms, one row per mel band",
        Op::Embed { .. } => {
            "each id becomes a row of d_model numbers; the table's height, the vocabulary, is gone"
        }
        Op::Positions { count: PositionCount::Places, .. } => {
            "one vector per position, the same for every sentence"
        }
        Op::Positions { count: PositionCount::Tokens, .. } => {
            "one vector per position; padding makes sentences differ"
        }
        Op::AddPositions => "a sum keeps the shape: positions are repeated for every sentence",
        Op::Conv1d { stride: 1, padding: 1, .. } => {
            "a kernel of 3 with one zero at each end keeps the frames; channels become d_model"
        }
        Op::Conv1d { stride: 2, padding: 1, .. } => "stride 2 keeps every second frame",
        Op::Conv1d { .. } => "one column a window: (positions − kernel) / stride + 1, rounded down",
        Op::Recur { cell: RecurrentCell::Rnn, .. } => "one state a position",
        Op::Recur { cell: RecurrentCell::Lstm, .. } => "h and c of one position, side by side",
        Op::Hidden => "the first half of h and c",
        Op::Beside => "features add up, positions stay",
        Op::LastState { .. } => "one position is left of all",
        Op::Pool { .. } => "positions are gone: one number a feature",
        Op::Flatten { .. } => "positions × features in one row",
        Op::Dropout { .. } => "element by element",
        Op::Transpose if matches!(node.role, Role::Block(..)) => "features and positions change places",
        Op::Transpose => {
            "channels and frames are transposed, so that frames are where tokens are in text models"
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
        Op::SoftCap { .. } => "element by element",
        Op::RelativeBias { .. } => {
            "one number for each head and each pair of positions, the same for every sentence"
        }
        Op::Mask(_) => "one number for each pair of positions, the same for every head",
        Op::AddMask { .. } => "bias and mask are repeated over batch or heads, and added cell by cell",
        Op::Normalise(Normaliser::Softmax) => "each row of scores becomes a row of weights that adds up to 1",
        Op::Normalise(Normaliser::Sigmoid) => "each score becomes a weight by itself",
        Op::Context { .. } => {
            "the sum over keys removes their dimension: each query gets one vector of K per head"
        }
        Op::MergeHeads(_) => "H vectors of K side by side are H·K again",
        Op::Residual { .. } => {
            "two tensors can only be added if their shapes agree: every sublayer returns d_model"
        }
        Op::Activate(_) => "element by element",
        Op::Gate => "two tensors of one shape, multiplied element by element",
        Op::Logits { .. } if is_of_classes(node) => "one score a class",
        Op::Logits { .. } => "the last dimension goes from d_model to one score per token of the vocabulary",
    }
}
