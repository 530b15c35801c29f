//! BLEU as sacrebleu computes it by default: one reference, 13a tokens, case kept.

use std::collections::HashMap;

pub(crate) struct Bleu {
    pub(crate) score: f64,
    /// Of runs of one to four words, in per cent.
    pub(crate) precisions: [f64; 4],
    pub(crate) brevity_penalty: f64,
}

pub(crate) fn corpus(pairs: &[(String, String)]) -> Bleu {
    let (mut found, mut all, mut lengths) = ([0usize; 4], [0usize; 4], [0usize; 2]);
    for (made, reference) in pairs {
        let (made, reference) = (tokens(made), tokens(reference));
        lengths[0] += made.len();
        lengths[1] += reference.len();
        for n in 1..=4 {
            let references = runs(&reference, n);
            let of = |run: &[String]| references.get(run).copied().unwrap_or(0);
            found[n - 1] += runs(&made, n).iter().map(|(run, &count)| count.min(of(run))).sum::<usize>();
            all[n - 1] += (made.len() + 1).saturating_sub(n);
        }
    }
    let precisions = std::array::from_fn(|n| 100.0 * found[n] as f64 / all[n] as f64);
    let [made, reference] = lengths.map(|n| n as f64);
    let brevity_penalty = if made < reference { (1.0 - reference / made).exp() } else { 1.0 };
    let mean = precisions.iter().map(|p: &f64| p.ln()).sum::<f64>() / 4.0;
    Bleu { score: brevity_penalty * mean.exp(), precisions, brevity_penalty }
}

fn runs(words: &[String], n: usize) -> HashMap<&[String], usize> {
    let mut counts = HashMap::new();
    words.windows(n).for_each(|run| *counts.entry(run).or_default() += 1);
    counts
}

/// mteval-v13a's words: signs stand alone, but for a full stop or comma between digits.
fn tokens(text: &str) -> Vec<String> {
    let text = text.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    let mut spaced = String::new();
    for c in text.chars() {
        let sign = matches!(c, '{'..='~' | '['..='`' | ' '..='&' | '('..='+' | ':'..='@' | '/');
        if sign { spaced.extend([' ', c, ' ']) } else { spaced.push(c) }
    }
    let spaced: Vec<char> = format!(" {spaced} ").chars().collect();
    let mut out = String::new();
    for (i, &c) in spaced.iter().enumerate() {
        let digit = |at: Option<usize>| at.and_then(|at| spaced.get(at)).is_some_and(char::is_ascii_digit);
        let (before, after) = (digit(i.checked_sub(1)), digit(Some(i + 1)));
        match c {
            '.' | ',' if !(before && after) => out.extend([' ', c, ' ']),
            '-' if before => out.extend([' ', c, ' ']),
            c => out.push(c),
        }
    }
    out.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn words_are_those_of_13a() {
    // sacrebleu.tokenizers.tokenizer_13a.Tokenizer13a()(text)
    for (text, expected) in [
        ("Hello, world.", "Hello , world ."),
        ("3.5 of 1,000 (or so)", "3.5 of 1,000 ( or so )"),
        ("a 5-year-old's \"dog\"", "a 5 - year-old's \" dog \""),
        ("x/y & z &amp; 7.", "x / y & z & 7 ."),
    ] {
        assert_eq!(tokens(text).join(" "), expected);
    }
}
