//! Cuts normalised text into pieces: the most likely segmentation, or by merging pairs.

use std::collections::HashMap;
use std::ops::Range;

use super::pieces::Pieces;
use super::proto::Kind;
use crate::token::merge::{Symbol, merge};

/// How much less likely than the rarest piece an unknown character is.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The best segmentation up to a position in the text.
#[derive(Clone, Copy)]
struct Best {
    score: f32,
    /// Where its last piece starts, and which piece that is.
    last: Option<(usize, u32)>,
}

/// The segmentation whose scores (log probabilities) have the largest sum. Sums are kept in f32 and compared in f64
/// where SentencePiece does so: ties and near-ties then fall the same way.
pub(super) fn unigram(pieces: &Pieces, text: &str) -> Vec<(Range<usize>, u32)> {
    let normal = pieces.all.iter().filter(|p| p.kind == Kind::Normal).map(|p| p.score);
    let lowest = normal.clone().fold(f32::MAX, f32::min);
    // SentencePiece starts from the smallest positive number, so that negative scores never raise it.
    let highest = normal.fold(f32::MIN_POSITIVE, f32::max);
    let unknown_score = lowest - UNKNOWN_PENALTY;
    let mut best = vec![Best { score: 0.0, last: None }; text.len() + 1];
    let reach = |best: &mut [Best], start: usize, end: usize, id: u32, score: f64| {
        let sum = score + f64::from(best[start].score);
        if best[end].last.is_none() || sum > f64::from(best[end].score) {
            best[end] = Best { score: sum as f32, last: Some((start, id)) };
        }
    };
    for (start, c) in text.char_indices() {
        let width = c.len_utf8();
        let mut single = false;
        for (length, id) in pieces.usable.matches(&text[start..]) {
            let score = match &pieces.all[id as usize] {
                piece if piece.kind == Kind::Unused => continue,
                // Chosen wherever it occurs.
                piece if piece.kind == Kind::UserDefined => f64::from(length as f32 * highest) - 0.1,
                piece => f64::from(piece.score),
            };
            reach(&mut best, start, start + length, id, score);
            single |= length == width;
        }
        if !single {
            reach(&mut best, start, start + width, pieces.unknown, f64::from(unknown_score));
        }
    }
    let mut found = Vec::new();
    let mut end = text.len();
    while let Some((start, id)) = best[end].last {
        found.push((start..end, id));
        end = start;
    }
    found.reverse();
    found
}

/// A score with an order. Scores of a model that was read are finite.
#[derive(Clone, Copy, PartialEq)]
struct Score(f32);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Zero and minus zero are one score.
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

/// Merges the pair whose piece has the highest score, until no pair makes a piece.
pub(super) fn bpe(pieces: &Pieces, text: &str) -> Vec<(Range<usize>, u32)> {
    let mut symbols = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let fixed = pieces.fixed.matches(&text[at..]).last();
        let length = fixed.map_or(c.len_utf8(), |(length, _)| length);
        symbols.push(Symbol { range: at..at + length, frozen: fixed.is_some() });
        at += length;
    }
    // Unused pieces are only intermediate: they are split again where they were merged.
    let mut seams: HashMap<&str, usize> = HashMap::new();
    let ranges = merge(symbols, |left, right| {
        let joined = &text[left.start..right.end];
        let id = pieces.usable.id(joined)?;
        let piece = &pieces.all[id as usize];
        if piece.kind == Kind::Unused {
            seams.insert(joined, left.len());
        }
        Some(Score(piece.score))
    });
    let mut found = Vec::with_capacity(ranges.len());
    for range in ranges {
        let mut parts = vec![range];
        while let Some(range) = parts.pop() {
            let part = &text[range.clone()];
            let id = pieces.id(part).unwrap_or(pieces.unknown);
            let unused = pieces.all[id as usize].kind == Kind::Unused;
            match seams.get(part).filter(|_| unused) {
                Some(&seam) => {
                    parts.push(range.start + seam..range.end);
                    parts.push(range.start..range.start + seam);
                }
                None => found.push((range, id)),
            }
        }
    }
    found
}
