//! Statements in words: what the products are divided by, what makes weights of scores.

use super::example::{Example, NormaliserWord, Scale, Step, WordClaim};
use super::explain::short;
use super::judge::{Judged, Verdict};
use super::recipe::divisor;

/// A statement in words and whether it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedWord {
    /// `scale` or `squash`.
    pub name: &'static str,
    /// The side of the padding.
    pub line: usize,
    /// What was said.
    pub claimed: String,
    /// Whether it is wrong.
    pub wrong: bool,
    /// Why, or what is to be added.
    pub sentence: String,
    /// The step that it belongs to.
    pub step: Step,
}

/// Whether a statement in words holds, seen beside the numbers.
pub(super) fn judge_word(example: &Example, word: WordClaim, claims: &[Judged]) -> JudgedWord {
    match word {
        WordClaim::Scale(scale, line) => scale_word(example, scale, line),
        WordClaim::Normaliser(word, line) => {
            let wrong = word == NormaliserWord::Sigmoid;
            JudgedWord {
                name: "squash",
                line,
                claimed: if wrong { "sigmoid" } else { "softmax" }.into(),
                wrong,
                sentence: if wrong {
                    sigmoid_sentence(claims)
                } else {
                    "weights are a softmax of scores".into()
                },
                step: Step::Weights,
            }
        }
    }
}

/// Whether only the word is wrong, or the numbers too.
fn sigmoid_sentence(claims: &[Judged]) -> String {
    let weights: Vec<&Judged> = claims.iter().filter(|j| j.claim.part.step == Step::Weights).collect();
    let sigmoid = |judged: &&Judged| match &judged.verdict {
        Verdict::Wrong(diagnosis) => diagnosis.fits.iter().any(|fit| fit.explanation.kind() == "sigmoid"),
        _ => false,
    };
    let numbers = match weights.is_empty() {
        true => "no weights are claimed",
        false if weights.iter().all(|j| !matches!(j.verdict, Verdict::Wrong(_))) => {
            "the numbers claimed for the weights are a softmax's, so only the word is wrong"
        }
        false if weights.iter().any(sigmoid) => "the numbers claimed for the weights are a sigmoid's, too",
        false => "the numbers claimed for the weights are neither's",
    };
    format!("weights are a softmax of scores, not a sigmoid; {numbers}")
}

fn scale_word(example: &Example, scale: Scale, line: usize) -> JudgedWord {
    let number = |scale| divisor(example, scale);
    let (said, right) = (number(scale), number(example.scale));
    let wrong = said != right;
    let show = |x: Option<f64>| x.map(|x| format!(" = {}", short(x))).unwrap_or_default();
    let sentence = match (wrong, scale == example.scale) {
        (true, _) => {
            format!("products are divided by {}{}, not by {scale}{}", example.scale, show(right), show(said))
        }
        (false, true) => format!("products are divided by {scale}{}", show(right)),
        (false, false) => format!(
            "the same number here, {scale} = {}{}; in general it is {}",
            example.scale,
            show(right),
            example.scale
        ),
    };
    JudgedWord { name: "scale", line, claimed: scale.to_string(), wrong, sentence, step: Step::Scores }
}
