//! What a model generated: sentences, scores, tokens, and where each word came from.

use attnscope::answer::{
    EndedBy, From, Generation, Output, Prompt, Sentence, SpeechWindow, TimedWord, WordAlignment,
};
use attnscope::figures::counted;

use crate::flow::fill;
use crate::glyphs::clean;
use crate::heatmap::Heatmap;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::text::Style;
use crate::wrap::wrap_plain;

/// Columns before the text of a line.
const LABEL: usize = 8;

/// A generation for people.
pub fn text(generation: &Generation, options: Options, style: Style) -> String {
    let page = Page { generation, options, style };
    let mut sections = vec![page.heading()];
    sections.extend(generation.outputs.iter().enumerate().map(|(i, output)| page.output(i, output)));
    if let (Some(text), true) = (&generation.text, generation.outputs.len() > 1) {
        sections.push(labelled("text", text));
    }
    if let Some(heads) = &generation.alignment_heads {
        let names: Vec<String> = heads.heads.iter().map(|[layer, head]| format!("{layer}.{head}")).collect();
        let text = format!("aligned by the heads {} (layer.head): {}", names.join(" "), heads.because);
        sections.push(page.wrapped(&text));
    }
    options.glyphs.lines(&sections.join("\n"))
}

struct Page<'a> {
    generation: &'a Generation,
    options: Options,
    style: Style,
}

