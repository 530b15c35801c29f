//! Rules that exclude tokens, as in Hugging Face's settings: each changes the scores of the next token.

/// Rules over the next token's scores. The score of an excluded token becomes −∞.
pub trait Rules {
    /// Changes the scores of the token after `history` (including what the decoder began with) in sentence `row`.
    fn apply(&self, row: usize, history: &[u32], scores: &mut [f32]);
}

/// No rules.
impl Rules for () {
    fn apply(&self, _: usize, _: &[u32], _: &mut [f32]) {}
}

/// The rules of `generation_config.json`, in the order in which Hugging Face applies them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenRules {
    /// Scores of tokens that have occurred are divided by this, or multiplied if they are negative.
    pub repetition_penalty: Option<f32>,
    /// No run of so many tokens twice.
    pub no_repeat_ngram: usize,
    /// No run of so many tokens that occurs in the source.
    pub source_no_repeat_ngram: usize,
    /// Runs of tokens that are excluded.
    pub bad_words: Vec<Vec<u32>>,
    /// No end before so many tokens, what the decoder began with included.
    pub min_length: usize,
    /// No end before so many new tokens.
    pub min_new: usize,
    /// The token that follows a start of one.
    pub forced_first: Option<u32>,
    /// The tokens that are allowed at the last position.
    pub forced_end: Vec<u32>,
    /// Tokens that are always excluded.
    pub suppressed: Vec<u32>,
    /// Tokens that are excluded at the first position.
    pub suppressed_first: Vec<u32>,
    /// The rules of timestamps, where the transcript has them.
    pub times: Option<Times>,
    /// Scores are normalised again at the end.
    pub renormalise: bool,
}

/// The rules of Whisper's timestamp tokens: they come in pairs around text, never decrease, and a transcript begins with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// The token of 0.00 s; the others follow it, 0.02 s apart, to the end of the vocabulary.
    pub first: u32,
    /// The token that ends a transcript; text is before it.
    pub end: u32,
    /// The token that turns timestamps off.
    pub none: u32,
    /// How many steps after 0 the first timestamp may be.
    pub latest_start: u32,
}

/// The rules with what they need to know of one search.
#[derive(Debug, Clone)]
pub struct Ruled<'a> {
    /// The rules.
    pub rules: &'a TokenRules,
    /// Tokens that end a sentence.
    pub ends: &'a [u32],
    /// How many tokens the decoder began with.
    pub started: usize,
    /// How long a sentence may become, with those.
    pub max_length: usize,
    /// The source of each sentence; empty for audio.
    pub sources: &'a [Vec<u32>],
}

impl Rules for Ruled<'_> {
    fn apply(&self, row: usize, history: &[u32], scores: &mut [f32]) {
        let rules = self.rules;
        if let Some(penalty) = rules.repetition_penalty {
            penalise(penalty, history, scores);
        }
        ban(scores, repeats(rules.no_repeat_ngram, history, history));
        let source = self.sources.get(row).map_or(&[][..], Vec::as_slice);
        ban(scores, repeats(rules.source_no_repeat_ngram, source, history));
        for word in &rules.bad_words {
            let Some((&last, before)) = word.split_last() else { continue };
            // An end token is never excluded as a bad word.
            let is_end = before.is_empty() && self.ends.contains(&last);
            if !is_end && history.ends_with(before) {
                ban(scores, [last]);
            }
        }
        if history.len() < rules.min_length || history.len().saturating_sub(self.started) < rules.min_new {
            ban(scores, self.ends.iter().copied());
        }
        if let Some(first) = rules.forced_first.filter(|_| history.len() == 1) {
            force(&[first], scores);
        }
        if !rules.forced_end.is_empty() && history.len() + 1 == self.max_length {
            force(&rules.forced_end, scores);
        }
        ban(scores, rules.suppressed.iter().copied());
        // Where the first token is forced, the one after it is the first that is chosen.
        let forced = usize::from(self.started == 1 && rules.forced_first.is_some());
        if history.len() == self.started + forced {
            ban(scores, rules.suppressed_first.iter().copied());
        }
        if let Some(times) = rules.times {
            times.apply(history.get(self.started..).unwrap_or_default(), scores);
        }
        if rules.renormalise {
            normalise(scores);
        }
    }
}

