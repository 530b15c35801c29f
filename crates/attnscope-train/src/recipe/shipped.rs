//! The recipes that the program carries.

/// Their names and texts.
pub const SHIPPED: [(&str, &str); 8] = [
    ("imdb-attention", include_str!("../../../../recipes/imdb-attention.toml")),
    ("imdb-bilstm", include_str!("../../../../recipes/imdb-bilstm.toml")),
    ("imdb-conv", include_str!("../../../../recipes/imdb-conv.toml")),
    ("imdb-conv-maxpool", include_str!("../../../../recipes/imdb-conv-maxpool.toml")),
    ("imdb-mlp", include_str!("../../../../recipes/imdb-mlp.toml")),
    ("imdb-rnn", include_str!("../../../../recipes/imdb-rnn.toml")),
    ("multi30k-en-de", include_str!("../../../../recipes/multi30k-en-de.toml")),
    ("toy", include_str!("../../../../recipes/toy.toml")),
];

/// The text of a recipe by its name.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}