impl Page<'_> {
    /// The model, the search, the recording.
    fn heading(&self) -> String {
        let Generation { model, title, search, .. } = self.generation;
        let found = match search.beams {
            1 => "greedy".to_owned(),
            beams => format!("{beams} beams"),
        };
        let most = counted(search.max_new_tokens, "new token");
        let mut text = format!("{}: {title}, {found}, at most {most}\n", clean(model));
        if let Some(audio) = &self.generation.audio {
            let windows = counted(self.generation.outputs.len(), "window");
            let (file, seconds, window) = (clean(&audio.file), audio.seconds, audio.window_seconds);
            let times = if self.generation.timestamps { "with" } else { "without" };
            text += &format!("{file}: {seconds:.2} s, {windows} of {window} s, {times} timestamps\n");
        }
        text
    }

    fn output(&self, number: usize, output: &Output) -> String {
        let mut out = match &output.source {
            None => output.prompt.as_ref().map(prompt).unwrap_or_default(),
            Some(From::Tokens { text: Some(text), .. }) => labelled("source", or_empty(text)),
            Some(From::Tokens { text: None, tokens }) => {
                labelled("source", &ids(tokens.iter().map(|token| token.id)))
            }
            Some(From::Window(window)) if self.generation.audio.is_some() => {
                let (start, end) = (window.start, window.end);
                labelled("window", &format!("{}: {start:.2} to {end:.2} s{}", number + 1, detection(window)))
            }
            Some(From::Window(window)) => labelled("row", &format!("{number}{}", detection(window))),
        };
        let Some(best) = output.best() else {
            return out + &labelled("target", "(the limit allows no token)");
        };
        if self.generation.given_start {
            let label = |(id, piece): (&u32, &Option<String>)| match piece {
                Some(piece) => format!("{} {id}", clean(piece)),
                None => id.to_string(),
            };
            let start = output.start.iter().zip(&output.start_pieces).map(label).collect::<Vec<_>>();
            out += &self.listed("given", &start);
        }
        out += &self.target(output, best);
        for segment in output.segments.iter().flatten() {
            let text = segment.text.as_deref().unwrap_or_default();
            out +=
                &labelled("", &format!("{:.2} to {:.2} s: {}", segment.start, segment.end, or_empty(text)));
        }
        out += &labelled("score", &self.score(best));
        let tokens: Vec<String> = best
            .tokens
            .iter()
            .map(|token| {
                let piece = token.piece.as_ref().map_or_else(|| token.id.to_string(), |piece| clean(piece));
                format!("{piece} {:.2}", token.log_prob)
            })
            .collect();
        out += &self.listed("tokens", &tokens);
        for (rank, other) in output.hypotheses.iter().enumerate().skip(1) {
            let text = self.sentence(output, other);
            out +=
                &labelled(&format!("beam {}", rank + 1), &format!("{:.3}  {}", other.score, or_empty(&text)));
        }
        out += &output.alignment.as_ref().map(|words| self.alignment(words)).unwrap_or_default();
        out + &output.words.as_ref().map(|words| self.times(words)).unwrap_or_default()
    }

    fn target(&self, output: &Output, best: &Sentence) -> String {
        match &output.source {
            Some(From::Window(window)) if window.silent => {
                let why = if window.zeros { ": every sample is 0" } else { "" };
                labelled("target", &format!("(no speech{why})"))
                    + &labelled("unsaid", or_empty(&self.sentence(output, best)))
            }
            source => {
                let label = if source.is_none() { "text" } else { "target" };
                labelled(label, or_empty(output.said.as_deref().unwrap_or_default()))
            }
        }
    }

    /// The text of a sentence, or its ids where no tokenizer is known.
    fn sentence(&self, output: &Output, sentence: &Sentence) -> String {
        let given = if self.generation.given_start { output.start.as_slice() } else { &[] };
        let tokens = given.iter().copied().chain(sentence.tokens.iter().map(|token| token.id));
        sentence.text.as_ref().map_or_else(|| ids(tokens), |text| clean(text))
    }

    /// The score, its formula, and why the sentence ended.
    fn score(&self, sentence: &Sentence) -> String {
        let count = sentence.tokens.len();
        let power = match self.generation.search.length_penalty {
            1.0 => String::new(),
            penalty => format!("^{penalty}"),
        };
        let end = match sentence.ended_by {
            EndedBy::End => "ended by the end token".to_owned(),
            EndedBy::Limit => format!("stopped by the limit of {}", counted(count, "new token")),
        };
        let tokens = counted(count, "token");
        format!("{:.3} = {:.2} / {tokens}{power}; {end}", sentence.score, sentence.log_prob)
    }

    /// Broken into lines, in its characters before it is measured.
    fn wrapped(&self, text: &str) -> String {
        wrap_plain(&self.options.glyphs.lines(text), self.options.width).join("\n") + "\n"
    }

    /// Parts on as many lines as they need, the first with a label and the others below it.
    fn listed(&self, label: &str, parts: &[String]) -> String {
        // In its characters before it is measured.
        let text = self.options.glyphs.lines(&parts.join(" · "));
        let lines = fill(&text, self.options.width.saturating_sub(LABEL));
        let line = |(i, line): (usize, &str)| format!("{:<LABEL$}{line}\n", if i == 0 { label } else { "" });
        lines.lines().enumerate().map(line).collect()
    }

    /// The matrix of words, and under it which belong together.
    fn alignment(&self, words: &WordAlignment) -> String {
        let rows: Vec<String> = words.target_words.iter().map(|word| word.text.clone()).collect();
        let columns: Vec<String> = words.source_words.iter().map(|word| word.text.clone()).collect();
        let values = words.weights.concat();
        let map = Heatmap { rows: &rows, columns: &columns, values: &values };
        let legend = Heatmap::legend(self.options.glyphs);
        let link = |link: &attnscope::answer::Link| {
            let (target, source) = (rows.get(link.target)?, columns.get(link.source)?);
            Some(format!("{} ← {} {:.0} %", clean(target), clean(source), link.weight * 100.0))
        };
        let links: Vec<String> = words.links.iter().filter_map(link).collect();
        let map = map.text(self.options, self.style);
        let legend = self.wrapped(&format!("source across, target down: {legend}"));
        let about = "a link goes to the source word that a target word attends to more than the other target words \
                     do; end tokens are left out, so it need not be the largest of its row";
        let about = if links.is_empty() { String::new() } else { self.wrapped(about) };
        format!("\n{map}{legend}\n{}{about}", self.listed("links", &links))
    }

    /// A line for each word.
    fn times(&self, words: &[TimedWord]) -> String {
        if words.is_empty() {
            return labelled("words", "(none)");
        }
        let columns =
            vec![Column::right("start"), Column::right("end"), Column::right("p"), Column::left("word")];
        let mut table = Table::new(columns, self.options.glyphs).flexible(3);
        for word in words {
            let time = |seconds: f64| format!("{seconds:.2}");
            let p = format!("{:.2}", word.probability);
            table.row([time(word.start), time(word.end), p, word.word.trim().to_owned()]);
        }
        format!("\n{}", table.render(self.options.width))
    }
}

/// The language and the no-speech probability, from the first step.
fn detection(window: &SpeechWindow) -> String {
    let language = window.language.as_ref().map(|code| match window.language_probability {
        Some(p) => format!(", language {code} ({:.0} %)", p * 100.0),
        None => format!(", language {code}"),
    });
    let no_speech = window.no_speech.map(|p| format!(", no speech {:.0} %", p * 100.0));
    language.unwrap_or_default() + &no_speech.unwrap_or_default()
}

/// What is continued: its text, or its ids where no tokenizer is known.
fn prompt(prompt: &Prompt) -> String {
    let text = prompt.text.clone().or_else(|| prompt.decoded.clone());
    labelled("prompt", &text.unwrap_or_else(|| ids(prompt.tokens.iter().map(|token| token.id))))
}

fn ids(tokens: impl Iterator<Item = u32>) -> String {
    tokens.map(|id| id.to_string()).collect::<Vec<_>>().join(" ")
}

fn or_empty(text: &str) -> &str {
    if text.is_empty() { "(empty)" } else { text }
}

fn labelled(label: &str, text: &str) -> String {
    format!("{label:<LABEL$}{}\n", clean(text))
}
