//! Typed edits of pairs: each undoes one mistake of a file of pairs.

use attnscope_graph::{Model, Side};
use attnscope_run::{Tokenizer, check_rows};
use serde_json::{Value, json};

use crate::corpus::{Corpus, CorpusKind, PairSource, PairText};

/// Which texts of a pair are edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairSides {
    /// The source alone.
    Source,
    /// The target alone.
    Target,
    /// Both.
    Both,
    /// The texts of a decoder alone.
    Texts,
}

impl PairSides {
    fn of(kind: CorpusKind) -> &'static [Self] {
        match kind {
            CorpusKind::Pairs => &[Self::Source, Self::Target, Self::Both],
            CorpusKind::Texts => &[Self::Texts],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
            Self::Both => "both",
            Self::Texts => "text",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Source => "sources",
            Self::Target => "targets",
            Self::Both => "sources and targets",
            Self::Texts => "texts",
        }
    }

    fn has_source(self) -> bool {
        matches!(self, Self::Source | Self::Both)
    }

    fn has_target(self) -> bool {
        matches!(self, Self::Target | Self::Both | Self::Texts)
    }
}

/// From which line each target's source is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
    /// That of the line before.
    Before,
    /// That of the line after.
    After,
}

/// One edit of the pairs: what to do with them, so that they are what the model was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairEdit {
    /// The words of each text in reverse order.
    ReverseWords(PairSides),
    /// Texts in lower case.
    LowerCase(PairSides),
    /// Texts in upper case.
    UpperCase(PairSides),
    /// Source and target are exchanged.
    ExchangeSides,
    /// Each target with the source of a neighbouring line.
    SlipLines(Slip),
}

impl PairEdit {
    /// Every edit of a corpus of this kind, the simplest first.
    pub(super) fn all(kind: CorpusKind) -> Vec<Self> {
        let sides = PairSides::of(kind).iter().copied();
        let mut all: Vec<Self> = sides.clone().map(Self::ReverseWords).collect();
        all.extend(sides.clone().map(Self::LowerCase));
        all.extend(sides.map(Self::UpperCase));
        if kind == CorpusKind::Pairs {
            all.push(Self::ExchangeSides);
            all.extend([Slip::Before, Slip::After].map(Self::SlipLines));
        }
        all
    }

    /// The edited pairs, "the sources with their words in reverse order".
    pub fn words(self) -> String {
        match self {
            Self::ReverseWords(sides) => format!("the {} with their words in reverse order", sides.words()),
            Self::LowerCase(sides) => format!("the {} in lower case", sides.words()),
            Self::UpperCase(sides) => format!("the {} in upper case", sides.words()),
            Self::ExchangeSides => "sources and targets exchanged".into(),
            Self::SlipLines(Slip::Before) => "each target with the source of the line before".into(),
            Self::SlipLines(Slip::After) => "each target with the source of the line after".into(),
        }
    }

    /// What is wrong with the pairs: "the words of the sources are reversed".
    pub fn mistake(self) -> String {
        match self {
            Self::ReverseWords(sides) => format!("the words of the {} are reversed", sides.words()),
            Self::LowerCase(sides) => {
                format!("the {} have capitals that the model was not trained on", sides.words())
            }
            Self::UpperCase(sides) => {
                format!("the {} lack capitals that the model was trained on", sides.words())
            }
            Self::ExchangeSides => "sources and targets are exchanged".into(),
            Self::SlipLines(_) => "the targets are off by one line".into(),
        }
    }

    /// For programs.
    pub fn json(self) -> Value {
        match self {
            Self::ReverseWords(sides) => json!({ "kind": "reverse_words", "sides": sides.name() }),
            Self::LowerCase(sides) => json!({ "kind": "lower_case", "sides": sides.name() }),
            Self::UpperCase(sides) => json!({ "kind": "upper_case", "sides": sides.name() }),
            Self::ExchangeSides => json!({ "kind": "exchange_sides" }),
            Self::SlipLines(Slip::Before) => json!({ "kind": "slip_lines", "source_from": "line before" }),
            Self::SlipLines(Slip::After) => json!({ "kind": "slip_lines", "source_from": "line after" }),
        }
    }

    /// Edited pairs, in the order of the given ones. `None` where the edit changes nothing, has no text to change, or gives
    /// something that the model cannot read.
    pub(super) fn apply(
        self,
        corpus: &Corpus,
        tokenizer: Option<&Tokenizer>,
        model: &Model,
    ) -> Option<Corpus> {
        let edited = match self {
            Self::SlipLines(slip) => slipped(corpus, slip),
            _ => self.encoded(corpus, tokenizer?, model)?,
        };
        let is_changed = edited.sources != corpus.sources || edited.targets != corpus.targets;
        (is_changed && edited.fits(model, &corpus.shift)).then_some(edited)
    }

    fn encoded(self, corpus: &Corpus, tokenizer: &Tokenizer, model: &Model) -> Option<Corpus> {
        let mut edited = corpus.clone();
        if edited.texts.len() != corpus.len() {
            return None;
        }
        for (i, text) in edited.texts.iter_mut().enumerate() {
            let before = text.clone();
            *text = self.text(&before)?;
            if text.source != before.source {
                let ids = tokenizer.encode_source(text.source.as_deref()?).ok()?;
                check_rows(model, Side::Source, std::slice::from_ref(&ids)).ok()?;
                edited.sources[i] = PairSource::Tokens(ids);
            }
            if text.target != before.target {
                let ids = match corpus.kind() {
                    CorpusKind::Pairs => tokenizer.encode_target(&text.target).ok()?,
                    CorpusKind::Texts => tokenizer.encode_source(&text.target).ok()?,
                };
                check_rows(model, Side::Target, std::slice::from_ref(&ids)).ok()?;
                edited.targets[i] = ids;
            }
        }
        Some(edited)
    }

