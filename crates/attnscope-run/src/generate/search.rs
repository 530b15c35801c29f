//! Greedy and beam search, as Hugging Face's `generate` does them.

use attnscope_graph::Role;

use super::rules::{Rules, log_sum, normalise};
use super::watch::is_fatal;
use crate::error::RunError;
use crate::executor::Decode;

/// When a beam search may stop before its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When as many sentences as there are beams have ended.
    Full,
    /// When no running beam is better than the worst ended sentence, judged at its present length.
    #[default]
    Heuristic,
    /// When no running beam can become better than the worst ended sentence.
    Never,
}

/// How tokens are chosen.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// Sentences followed at once; 1 is greedy.
    pub beams: usize,
    /// A sentence's score is the sum of its log-probabilities over its length to this power.
    pub length_penalty: f64,
    /// When to stop.
    pub early_stopping: EarlyStopping,
    /// Tokens that end a sentence.
    pub ends: &'a [u32],
    /// How long a sentence may become, with what the decoder began with.
    pub max_length: usize,
    /// Which tokens are excluded.
    pub rules: &'a dyn Rules,
}

/// A sentence that was generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// Its tokens after what the decoder began with, the end token included.
    pub tokens: Vec<u32>,
    /// The log-probability of each. Greedy search normalises after its rules, beams before: a forced token counts 0.
    pub log_probs: Vec<f64>,
    /// Their sum over (number of tokens)^`length_penalty`.
    pub score: f64,
    /// Whether it ended by itself; else it reached the limit, even if the last token is an end that was forced there.
    pub ended: bool,
}

impl Search<'_> {
    /// Takes the likeliest token at each step, for a batch of sentences whose starts have the same length. Sentences that have
    /// ended leave the batch. Where the limit allows no token, all are empty.
    ///
    /// # Errors
    /// When the decoder fails, a logit is NaN or +∞, or the rules leave no token.
    pub fn greedy(&self, decode: &mut dyn Decode, start: &[Vec<u32>]) -> Result<Vec<Hypothesis>, RunError> {
        let length = start.first().map_or(0, Vec::len);
        let mut made: Vec<Running> = start.iter().map(|row| Running::new(row)).collect();
        let mut alive: Vec<usize> = (0..start.len()).collect();
        let mut next = start.to_vec();
        let mut scores = Vec::new();
        for step in length..self.max_length {
            let logits = decode.advance(&next)?;
            let vocabulary = logits.len() / alive.len().max(1);
            for (&row, logits) in alive.iter().zip(logits.chunks(vocabulary.max(1))) {
                check(logits, row, step)?;
                scores.clear();
                scores.extend(logits);
                self.rules.apply(row, &made[row].history, &mut scores);
                let (token, score) = best(&scores).ok_or(RunError::NoToken { step })?;
                made[row].push(token, f64::from(score) - log_sum(&scores));
            }
            let goes_on = |row: &usize| !self.ends.contains(&made[*row].last());
            let kept: Vec<usize> = (0..alive.len()).filter(|&i| goes_on(&alive[i])).collect();
            if kept.len() < alive.len() {
                alive = kept.iter().map(|&i| alive[i]).collect();
                if alive.is_empty() {
                    break;
                }
                decode.reorder(&kept)?;
            }
            next = alive.iter().map(|&row| vec![made[row].last()]).collect();
        }
        Ok(made.into_iter().map(|running| self.finish(running, length)).collect())
    }

    /// Follows the best beams of one sentence, and returns the best finished ones, best first; none where the limit allows no
    /// token.
    ///
    /// # Errors
    /// As [`Search::greedy`].
    pub fn beams(&self, decode: &mut dyn Decode, start: &[u32]) -> Result<Vec<Hypothesis>, RunError> {
        let mut running = vec![Running::new(start)];
        let mut finished: Vec<Hypothesis> = Vec::new();
        let mut next = vec![start.to_vec()];
        let mut scores = Vec::new();
        for step in start.len()..self.max_length {
            // Enough candidates that beams remain even if every one of them ends.
            let mut top = Top::new(self.ends.len().max(1).saturating_add(1).saturating_mul(self.beams));
            let logits = decode.advance(&next)?;
            let vocabulary = logits.len() / running.len().max(1);
            for (beam, logits) in logits.chunks(vocabulary.max(1)).enumerate() {
                check(logits, 0, step)?;
                scores.clear();
                scores.extend(logits);
                normalise(&mut scores);
                self.rules.apply(0, &running[beam].history, &mut scores);
                for (token, &score) in (0..).zip(&scores) {
                    top.offer(Candidate { beam, token, score, sum: running[beam].sum + f64::from(score) });
                }
            }
            let (mut parents, mut going_on) = (Vec::new(), Vec::new());
            for (rank, candidate) in top.0.iter().enumerate() {
                let ends = self.ends.contains(&candidate.token) || step + 1 == self.max_length;
                if ends && rank < self.beams {
                    finished.push(self.finish(running[candidate.beam].with(candidate), start.len()));
                } else if !ends && going_on.len() < self.beams {
                    going_on.push(running[candidate.beam].with(candidate));
                    parents.push(candidate.beam);
                }
            }
            finished.sort_by(|a, b| b.score.total_cmp(&a.score));
            finished.truncate(self.beams);
            running = going_on;
            let Some(best) = running.first() else {
                if finished.is_empty() {
                    return Err(RunError::NoToken { step });
                }
                break;
            };
            if self.is_settled(&finished, best.sum, step + 1 - start.len(), start.len()) {
                break;
            }
            decode.reorder(&parents)?;
            next = running.iter().map(|beam| vec![beam.last()]).collect();
        }
        Ok(finished)
    }

    /// Whether the search can stop: `best` is the best running beam after `made` tokens.
    fn is_settled(&self, finished: &[Hypothesis], best: f64, made: usize, started: usize) -> bool {
        let Some(worst) = finished.last().filter(|_| finished.len() >= self.beams) else { return false };
        let length = match self.early_stopping {
            EarlyStopping::Full => return true,
            EarlyStopping::Never if self.length_penalty > 0.0 => self.max_length - started,
            EarlyStopping::Heuristic | EarlyStopping::Never => made,
        };
        best / (length as f64).powf(self.length_penalty) <= worst.score
    }

    fn finish(&self, running: Running, started: usize) -> Hypothesis {
        let Running { mut history, log_probs, sum } = running;
        let tokens = history.split_off(started);
        let length = (tokens.len().max(1) as f64).powf(self.length_penalty);
        let ended = tokens.last().is_some_and(|last| self.ends.contains(last));
        Hypothesis { tokens, log_probs, score: sum / length, ended }
    }
}

