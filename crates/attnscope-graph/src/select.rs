//! Selectors: globs over node paths.

use crate::graph::NodePath;

/// A pattern that picks nodes. `*` stands for anything; a bare word or run of segments picks every path that has
/// it: `cross_attn` is `*.cross_attn.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(String);

impl Selector {
    /// A selector from the command line. Every text is one; it may match nothing.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// The pattern as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it picks a node.
    pub fn matches(&self, path: &NodePath) -> bool {
        let path = path.as_str();
        if self.0.contains('*') {
            // It may begin at any segment, and a pattern that names a part picks everything in the part.
            let starts =
                std::iter::once(path).chain(path.match_indices('.').map(|(dot, _)| &path[dot + 1..]));
            return starts
                .into_iter()
                .any(|from| glob(&self.0, from) || glob(&format!("{}.*", self.0), from));
        }
        format!(".{path}.").contains(&format!(".{}.", self.0))
    }
}

/// Whether `text` fits a pattern in which `*` stands for any run of characters.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_pick_what_they_say() {
        let cases = [
            ("cross_attn", "decoder.0.cross_attn.q", true),
            ("cross_attn", "decoder.0.self_attn.q", false),
            ("decoder.*.cross_attn.weights", "decoder.11.cross_attn.weights", true),
            ("decoder.*.cross_attn.weights", "decoder.11.cross_attn.weights_x", false),
            ("decoder.1", "decoder.1.ffn.act", true),
            ("decoder.1", "decoder.11.ffn.act", false),
            ("*.ffn", "encoder.0.ffn.out", true),
            ("cross_attn.*", "decoder.0.cross_attn.q", true),
            ("attn.*", "decoder.0.cross_attn.q", false),
            ("logits", "logits", true),
            ("*", "src.ids", true),
            ("", "src.ids", false),
            ("q", "decoder.0.cross_attn.q_heads", false),
        ];
        for (pattern, path, expected) in cases {
            let path = NodePath::from(path.to_owned());
            assert_eq!(Selector::new(pattern).matches(&path), expected, "{pattern} on {path}");
        }
    }
}
