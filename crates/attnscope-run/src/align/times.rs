//! When each word of a transcript was said, as OpenAI's whisper/timing.py finds it: the path of least cost through the
//! attention of the heads that follow the audio.

use std::ops::Range;

use attnscope_graph::AttentionStep;

use super::words::Word;
use super::{Attention, Heads, dtw};
use crate::audio::POSITION_SECONDS;
use crate::error::RunError;
use crate::executor::Session;
use crate::input::Input;

/// A word and when it was said, in seconds from the beginning of the window.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// Its text, with the space before it and the punctuation around it.
    pub text: String,
    /// Its tokens.
    pub tokens: Range<usize>,
    /// When it begins.
    pub start: f64,
    /// When the next one begins.
    pub end: f64,
}

/// Frames of the median filter.
const FILTER: usize = 7;

/// Punctuation that belongs to the word after it, and to the word before it.
const BEFORE: &str = "\"'“¿([{-";
const AFTER: &str = "\"'.。,，!！?？:：”)]}、";

/// The times of a transcript's words. The decoder's input is what it began with (`started` tokens, the last of which says
/// that no times are wanted), the transcript and the end token; `positions` is how many of the encoder's positions are
/// recording; the others are silence that was added.
///
/// # Errors
/// When the input does not fit the model.
pub fn word_times(
    session: &mut dyn Session,
    input: Input,
    heads: &Heads,
    words: &[Word],
    [started, positions]: [usize; 2],
) -> Result<Vec<Timed>, RunError> {
    let tokens = words.last().map_or(0, |word| word.tokens.end);
    if tokens == 0 || positions == 0 {
        return Ok(Vec::new());
    }
    let scores = Attention::of(session, input, heads, AttentionStep::Scores)?;
    let positions = positions.min(scores.keys);
    let matrix = followed(&scores, positions);
    // The query before a token predicts it; the last one predicts the end.
    let first = started.saturating_sub(1);
    let rows = matrix.get(first * positions..(first + tokens + 1) * positions).unwrap_or_default();
    let cost: Vec<f64> = rows.iter().map(|x| -x).collect();
    let begins = dtw::first_columns(&cost, positions);
    let time = |token: usize| begins.get(token).copied().unwrap_or(0) as f64 * POSITION_SECONDS;
    let timed = |word: &Word| Timed {
        text: word.text.clone(),
        tokens: word.tokens.clone(),
        start: time(word.tokens.start),
        end: time(word.tokens.end),
    };
    Ok(merge_signs(words.iter().map(timed).collect()))
}

/// Where each query looks, compared with the other queries: weights over the recording, in standard deviations from the mean
/// over queries, smoothed over positions, averaged over heads. [query, position]
fn followed(scores: &Attention, positions: usize) -> Vec<f64> {
    let recorded = scores.values.chunks(scores.keys.max(1)).map(|row| &row[..positions]);
    let values = recorded.flat_map(softmax).collect();
    let mut weights = Attention { values, queries: scores.queries, keys: positions };
    weights.standardise();
    for row in weights.values.chunks_mut(positions) {
        row.copy_from_slice(&median(row));
    }
    weights.mean().concat()
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exp: Vec<f64> = scores.iter().map(|x| (x - top).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.into_iter().map(|x| x / sum).collect()
}

/// The middle of each value and its neighbours; the row is mirrored at its ends. A row that is too short stays.
fn median(row: &[f64]) -> Vec<f64> {
    let half = FILTER / 2;
    if row.len() <= half {
        return row.to_vec();
    }
    let last = row.len() - 1;
    let at = |i: usize| {
        // Counted from `half` places before the first.
        let i = i.abs_diff(half);
        row[if i > last { 2 * last - i } else { i }]
    };
    let middle = |from: usize| {
        let mut near: [f64; FILTER] = std::array::from_fn(|i| at(from + i));
        near.sort_by(f64::total_cmp);
        near[half]
    };
    (0..row.len()).map(middle).collect()
}

/// Joins punctuation to the word next to it.
fn merge_signs(words: Vec<Timed>) -> Vec<Timed> {
    let is_one = |text: &str, signs: &str| !text.trim().is_empty() && signs.contains(text.trim());
    let mut merged: Vec<Timed> = Vec::new();
    // From the end, because opening punctuation is joined to the word after it.
    for word in words.into_iter().rev() {
        match merged.last_mut() {
            Some(next) if word.text.starts_with(' ') && is_one(&word.text, BEFORE) => {
                next.text.insert_str(0, &word.text);
                next.tokens.start = word.tokens.start;
            }
            _ => merged.push(word),
        }
    }
    let mut out: Vec<Timed> = Vec::new();
    for word in merged.into_iter().rev() {
        match out.last_mut() {
            Some(before)
                if !before.text.ends_with(' ')
                    && !word.text.starts_with(' ')
                    && is_one(&word.text, AFTER) =>
            {
                before.text += &word.text;
                before.tokens.end = word.tokens.end;
            }
            _ => out.push(word),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_takes_the_middle_and_mirrors_the_ends() {
        // What median_filter of OpenAI's whisper/timing.py gives.
        assert_eq!(median(&[5.0, 1.0, 4.0, 2.0, 3.0]), [2.0, 3.0, 2.0, 3.0, 2.0]);
        assert_eq!(median(&[9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0]), [0.0; 7]);
        assert_eq!(median(&[3.0, 1.0, 2.0]), [3.0, 1.0, 2.0]);
    }

    #[test]
    fn signs_stay_with_their_words() {
        let word = |(i, text): (usize, &&str)| Timed {
            text: (*text).into(),
            tokens: i..i + 1,
            start: i as f64,
            end: i as f64 + 1.0,
        };
        let words = [" He", " said", ",", " \"", "No", ".", "\""].iter().enumerate().map(word).collect();
        let merged = merge_signs(words);
        let texts: Vec<&str> = merged.iter().map(|w| w.text.as_str()).collect();
        assert_eq!(texts, [" He", " said,", " \"No.\""]);
        // A word's time is that of the word without its punctuation.
        assert_eq!((merged[1].start, merged[1].end), (1.0, 2.0));
        assert_eq!((merged[2].start, merged[2].tokens.clone()), (4.0, 3..7));
    }
}
