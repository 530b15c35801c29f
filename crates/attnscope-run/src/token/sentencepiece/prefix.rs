//! Which pieces a text begins with.

/// Pieces sorted by their bytes. Pieces with a common prefix are adjacent, so each further byte of a text narrows a range, and
/// only the pieces are stored.
#[derive(Debug)]
pub(super) struct Prefixes(Vec<(Box<str>, u32)>);

impl Prefixes {
    pub(super) fn new(pieces: impl Iterator<Item = (Box<str>, u32)>) -> Self {
        let mut sorted: Vec<_> = pieces.collect();
        sorted.sort_unstable();
        Self(sorted)
    }

    pub(super) fn id(&self, piece: &str) -> Option<u32> {
        let at = self.0.binary_search_by(|(p, _)| p.as_ref().cmp(piece)).ok()?;
        Some(self.0[at].1)
    }

    /// Every piece that the text begins with, the shortest first: its length and id.
    pub(super) fn matches<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut range = self.0.as_slice();
        text.as_bytes()
            .iter()
            .enumerate()
            .map_while(move |(i, &byte)| {
                // The piece that ends here sorts before all longer ones.
                let at = |p: &(Box<str>, u32)| p.0.as_bytes().get(i).copied();
                let start = range.partition_point(|p| at(p) < Some(byte));
                let end = range.partition_point(|p| at(p) <= Some(byte));
                range = &range[start..end];
                let first = range.first()?;
                Some((first.0.len() == i + 1).then_some((i + 1, first.1)))
            })
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_is_found_shortest_first() {
        let pieces = ["a", "ab", "abd", "b", "ä", "abcde"];
        let pieces = Prefixes::new(pieces.iter().zip(0..).map(|(p, i)| (Box::from(*p), i)));
        let found = |text| pieces.matches(text).collect::<Vec<_>>();
        assert_eq!(found("abcd"), [(1, 0), (2, 1)]);
        assert_eq!(found("abcdef"), [(1, 0), (2, 1), (5, 5)]);
        assert_eq!(found("ä"), [(2, 4)]);
        assert_eq!(found("x"), []);
        assert_eq!(found(""), []);
        assert_eq!(pieces.id("abd"), Some(2));
        assert_eq!(pieces.id("abc"), None);
    }
}
