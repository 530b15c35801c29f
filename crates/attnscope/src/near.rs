//! Names similar to a mistyped one.

use strsim::levenshtein;

/// How many are listed.
const MOST: usize = 5;

/// The names with the smallest edit distance to `wanted`, as a whole or in a part.
pub fn nearest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let wanted: String = wanted.chars().filter(|c| *c != '*').take(LONGEST).collect();
    let distance = |name: &str| {
        // Layers differ only in their number, so the text after it decides.
        let tails = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        std::iter::once(name).chain(tails).map(|part| levenshtein(&wanted, part)).min().unwrap_or(usize::MAX)
    };
    let mut ranked: Vec<(usize, &str)> = names.map(|name| (distance(name), name)).collect();
    ranked.sort_by_key(|&(distance, _)| distance);
    ranked.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// No node's name is longer.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_near() {
        let names = ["encoder.0.self_attn.q", "decoder.0.cross_attn.weights", "logits", "src.ids"];
        assert_eq!(nearest("crossattn.weights", names.into_iter())[0], "decoder.0.cross_attn.weights");
        assert_eq!(nearest("logit", names.into_iter())[0], "logits");
    }
}
