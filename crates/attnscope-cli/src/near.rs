//! Names near to one that was mistyped.

/// How many are worth listing.
const MOST: usize = 5;

/// The names that take the fewest changes to become `wanted`, or a part of which does.
pub(crate) fn nearest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let wanted: String = wanted.chars().filter(|c| *c != '*').take(LONGEST).collect();
    let distance = |name: &str| {
        // Layers differ in nothing but their number: what is after it decides.
        let tails = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        std::iter::once(name).chain(tails).map(|part| edits(&wanted, part)).min().unwrap_or(usize::MAX)
    };
    let mut ranked: Vec<(usize, &str)> = names.map(|name| (distance(name), name)).collect();
    ranked.sort_by_key(|&(distance, _)| distance);
    ranked.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// No node's name is longer.
const LONGEST: usize = 64;

/// Levenshtein's distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let change = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = change.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_near() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        let names = ["encoder.0.self_attn.q", "decoder.0.cross_attn.weights", "logits", "src.ids"];
        assert_eq!(nearest("crossattn.weights", names.into_iter())[0], "decoder.0.cross_attn.weights");
        assert_eq!(nearest("logit", names.into_iter())[0], "logits");
    }
}
