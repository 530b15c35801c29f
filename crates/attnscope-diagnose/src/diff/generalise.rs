//! Pairs of names as lines of a map, with a pattern where layers repeat.

use std::collections::HashMap;

use super::map::quoted;
use super::propose::Evidence;

/// A pair by its names.
#[derive(Clone, Copy)]
pub(super) struct Named<'n> {
    pub(super) tensor: &'n str,
    pub(super) node: &'n str,
    pub(super) evidence: Evidence,
}

/// One line for all pairs that a pattern with `{n}` gives, one for each of the others. Where no values are equal, the line is a
/// comment: a wrong pair of names would look like a bug.
pub(super) fn generalised(pairs: &[Named<'_>]) -> Vec<String> {
    // For each pair, the patterns that it may be an instance of; for each pattern, its instances.
    let options: Vec<Vec<(String, String)>> =
        pairs.iter().map(|pair| patterns(pair.tensor, pair.node)).collect();
    let mut instances: HashMap<&(String, String), Vec<usize>> = HashMap::new();
    for (i, patterns) in options.iter().enumerate() {
        for pattern in patterns {
            let group = instances.entry(pattern).or_default();
            if group.last() != Some(&i) {
                group.push(i);
            }
        }
    }
    let mut written = vec![false; pairs.len()];
    let mut lines = Vec::new();
    for i in 0..pairs.len() {
        if written[i] {
            continue;
        }
        let groups = options[i].iter().filter_map(|pattern| Some((instances.get(pattern)?, pattern)));
        let largest = groups.filter(|(group, _)| group.len() > 1).max_by_key(|(group, _)| group.len());
        let (group, names) = match largest {
            Some((group, (tensor, node))) => (group.clone(), (tensor.clone(), node.clone())),
            None => (vec![i], (pairs[i].tensor.to_owned(), pairs[i].node.to_owned())),
        };
        let remark = remark(group.iter().map(|&i| pairs[i].evidence));
        let guess = if group.iter().any(|&i| pairs[i].evidence == Evidence::Values) { "" } else { "# " };
        group.into_iter().for_each(|i| written[i] = true);
        lines.push(format!("{guess}{} = {}  # {remark}", quoted(&names.0), quoted(&names.1)));
    }
    lines
}

/// Every way to write one number of a tensor's name, and the same of the node's, as `{n}`.
fn patterns(tensor: &str, node: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (in_node, of_node) in numbers(node) {
        for (in_tensor, of_tensor) in numbers(tensor) {
            let hole = match of_tensor - of_node {
                0 => "{n}".to_owned(),
                by => format!("{{n{by:+}}}"),
            };
            let replaced = |text: &str, at: &std::ops::Range<usize>, by: &str| {
                format!("{}{by}{}", &text[..at.start], &text[at.end..])
            };
            found.push((replaced(tensor, &in_tensor, &hole), replaced(node, &in_node, "{n}")));
        }
    }
    found
}

/// How many numbers of a name are tried: the layer's is among the first.
const MOST_NUMBERS: usize = 8;

/// The first numbers in a text, with their places.
fn numbers(text: &str) -> Vec<(std::ops::Range<usize>, i64)> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), '\0')]) {
        match (c.is_ascii_digit(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                if found.len() == MOST_NUMBERS {
                    break;
                }
                // A name with braces would be read as a pattern.
                found.extend(
                    text[from..at].parse::<i64>().ok().filter(|n| *n < 1 << 20).map(|n| (from..at, n)),
                );
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn remark(evidence: impl Iterator<Item = Evidence>) -> String {
    let all: Vec<Evidence> = evidence.collect();
    let same = all.iter().filter(|e| **e == Evidence::Values).count();
    let alike = all.iter().filter_map(|e| match e {
        Evidence::Alike(cosine) => Some(*cosine),
        _ => None,
    });
    let (count, least) = alike.fold((0, 1.0f64), |(n, least), cosine| (n + 1, least.min(cosine)));
    let order = all.len() - same - count;
    let mut words = Vec::new();
    let mut say = |n: usize, what: String| {
        if n > 0 {
            words.push(if n == all.len() { what } else { format!("{n} {what}") });
        }
    };
    say(same, "same values".into());
    say(count, format!("alike values (cosine {least:.2})"));
    say(order, "shape and place only".into());
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::map::NameMap;

    fn named<'n>(tensor: &'n str, node: &'n str) -> Named<'n> {
        Named { tensor, node, evidence: Evidence::Values }
    }

    #[test]
    fn layers_that_repeat_become_a_pattern() {
        let pairs = [
            named("b1.attn0.o", "encoder.0.self_attn.out"),
            named("b2.attn0.o", "encoder.1.self_attn.out"),
            named("b3.attn0.o", "encoder.2.self_attn.out"),
            named("head", "logits"),
        ];
        assert_eq!(
            generalised(&pairs),
            ["b{n+1}.attn0.o = encoder.{n}.self_attn.out  # same values", "head = logits  # same values"]
        );
        // Similar values alone give no line.
        let alike = Named { evidence: Evidence::Alike(0.9), ..named("head", "logits") };
        assert_eq!(generalised(&[alike]), ["# head = logits  # alike values (cosine 0.90)"]);
        // One layer is no pattern.
        assert_eq!(generalised(&pairs[..1]), ["b1.attn0.o = encoder.0.self_attn.out  # same values"]);
        // What is proposed is a map.
        let text = generalised(&pairs).join("\n");
        let map = NameMap::parse(std::path::Path::new("m"), &text).unwrap_or_default();
        let node = map.partners("b3.attn0.o").map(|(_, node)| node).next();
        assert_eq!(node.as_deref(), Some("encoder.2.self_attn.out"));
    }
}