impl Times {
    /// Changes the scores of what may follow `made`.
    fn apply(&self, made: &[u32], scores: &mut [f32]) {
        let (first, end, all) = (self.first as usize, self.end as usize, scores.len());
        let mut close = |ids: std::ops::Range<usize>| {
            let ids = ids.start.min(all)..ids.end.min(all);
            scores.get_mut(ids).unwrap_or_default().fill(f32::NEG_INFINITY);
        };
        close(self.none as usize..self.none as usize + 1);
        let is_time = |id: &u32| *id >= self.first;
        let after_time = made.last().is_some_and(is_time);
        let after_pair = after_time && made.iter().nth_back(1).is_none_or(is_time);
        match (after_time, after_pair) {
            // There must be text between two pairs.
            (true, true) => close(first..all),
            // After the end time of a segment comes a start time or the end token.
            (true, false) => close(0..end),
            _ => {}
        }
        if let Some(&latest) = made.iter().rev().find(|id| is_time(id)) {
            // A segment takes time, so its end is later than its start; the next start may equal that end.
            let open = if after_time && !after_pair { latest } else { latest + 1 };
            close(first..open as usize);
        }
        if made.is_empty() {
            close(0..first);
            close(first + self.latest_start as usize + 1..all);
        }
        // If all timestamps together are more likely than any single text token, the token must be a timestamp.
        let (text, times) = scores.split_at_mut(first.min(all));
        let word = text.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if log_sum(times) > f64::from(word) {
            text.fill(f32::NEG_INFINITY);
        }
    }
}

fn penalise(penalty: f32, history: &[u32], scores: &mut [f32]) {
    let mut seen: Vec<u32> = history.to_vec();
    seen.sort_unstable();
    seen.dedup();
    for id in seen {
        if let Some(score) = scores.get_mut(id as usize) {
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
        }
    }
}

/// The tokens that would repeat a run of `n` tokens of `text` after `history`.
fn repeats<'t>(n: usize, text: &'t [u32], history: &'t [u32]) -> impl Iterator<Item = u32> + 't {
    let before = n.checked_sub(1).and_then(|len| history.len().checked_sub(len)).map(|at| &history[at..]);
    let runs = before.map(|before| (before, text.windows(n)));
    runs.into_iter()
        .flat_map(|(before, runs)| runs.filter_map(move |run| run.strip_prefix(before)?.first().copied()))
}

/// Ids beyond the vocabulary have no score.
pub(crate) fn ban(scores: &mut [f32], tokens: impl IntoIterator<Item = u32>) {
    for id in tokens {
        if let Some(score) = scores.get_mut(id as usize) {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Excludes all tokens but these, each of which gets a log-probability of 0.
fn force(tokens: &[u32], scores: &mut [f32]) {
    scores.fill(f32::NEG_INFINITY);
    for &id in tokens {
        if let Some(score) = scores.get_mut(id as usize) {
            *score = 0.0;
        }
    }
}

/// Turns scores into log-probabilities. If every score is −∞, nothing changes.
pub(crate) fn normalise(scores: &mut [f32]) {
    let total = log_sum(scores);
    if total > f64::NEG_INFINITY {
        scores.iter_mut().for_each(|score| *score = (f64::from(*score) - total) as f32);
    }
}

/// ln Σ exp, in f64 so that a large vocabulary loses nothing.
pub(crate) fn log_sum(scores: &[f32]) -> f64 {
    let top = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if top == f64::NEG_INFINITY {
        return top;
    }
    let sum: f64 = scores.iter().map(|&score| (f64::from(score) - top).exp()).sum();
    top + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text tokens 0 to 3, end 4, the token that turns timestamps off 5, timestamps 6 to 11.
    const TIMES: Times = Times { first: 6, end: 4, none: 5, latest_start: 2 };

    /// Which tokens are allowed, where every text token is likelier than all timestamps together.
    fn open(made: &[u32]) -> Vec<usize> {
        let mut scores = [9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        TIMES.apply(made, &mut scores);
        (0..scores.len()).filter(|&id| scores[id] > f32::NEG_INFINITY).collect()
    }

    #[test]
    fn times_stand_in_pairs_and_do_not_go_back() {
        assert_eq!(open(&[]), [6, 7, 8], "first a time, not too late");
        assert_eq!(open(&[7]), [0, 1, 2, 3, 4], "then words");
        assert_eq!(open(&[7, 1]), [0, 1, 2, 3, 4, 8, 9, 10, 11], "then words, or a later time");
        assert_eq!(open(&[7, 1, 9]), [4, 9, 10, 11], "after an end a beginning, or the end of all");
        assert_eq!(open(&[7, 1, 9, 9]), [0, 1, 2, 3, 4], "after a pair words");
    }

    #[test]
    fn many_unlikely_times_are_a_likely_one() {
        let mut scores = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5];
        TIMES.apply(&[7, 1], &mut scores);
        // Four times at 0.5 are 0.5 + ln 4 together.
        assert!(scores[..6].iter().all(|s| *s == f32::NEG_INFINITY), "{scores:?}");
    }
}