    /// The edited text of a pair; `None` where the edit needs the text of a source that is a clip.
    fn text(self, pair: &PairText) -> Option<PairText> {
        let edit = |sides: PairSides, edit: &dyn Fn(&str) -> String| {
            let mut edited = pair.clone();
            if sides.has_source() {
                edited.source = Some(edit(pair.source.as_deref()?));
            }
            if sides.has_target() {
                edited.target = edit(&pair.target);
            }
            Some(edited)
        };
        match self {
            Self::ReverseWords(sides) => edit(sides, &reversed),
            Self::LowerCase(sides) => edit(sides, &str::to_lowercase),
            Self::UpperCase(sides) => edit(sides, &str::to_uppercase),
            Self::ExchangeSides => {
                Some(PairText { source: Some(pair.target.clone()), target: pair.source.clone()? })
            }
            Self::SlipLines(_) => Some(pair.clone()),
        }
    }
}

/// The words of a text in reverse order, behind the spaces that it begins with.
fn reversed(text: &str) -> String {
    let rest = text.trim_start();
    let spaces = &text[..text.len() - rest.len()];
    format!("{spaces}{}", rest.split_whitespace().rev().collect::<Vec<_>>().join(" "))
}

fn slipped(corpus: &Corpus, slip: Slip) -> Corpus {
    let n = corpus.len();
    let from = |line: usize| match slip {
        Slip::Before => (line + n - 1) % n,
        Slip::After => (line + 1) % n,
    };
    let mut slipped = corpus.clone();
    slipped.sources = (0..n).map(|line| corpus.sources[from(line)].clone()).collect();
    for (line, text) in slipped.texts.iter_mut().enumerate().take(n) {
        text.source = corpus.texts.get(from(line)).and_then(|text| text.source.clone());
    }
    slipped
}

#[cfg(test)]
mod tests {
    use attnscope_run::Shift;

    use super::*;

    fn text(source: &str, target: &str) -> PairText {
        PairText { source: Some(source.into()), target: target.into() }
    }

    #[test]
    fn each_edit_is_of_the_texts_that_it_names() {
        let pair = text("Two dogs play.", "Zwei Hunde spielen.");
        let edited = |edit: PairEdit| edit.text(&pair).unwrap();
        use PairSides::{Both, Source, Target};
        let cases = [
            (PairEdit::ReverseWords(Source), text("play. dogs Two", "Zwei Hunde spielen.")),
            (PairEdit::ReverseWords(Target), text("Two dogs play.", "spielen. Hunde Zwei")),
            (PairEdit::ReverseWords(Both), text("play. dogs Two", "spielen. Hunde Zwei")),
            (PairEdit::LowerCase(Target), text("Two dogs play.", "zwei hunde spielen.")),
            (PairEdit::UpperCase(Source), text("TWO DOGS PLAY.", "Zwei Hunde spielen.")),
            (PairEdit::LowerCase(PairSides::Texts), text("Two dogs play.", "zwei hunde spielen.")),
            (PairEdit::ExchangeSides, text("Zwei Hunde spielen.", "Two dogs play.")),
        ];
        for (edit, expected) in cases {
            assert_eq!(edited(edit), expected, "{edit:?}");
        }
    }

    /// A transcript begins with a space, which belongs to its first word whichever that is; a clip has no words.
    #[test]
    fn a_transcript_keeps_its_space_and_a_clip_has_no_text() {
        let pair = PairText { source: None, target: " And so my fellow".into() };
        let reversed = PairEdit::ReverseWords(PairSides::Target).text(&pair).unwrap();
        assert_eq!(reversed, PairText { source: None, target: " fellow my so And".into() });
        for edit in [PairEdit::LowerCase(PairSides::Source), PairEdit::ExchangeSides] {
            assert_eq!(edit.text(&pair), None, "{edit:?}");
        }
    }

    #[test]
    fn lines_slip_in_either_direction() {
        let corpus = Corpus {
            sources: (0..3).map(|i| vec![i, 1].into()).collect(),
            targets: (10..13).map(|i| vec![i, 1]).collect(),
            texts: ["a", "b", "c"].map(|s| text(s, "t")).to_vec(),
            shift: Shift::Start(0),
            pad: 0,
        };
        let before = slipped(&corpus, Slip::Before);
        assert_eq!(before.sources, [vec![2, 1], vec![0, 1], vec![1, 1]].map(PairSource::from));
        assert_eq!(before.targets, corpus.targets);
        assert_eq!(before.texts[0], text("c", "t"));
        let after = slipped(&corpus, Slip::After);
        assert_eq!(after.sources, [vec![1, 1], vec![2, 1], vec![0, 1]].map(PairSource::from));
    }

    /// Each edit has words and a form of its own.
    #[test]
    fn edits_are_told_apart() {
        let all = [CorpusKind::Pairs, CorpusKind::Texts].map(PairEdit::all).concat();
        for (i, edit) in all.iter().enumerate() {
            for other in &all[..i] {
                assert!(edit.words() != other.words() && edit.json() != other.json(), "{edit:?}, {other:?}");
            }
        }
    }
}
