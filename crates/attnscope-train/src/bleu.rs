//! BLEU as sacreBLEU counts it: cased, tokenizer 13a, n-grams up to 4, exponential smoothing.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

/// The longest n-gram.
const ORDER: usize = 4;

/// How alike sentences and their references are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bleu {
    /// From 0 to 100.
    pub score: f64,
    /// The share of n-grams that are in the reference, in percent, for n from 1.
    pub precisions: [f64; ORDER],
    /// What sentences that are too short lose.
    pub brevity_penalty: f64,
    /// Tokens of the sentences.
    pub length: usize,
    /// Tokens of the references.
    pub reference_length: usize,
}

/// What a corpus is scored by; sentences are added one at a time.
#[derive(Debug, Clone, Copy, Default)]
pub struct BleuCounts {
    correct: [usize; ORDER],
    total: [usize; ORDER],
    length: usize,
    reference_length: usize,
}

impl BleuCounts {
    /// Counts a sentence against its reference.
    pub fn add(&mut self, sentence: &str, reference: &str) {
        let (sentence, reference) = (cut(sentence), cut(reference));
        let (own, other) = (words(&sentence), words(&reference));
        self.length += own.len();
        self.reference_length += other.len();
        for n in 1..=ORDER {
            let (own, other) = (ngrams(&own, n), ngrams(&other, n));
            self.total[n - 1] += own.values().sum::<usize>();
            let shared = own.iter().map(|(ngram, &count)| count.min(other.get(ngram).copied().unwrap_or(0)));
            self.correct[n - 1] += shared.sum::<usize>();
        }
    }

    /// The score of all that were added.
    pub fn bleu(&self) -> Bleu {
        let (length, reference_length) = (self.length, self.reference_length);
        let brevity_penalty = match length {
            0 => 0.0,
            _ if length >= reference_length => 1.0,
            _ => (1.0 - reference_length as f64 / length as f64).exp(),
        };
        let none = Bleu { score: 0.0, precisions: [0.0; ORDER], brevity_penalty, length, reference_length };
        if self.correct.iter().all(|&n| n == 0) {
            return none;
        }
        let mut precisions = [0.0; ORDER];
        let mut smoothing = 1.0;
        for (n, precision) in precisions.iter_mut().enumerate() {
            let (correct, total) = (self.correct[n] as f64, self.total[n] as f64);
            if total == 0.0 {
                break;
            }
            *precision = if correct > 0.0 {
                100.0 * correct / total
            } else {
                smoothing *= 2.0;
                100.0 / (smoothing * total)
            };
        }
        // An order without n-grams has no precision, and its logarithm is −∞.
        let mean = precisions.iter().map(|p| p.ln()).sum::<f64>() / ORDER as f64;
        Bleu { score: brevity_penalty * mean.exp(), precisions, ..none }
    }
}

/// The score of sentences against one reference each.
pub fn bleu<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Bleu {
    let mut counts = BleuCounts::default();
    pairs.into_iter().for_each(|(sentence, reference)| counts.add(sentence, reference));
    counts.bleu()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn ngrams<'w>(words: &'w [&'w str], n: usize) -> HashMap<&'w [&'w str], usize> {
    let mut counts = HashMap::new();
    words.windows(n).for_each(|ngram| *counts.entry(ngram).or_insert(0) += 1);
    counts
}

/// mteval-v13a's rules, in their order: each expression and what it is replaced by.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        // Punctuation stands alone, but for what numbers and words have inside them.
        (r"([\{-\~\[-\` -\&\(-\+\:-\@/])", " $1 "),
        (r"([^0-9])([\.,])", "$1 $2 "),
        (r"([\.,])([^0-9])", " $1 $2"),
        (r"([0-9])(-)", "$1 $2 "),
    ]
    .iter()
    .filter_map(|(rule, with)| Some((Regex::new(rule).ok()?, *with)))
    .collect()
});

/// A line as tokens with spaces between them.
fn cut(line: &str) -> String {
    let line = line.trim_end().replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let line = line.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    let mut line = format!(" {line} ");
    for (rule, with) in RULES.iter() {
        line = rule.replace_all(&line, *with).into_owned();
    }
    line
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Expected {
        lines: Vec<(String, Vec<String>)>,
        corpora: Vec<Corpus>,
    }

    #[derive(Deserialize)]
    struct Corpus {
        hypotheses: Vec<String>,
        references: Vec<String>,
        score: f64,
        precisions: [f64; ORDER],
        brevity_penalty: f64,
        lengths: [usize; 2],
    }

    /// The numbers are sacreBLEU's own: fixtures/bleu/make.py.
    #[test]
    fn scores_are_those_of_sacrebleu() {
        assert_eq!(RULES.len(), 4);
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/bleu/expected.json");
        let expected: Expected = serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
        for (line, tokens) in &expected.lines {
            assert_eq!(words(&cut(line)), *tokens, "{line:?}");
        }
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        for corpus in &expected.corpora {
            let pairs = corpus.hypotheses.iter().zip(&corpus.references);
            let own = bleu(pairs.map(|(h, r)| (h.as_str(), r.as_str())));
            assert!(near(own.score, corpus.score), "{:?}: {own:?}", corpus.hypotheses);
            assert!(own.precisions.iter().zip(corpus.precisions).all(|(a, b)| near(*a, b)), "{own:?}");
            assert!(near(own.brevity_penalty, corpus.brevity_penalty), "{own:?}");
            assert_eq!([own.length, own.reference_length], corpus.lengths);
        }
    }
}
