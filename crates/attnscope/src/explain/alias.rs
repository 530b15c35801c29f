//! Other words for a topic, for users who do not know its name here.

/// Words, and the topics they are about: the first is shown, the others are named under it. Case, spaces, hyphens and
/// underscores do not matter, and the beginning of a word is enough where it decides.
const ALIASES: &[(&[&str], &[&str])] = &[
    (
        &["attention", "attn", "self attention", "self attn", "dot product", "sdpa", "attention weights"],
        &["scaled-dot-product", "heads", "masks", "cross-attention", "q2", "q3"],
    ),
    (
        &["softmax", "scale", "scaling", "score scale", "temperature", "sqrt", "logsumexp"],
        &["scaled-dot-product", "masks", "output-projection"],
    ),
    (&["score", "score matrix", "square"], &["q3", "scaled-dot-product", "masks"]),
    (
        &["head", "multi head", "multi head attention", "mha", "d head", "head dim", "d kv", "num heads"],
        &["heads", "q2", "dead-head", "duplicate-heads"],
    ),
    (
        &["q", "k", "v", "qkv", "query", "queries", "key", "keys", "value", "values", "qkv projection"],
        &["q2", "scaled-dot-product", "heads"],
    ),
    (
        &["mask", "masking", "attention mask", "masked scores", "fully masked row"],
        &["masks", "q4", "causal-leak", "padding-leak", "cross-mask-fault"],
    ),
    (
        &["causal", "causal mask", "look ahead", "autoregressive", "future", "decoder mask"],
        &["q4", "masks", "teacher-forcing", "causal-leak"],
    ),
    (&["padding", "pad", "padding mask", "key padding mask"], &["masks", "padding-leak", "cross-mask-fault"]),
    (
        &["cross", "cross attn", "encoder decoder attention", "encoder attn", "memory", "alignment"],
        &["cross-attention", "q3", "source-ignored"],
    ),
    (
        &["relative position", "relative position bias", "relative attention bias", "bucket", "distance"],
        &["relative-bias", "positions"],
    ),
    (
        &[
            "residual",
            "residual connection",
            "residual stream",
            "stream",
            "skip",
            "skip connection",
            "shortcut",
        ],
        &["residual-and-norm", "q5", "q6"],
    ),
    (
        &[
            "norm",
            "layer norm",
            "rms norm",
            "pre norm",
            "post norm",
            "normalization",
            "normalisation",
            "eps",
            "epsilon",
            "gain",
            "gradient",
        ],
        &["residual-and-norm", "q5"],
    ),
    (
        &[
            "rnn",
            "recurrent",
            "recurrence",
            "bilstm",
            "bidirectional",
            "forget gate",
            "hidden state",
            "last state",
        ],
        &["lstm", "pooling"],
    ),
    (&["conv", "conv1d", "kernel", "stride", "receptive field"], &["convolution", "pooling"]),
    (&["pool", "max pool", "mean pool", "average pool"], &["pooling", "convolution"]),
    (&["drop", "regularization", "regularisation"], &["dropout"]),
    (&["d model", "hidden size", "width"], &["q6", "q1"]),
    (
        &[
            "position",
            "positional encoding",
            "positional embedding",
            "position embedding",
            "sinusoid",
            "sinusoidal",
            "rotary",
            "rope",
            "order",
        ],
        &["positions", "relative-bias", "position-ignored", "past-positions"],
    ),
    (
        &[
            "teacher",
            "forcing",
            "shift",
            "shift right",
            "decoder input",
            "labels",
            "training",
            "start token",
            "bos",
        ],
        &["teacher-forcing", "q4", "decoding"],
    ),
    (
        &[
            "output",
            "projection",
            "lm head",
            "unembedding",
            "vocabulary",
            "vocab",
            "tied",
            "tying",
            "weight tying",
            "generator",
            "probability",
            "probabilities",
        ],
        &["output-projection", "embeddings"],
    ),
    (
        &[
            "ffn",
            "mlp",
            "fc1",
            "fc2",
            "hidden",
            "activation",
            "relu",
            "gelu",
            "swish",
            "silu",
            "gate",
            "gated",
            "glu",
            "d ff",
            "intermediate",
            "pointwise",
            "linear",
        ],
        &["feed-forward", "q6"],
    ),
    (
        &[
            "embedding",
            "embed",
            "lookup",
            "token",
            "tokenizer",
            "token ids",
            "embedding table",
            "embedding scale",
        ],
        &["embeddings", "positions", "output-projection"],
    ),
    (
        &[
            "beam",
            "beam search",
            "greedy",
            "generate",
            "generation",
            "search",
            "decode",
            "length penalty",
            "eos",
            "end token",
            "cache",
            "kv cache",
            "inference",
        ],
        &["decoding", "teacher-forcing", "output-projection"],
    ),
    (&["shape", "shapes", "dims", "dimension", "tensor", "batch"], &["q1", "q5", "q6"]),
    (
        &["encoder", "decoder", "transformer", "architecture", "layer"],
        &["q1", "cross-attention", "residual-and-norm"],
    ),
];

/// A word in normalised form: `Layer-Norm` is `layernorm`.
pub(super) fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

/// What a word is about, the first first; nothing where it is not known.
pub(super) fn about(word: &str) -> Option<&'static [&'static str]> {
    let word = plain(word);
    let singular = word.strip_suffix('s').filter(|w| w.len() > 2);
    let is = |name: &&str| plain(name) == word || singular.is_some_and(|singular| plain(name) == singular);
    ALIASES.iter().find(|(words, _)| words.iter().any(&is)).map(|(_, topics)| *topics)
}

/// Every other word with the topic that it leads to.
pub(super) fn words() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALIASES
        .iter()
        .flat_map(|(words, topics)| words.iter().zip(std::iter::repeat(topics[0])))
        .map(|(w, t)| (*w, t))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{CONCEPTS, QUESTIONS};
    use super::*;

    #[test]
    fn every_word_stands_once_and_leads_to_topics_that_exist() {
        let ids: Vec<&str> = CONCEPTS.iter().chain(QUESTIONS).map(|c| c.id).collect();
        let rules: Vec<&str> = attnscope_diagnose::rules().iter().map(|rule| rule.id).collect();
        let mut seen = BTreeSet::new();
        for (words, topics) in ALIASES {
            assert!(words.iter().all(|word| seen.insert(plain(word))), "{words:?}: one of them stands twice");
            assert!(ids.contains(&topics[0]), "{topics:?}");
            assert!(topics.iter().all(|topic| ids.contains(topic) || rules.contains(topic)), "{topics:?}");
        }
    }

    #[test]
    fn spelling_does_not_matter() {
        for word in ["LayerNorm", "layer norm", "layer-norm", "layer_norms", "Layer Norm"] {
            assert_eq!(about(word).map(|t| t[0]), Some("residual-and-norm"), "{word}");
        }
        assert_eq!(about("flux"), None);
    }
}
