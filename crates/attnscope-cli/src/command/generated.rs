//! What was generated, for people and for programs.

use attnscope_graph::Side;
use attnscope_render::{Column, Heatmap, Table, clean, fill, json, wrap_plain};
use attnscope_run::align::{Head, Heads, Timed, Word};
use attnscope_run::generate::{Hypothesis, Segment, Settings};
use serde_json::{Value, json};

use super::Output;
use attnscope::Ready;
use attnscope::{Aligned as Words, Written};

/// What a command made, and how.
pub(super) struct Generated<'a> {
    pub(super) ready: &'a Ready<'a>,
    pub(super) settings: &'a Settings,
    /// The user gave what the decoder begins with: it is part of the sentence.
    pub(super) given: bool,
    pub(super) heads: Option<&'a Heads>,
    pub(super) audio: Option<Audio>,
    pub(super) made: Vec<Made>,
}

/// A recording.
pub(super) struct Audio {
    pub(super) file: String,
    pub(super) seconds: f64,
    /// Seconds that the model hears at once.
    pub(super) window: f64,
}

/// What was made from one sentence or window.
pub(super) struct Made {
    pub(super) from: From,
    pub(super) written: Written,
    pub(super) aligned: Aligned,
}

/// What it was made from.
pub(super) enum From {
    /// What a decoder alone continues.
    Prompt {
        text: Option<String>,
        ids: Vec<u32>,
    },
    Tokens {
        text: Option<String>,
        ids: Vec<u32>,
    },
    /// Seconds of a recording, and the segments where times are written.
    Window {
        start: f64,
        end: f64,
        segments: Vec<Segment>,
    },
}

/// Where its words came from.
pub(super) enum Aligned {
    None,
    Words(Words),
    /// Words, when they were said, and their probability.
    Times(Vec<(Timed, f64)>),
}

/// Columns before the text of a line.
const LABEL: usize = 8;