/// A sentence that is being generated.
struct Running {
    /// With what the decoder began with.
    history: Vec<u32>,
    log_probs: Vec<f64>,
    sum: f64,
}

impl Running {
    fn new(start: &[u32]) -> Self {
        Self { history: start.to_vec(), log_probs: Vec::new(), sum: 0.0 }
    }

    fn push(&mut self, token: u32, log_prob: f64) {
        self.history.push(token);
        self.log_probs.push(log_prob);
        self.sum += log_prob;
    }

    fn with(&self, candidate: &Candidate) -> Self {
        let mut longer =
            Self { history: self.history.clone(), log_probs: self.log_probs.clone(), sum: self.sum };
        longer.push(candidate.token, f64::from(candidate.score));
        longer
    }

    fn last(&self) -> u32 {
        self.history.last().copied().unwrap_or(0)
    }
}

/// A token with which a beam could continue.
#[derive(Clone, Copy)]
struct Candidate {
    beam: usize,
    token: u32,
    score: f32,
    sum: f64,
}

/// The best candidates, best first; of equal ones the earlier.
struct Top(Vec<Candidate>, usize);

impl Top {
    fn new(most: usize) -> Self {
        Self(Vec::new(), most)
    }

    fn offer(&mut self, candidate: Candidate) {
        let enough = self.0.len() >= self.1;
        let worst = self.0.last().filter(|_| enough).map_or(f64::NEG_INFINITY, |c| c.sum);
        if candidate.sum > worst {
            let at = self.0.partition_point(|c| c.sum >= candidate.sum);
            self.0.insert(at, candidate);
            self.0.truncate(self.1);
        }
    }
}

/// The highest score and its token; the first of two equal ones. None where every token is excluded.
pub(crate) fn best(scores: &[f32]) -> Option<(u32, f32)> {
    let mut best = None;
    let mut most = f32::NEG_INFINITY;
    for (token, &score) in (0..).zip(scores) {
        if score > most {
            (best, most) = (Some((token, score)), score);
        }
    }
    best
}

/// A NaN or +∞ among the scores makes every choice meaningless.
fn check(logits: &[f32], row: usize, step: usize) -> Result<(), RunError> {
    let Some(token) = logits.iter().position(|x| is_fatal(*x)) else { return Ok(()) };
    let at = vec![row, step.saturating_sub(1), token];
    Err(RunError::NotANumber { node: Role::Logits.to_string(), at, value: logits[token] })
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