impl Generated<'_> {
    pub(super) fn text(&self, output: &Output<'_>) -> String {
        let mut sections = vec![self.heading()];
        sections.extend(self.made.iter().enumerate().map(|(i, made)| self.one(i, made, output)));
        if self.audio.is_some() && self.made.len() > 1 {
            sections.push(labelled("text", &self.transcript()));
        }
        if let Some(heads) = self.heads {
            let text = format!("aligned by the heads {} (layer.head): {}", heads.names(), heads.because);
            sections.push(wrapped(&text, output));
        }
        output.glyphs_text(&sections.join("\n"))
    }

    /// The model, the search, the recording.
    fn heading(&self) -> String {
        let (name, title) = (clean(&self.ready.opened.name), self.ready.model.title());
        let search = match self.settings.beams {
            1 => "greedy".to_owned(),
            beams => format!("{beams} beams"),
        };
        let mut text = format!("{name}: {title}, {search}, at most {}\n", new_tokens(self.most_tokens()));
        if let Some(audio) = &self.audio {
            let windows = self.made.len();
            let s = if windows == 1 { "" } else { "s" };
            let (file, seconds, window) = (clean(&audio.file), audio.seconds, audio.window);
            let times = if self.ready.times { "with" } else { "without" };
            text +=
                &format!("{file}: {seconds:.2} s, {windows} window{s} of {window} s, {times} timestamps\n");
        }
        text
    }

    fn most_tokens(&self) -> usize {
        let started = self.made.first().map_or(self.settings.start.len(), |made| made.written.start.len());
        self.settings.max_length(started).saturating_sub(started)
    }

    fn one(&self, number: usize, made: &Made, output: &Output<'_>) -> String {
        let mut out = match &made.from {
            From::Prompt { text, ids } => labelled(
                "prompt",
                &text.clone().or_else(|| self.decoded(ids)).unwrap_or_else(|| numbers(ids)),
            ),
            From::Tokens { text: Some(text), .. } => labelled("source", or_empty(text)),
            From::Tokens { text: None, ids } => labelled("source", &numbers(ids)),
            From::Window { start, end, .. } if self.audio.is_some() => labelled(
                "window",
                &format!("{}: {start:.2} to {end:.2} s{}", number + 1, self.heard(&made.written)),
            ),
            From::Window { .. } => labelled("row", &format!("{number}{}", self.heard(&made.written))),
        };
        let Some(best) = made.written.best() else {
            return out + &labelled("target", "(the limit leaves no room for a token)");
        };
        if self.given {
            let label = |&id: &u32| {
                self.piece(Side::Target, id).map_or(id.to_string(), |p| format!("{} {id}", clean(&p)))
            };
            out += &listed("given", &made.written.start.iter().map(label).collect::<Vec<_>>(), output);
        }
        if made.written.is_silence() {
            let why = if made.written.zeros { ": every sample is 0" } else { "" };
            out += &labelled("target", &format!("(nothing is said{why})"));
            out += &labelled("unsaid", or_empty(&self.sentence(best)));
        } else {
            let label = if matches!(made.from, From::Prompt { .. }) { "text" } else { "target" };
            out += &labelled(label, or_empty(&self.said(made, best)));
        }
        if let From::Window { segments, .. } = &made.from {
            let segment = |s: &Segment| {
                let text =
                    self.decoded(best.tokens.get(s.tokens.clone()).unwrap_or_default()).unwrap_or_default();
                labelled("", &format!("{:.2} to {:.2} s: {}", s.start, s.end, or_empty(&text)))
            };
            out += &segments.iter().map(segment).collect::<String>();
        }
        out += &labelled("score", &score(best, self.settings));
        let tokens: Vec<String> =
            best.tokens.iter().zip(&best.log_probs).map(|(&id, p)| self.token(id, *p)).collect();
        out += &listed("tokens", &tokens, output);
        for (rank, other) in made.written.hypotheses.iter().enumerate().skip(1) {
            let text = self.sentence(other);
            out +=
                &labelled(&format!("beam {}", rank + 1), &format!("{:.3}  {}", other.score, or_empty(&text)));
        }
        match &made.aligned {
            Aligned::None => {}
            Aligned::Words(words) => out += &alignment(words, output),
            Aligned::Times(words) => out += &times(words, output),
        }
        out
    }

    /// What was heard before anything was written.
    fn heard(&self, written: &Written) -> String {
        let Some(heard) = written.heard else { return String::new() };
        let mut text = String::new();
        if let Some(code) = self.language(written) {
            text += &match heard.language {
                Some((_, Some(p))) => format!(", language {code} ({:.0} %)", p * 100.0),
                _ => format!(", language {code}"),
            };
        }
        if let Some(p) = heard.no_speech {
            text += &format!(", no speech {:.0} %", p * 100.0);
        }
        text
    }

    fn language(&self, written: &Written) -> Option<String> {
        let (speech, tokenizer) = (self.ready.speech.as_ref()?, self.ready.tokenizer.as_ref()?);
        speech.code(tokenizer, written.heard?.language?.0)
    }

    /// The text of a sentence, or its ids where no tokenizer is known.
    fn sentence(&self, hypothesis: &Hypothesis) -> String {
        let tokens = self.whole(hypothesis);
        let ids = || tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        self.decoded(&tokens).map_or_else(ids, |text| clean(&text))
    }

    /// A sentence's tokens, with what it was given to begin with.
    fn whole(&self, hypothesis: &Hypothesis) -> Vec<u32> {
        let given = if self.given { self.settings.start.as_slice() } else { &[] };
        [given, &hypothesis.tokens].concat()
    }

    /// The same without a segment that is not whole and is heard again in the next window.
    fn said(&self, made: &Made, best: &Hypothesis) -> String {
        let last = match &made.from {
            From::Window { segments, .. } => segments.last(),
            From::Tokens { .. } | From::Prompt { .. } => None,
        };
        let whole = last.and_then(|last| self.decoded(best.tokens.get(..last.tokens.end)?));
        whole.map_or_else(|| self.sentence(best), |text| clean(&text))
    }

    /// The text of tokens, without special ones.
    fn decoded(&self, tokens: &[u32]) -> Option<String> {
        let tokenizer = self.ready.tokenizer.as_ref()?;
        // Times are not everywhere marked as special.
        let is_text = |id: &&u32| self.ready.speech.as_ref().is_none_or(|speech| speech.is_text(**id));
        let text: Vec<u32> = tokens.iter().filter(is_text).copied().collect();
        Some(tokenizer.decode(&text, true).trim().to_owned())
    }

    /// All windows' texts.
    fn transcript(&self) -> String {
        let said = self.made.iter().filter(|made| !made.written.is_silence());
        let texts = said.filter_map(|made| made.written.best().map(|best| self.said(made, best)));
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn token(&self, id: u32, log_prob: f64) -> String {
        let piece = self.piece(Side::Target, id).map_or_else(|| id.to_string(), |piece| clean(&piece));
        format!("{piece} {log_prob:.2}")
    }

    fn piece(&self, side: Side, id: u32) -> Option<String> {
        self.ready.tokenizer.as_ref().and_then(|t| t.piece(side, id))
    }

    pub(super) fn json(&self) -> Value {
        let settings = self.settings;
        let mut value = json!({
            "schema": json::SCHEMA,
            "model": self.ready.opened.name,
            "family": self.ready.model.family.id,
            "search": {
                "beams": settings.beams,
                "length_penalty": settings.length_penalty,
                "max_new_tokens": self.most_tokens(),
                "end_tokens": settings.ends,
                "not_done": settings.notes,
            },
        });
        if let Some(audio) = &self.audio {
            let (file, seconds) = (&audio.file, audio.seconds);
            value["audio"] = json!({ "file": file, "seconds": seconds, "window_seconds": audio.window });
            value["text"] = json!(self.transcript());
        }
        if let Some(heads) = self.heads {
            let pair = |head: &Head| [head.layer, head.head];
            let heads_json: Vec<[usize; 2]> = heads.heads.iter().map(pair).collect();
            value["alignment_heads"] = json!({ "heads": heads_json, "because": heads.because });
        }
        value["outputs"] = self.made.iter().map(|made| self.one_json(made)).collect();
        value
    }

    fn one_json(&self, made: &Made) -> Value {
        let written = &made.written;
        let heard = written.heard.unwrap_or_default();
        let tokens_json = |side: Side, text: &Option<String>, ids: &[u32]| {
            let tokens: Vec<Value> =
                ids.iter().map(|&id| json!({ "id": id, "piece": self.piece(side, id) })).collect();
            json!({ "text": text, "tokens": tokens })
        };
        let source = match &made.from {
            From::Prompt { .. } => Value::Null,
            From::Tokens { text, ids } => tokens_json(Side::Source, text, ids),
            From::Window { start, end, .. } => json!({
                "start": start,
                "end": end,
                "language": self.language(written),
                "language_probability": heard.language.and_then(|(_, p)| p),
                "no_speech": heard.no_speech,
                "silent": written.is_silence(),
                "zeros": written.zeros,
            }),
        };
        let hypotheses: Vec<Value> = written.hypotheses.iter().map(|h| self.hypothesis_json(h)).collect();
        let mut value = json!({ "source": source, "start": written.start, "hypotheses": hypotheses });
        if let From::Prompt { text, ids } = &made.from {
            value["prompt"] = tokens_json(Side::Target, text, ids);
        }
        if let (From::Window { segments, .. }, true, Some(best)) =
            (&made.from, self.ready.times, written.best())
        {
            let segment = |s: &Segment| {
                let text = best.tokens.get(s.tokens.clone()).and_then(|tokens| self.decoded(tokens));
                let tokens = [s.tokens.start, s.tokens.end];
                json!({ "start": hundredths(s.start), "end": hundredths(s.end), "text": text, "tokens": tokens })
            };
            value["segments"] = segments.iter().map(segment).collect();
        }
        match &made.aligned {
            Aligned::None => {}
            Aligned::Words(words) => value["alignment"] = words_json(words),
            Aligned::Times(words) => value["words"] = words.iter().map(time_json).collect(),
        }
        value
    }

    fn hypothesis_json(&self, hypothesis: &Hypothesis) -> Value {
        let token = |(&id, log_prob): (&u32, &f64)| json!({ "id": id, "piece": self.piece(Side::Target, id), "log_prob": log_prob });
        json!({
            "text": self.decoded(&self.whole(hypothesis)),
            "score": hypothesis.score,
            "log_prob": hypothesis.log_probs.iter().sum::<f64>(),
            "ended_by": if hypothesis.ended { "end" } else { "limit" },
            "tokens": hypothesis.tokens.iter().zip(&hypothesis.log_probs).map(token).collect::<Vec<_>>(),
        })
    }
}

/// The score, how it comes about, and why the sentence is over.
fn score(hypothesis: &Hypothesis, settings: &Settings) -> String {
    let (count, sum) = (hypothesis.tokens.len(), hypothesis.log_probs.iter().sum::<f64>());
    let power = match settings.length_penalty {
        1.0 => String::new(),
        penalty => format!("^{penalty}"),
    };
    let end = match hypothesis.ended {
        true => "ended by the end token".to_owned(),
        false => format!("stopped by the limit of {}", new_tokens(count)),
    };
    let tokens = if count == 1 { "token" } else { "tokens" };
    format!("{:.3} = {sum:.2} / {count} {tokens}{power}; {end}", hypothesis.score)
}

fn new_tokens(count: usize) -> String {
    format!("{count} new token{}", if count == 1 { "" } else { "s" })
}

fn numbers(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn or_empty(text: &str) -> &str {
    if text.is_empty() { "(empty)" } else { text }
}

fn labelled(label: &str, text: &str) -> String {
    format!("{label:<LABEL$}{}\n", clean(text))
}

/// Broken into lines.
fn wrapped(text: &str, output: &Output<'_>) -> String {
    // In its characters before it is measured.
    wrap_plain(&output.glyphs_text(text), output.width()).join("\n") + "\n"
}

/// Parts on as many lines as they need, the first with a label and the others below it.
fn listed(label: &str, parts: &[String], output: &Output<'_>) -> String {
    // In its characters before it is measured.
    let lines = fill(&output.glyphs_text(&parts.join(" · ")), output.width().saturating_sub(LABEL));
    let line = |(i, line): (usize, &str)| format!("{:<LABEL$}{line}\n", if i == 0 { label } else { "" });
    lines.lines().enumerate().map(line).collect()
}

/// The matrix of words, and under it which belong together.
fn alignment(words: &Words, output: &Output<'_>) -> String {
    let texts = |words: &[Word]| words.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
    let (rows, columns) = (texts(&words.target), texts(&words.source));
    let values = words.alignment.weights.concat();
    let map = Heatmap { rows: &rows, columns: &columns, values: &values };
    let legend = Heatmap::legend(output.glyphs());
    let link = |(i, link): (usize, &Option<usize>)| {
        let j = (*link)?;
        let weight = words.alignment.weights[i][j] * 100.0;
        Some(format!("{} ← {} {weight:.0} %", clean(&rows[i]), clean(&columns[j])))
    };
    let links: Vec<String> = words.alignment.links.iter().enumerate().filter_map(link).collect();
    let map = map.text(output.layout(), output.style());
    let legend = wrapped(&format!("source across, target down: {legend}"), output);
    let about = "a link goes to the source word that a target word looks at more than the other target words do; end \
                 tokens take no part, so it need not be the strongest of its row";
    let about = if links.is_empty() { String::new() } else { wrapped(about, output) };
    format!("\n{map}{legend}\n{}{about}", listed("links", &links, output))
}

/// A line for each word.
fn times(words: &[(Timed, f64)], output: &Output<'_>) -> String {
    if words.is_empty() {
        return labelled("words", "(none)");
    }
    let columns =
        vec![Column::right("start"), Column::right("end"), Column::right("p"), Column::left("word")];
    let mut table = Table::new(columns, output.glyphs()).flexible(3);
    for (word, p) in words {
        let time = |seconds: f64| format!("{seconds:.2}");
        table.row([time(word.start), time(word.end), format!("{p:.2}"), word.text.trim().to_owned()]);
    }
    format!("\n{}", table.render(output.width()))
}

fn words_json(words: &Words) -> Value {
    let word = |word: &Word| json!({ "text": word.text, "tokens": [word.tokens.start, word.tokens.end], "special": word.special });
    let link = |(target, source): (usize, &Option<usize>)| {
        let source = (*source)?;
        let weight = words.alignment.weights[target][source];
        Some(json!({ "target": target, "source": source, "weight": weight }))
    };
    json!({
        "source_words": words.source.iter().map(word).collect::<Vec<_>>(),
        "target_words": words.target.iter().map(word).collect::<Vec<_>>(),
        "weights": words.alignment.weights,
        "links": words.alignment.links.iter().enumerate().filter_map(link).collect::<Vec<_>>(),
    })
}

fn time_json((word, probability): &(Timed, f64)) -> Value {
    json!({
        "word": word.text,
        "start": hundredths(word.start),
        "end": hundredths(word.end),
        "probability": probability,
        "tokens": [word.tokens.start, word.tokens.end],
    })
}

/// Positions are 20 ms apart: what is below is the binary form's.
fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}
