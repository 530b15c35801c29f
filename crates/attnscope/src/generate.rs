//! What a model generates, with its scores, and where each word came from.

use std::path::Path;

use attnscope_checkpoint::Remedy;
use attnscope_graph::Side;
use attnscope_run::align::{Head, Heads, Word};
use attnscope_run::audio::{POSITION_SECONDS, Recording, Window};
use attnscope_run::generate::{Hypothesis, Limit, MOST_BEAMS, Segment, Settings};
use attnscope_run::{Counted, Rows, Sequence, Session};

use crate::answer::{
    AlignedWord, AlignmentHeads, EndedBy, From, Generation, Link, Output, Piece, Prompt, Recorded, SCHEMA,
    Search, Sentence, SpeechWindow, TimedSegment, TimedWord, WordAlignment, WrittenToken,
};
use crate::failure::{Argument, Failure};
use crate::generated_row::{Aligned, GeneratedRow};
use crate::input::Input;
use crate::note::{Note, Notes, beyond_positions, notes_of_model, of_source, pads, weights_in_file};
use crate::ready::Ready;

/// How a model generates; defaults are those of its documents.
///
/// ```
/// use attnscope::{GenerateOptions, Input};
///
/// let options = GenerateOptions { beams: Some(4), ..GenerateOptions::default() };
/// let written = attnscope::open("demo")?.generate(&Input::text("Two dogs play."), &options)?;
/// assert_eq!(written.outputs[0].hypotheses.len(), 4);
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerateOptions {
    /// What the decoder begins with.
    pub start: Option<Vec<u32>>,
    /// Beams; 1 takes the most likely token at each step.
    pub beams: Option<usize>,
    /// The most tokens that are generated for a sentence, or for a window of audio.
    pub max_length: Option<usize>,
    /// Transcribe with times.
    pub timestamps: bool,
    /// Which source word each word came from; for audio, when each word was said.
    pub align: bool,
    /// Heads of the cross-attention to align by; implies an alignment.
    pub align_heads: Vec<Head>,
}

/// The most tokens that may be asked for.
pub const MOST_TOKENS: usize = 65536;

/// Writes from every row of an input.
pub(crate) fn generate(
    mut ready: Ready<'_>,
    input: &Input,
    options: &GenerateOptions,
    mut notes: Notes,
) -> Result<Generation, Failure> {
    notes.add(notes_of_model(ready.model));
    notes.add(weights_in_file(&ready));
    check_generates(&ready)?;
    if let Some(start) = &options.start {
        notes.add(pads(&ready, Side::Target, &Rows::new(std::slice::from_ref(start), ready.pad)));
        ready.begin_with(start.clone())?;
    }
    if options.timestamps {
        ready.write_times()?;
    }
    let settings = settings(&ready, options)?;
    notes.add(settings.notes.iter().cloned().map(Note::NotDone));
    let heads = alignment_heads(&ready, options)?;
    let mut writer = Writer {
        ready: &ready,
        settings: &settings,
        given: options.start.is_some(),
        heads: heads.as_ref(),
        session: ready.session(),
        longest: 0,
    };
    let (audio, outputs) = match input.recording() {
        _ if !ready.model.architecture.reads(Side::Source) => {
            (None, writer.prompts(&input.prompt_rows(&ready)?, input.prompts())?)
        }
        Some(file) => writer.recording(file, &mut notes)?,
        None => {
            let source = input.source(&ready)?;
            notes.add(of_source(&ready, &source));
            (None, writer.rows(&source, input.source_texts(&ready)?)?)
        }
    };
    // The last token is generated but never read.
    notes.add(beyond_positions(&ready, Side::Target, writer.longest.saturating_sub(1)));
    let started = outputs.first().map_or(settings.start.len(), |output| output.start.len());
    Ok(Generation {
        schema: SCHEMA,
        model: ready.opened.name.clone(),
        title: ready.model.title(),
        family: ready.model.family.id.to_owned(),
        text: audio.is_some().then(|| transcript(&outputs)),
        search: Search {
            beams: settings.beams,
            length_penalty: settings.length_penalty,
            max_new_tokens: settings.max_length(started).saturating_sub(started),
            end_tokens: settings.ends.clone(),
            not_done: settings.notes.clone(),
        },
        audio,
        alignment_heads: heads.map(|heads| AlignmentHeads {
            heads: heads.heads.iter().map(|head| [head.layer, head.head]).collect(),
            because: heads.because,
        }),
        outputs,
        given_start: options.start.is_some(),
        timestamps: ready.times,
        notes: notes.all,
    })
}

/// All windows' texts.
fn transcript(outputs: &[Output]) -> String {
    let said =
        outputs.iter().filter(|output| !output.is_silent()).filter_map(|output| output.said.as_deref());
    said.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The heads to align by, where an alignment is wanted.
fn alignment_heads(ready: &Ready<'_>, options: &GenerateOptions) -> Result<Option<Heads>, Failure> {
    match (options.align_heads.as_slice(), options.align) {
        ([], false) => Ok(None),
        _ if !ready.model.architecture.has_cross_attention() => Err(Failure::new(
            format!(
                "{}: a model that is {} has no cross-attention, so there is nothing to align by",
                ready.opened.name,
                ready.model.architecture.kind()
            ),
            Remedy::NoAlignment,
        )),
        ([], true) => Ok(Some(ready.alignment_heads()?)),
        (chosen, _) => Heads::chosen(ready.model, chosen)
            .map(Some)
            .map_err(|why| Failure::new(why, Remedy::DrawHeads).about(Argument::AlignmentHeads)),
    }
}

/// Refuses a number that is none, or more than a machine bears.
fn within(number: usize, most: usize, argument: fn(usize) -> Argument) -> Result<(), Failure> {
    if (1..=most).contains(&number) {
        return Ok(());
    }
    let failure = Failure::new(format!("expected 1 to {most}"), "give fewer, or leave it to the model");
    Err(failure.about(argument(number)))
}

/// The model's own settings, with what was asked for in their place.
fn settings(ready: &Ready<'_>, options: &GenerateOptions) -> Result<Settings, Failure> {
    let mut settings = ready.settings();
    if let Some(beams) = options.beams {
        within(beams, MOST_BEAMS, Argument::Beams)?;
        settings.beams = beams;
    }
    if let Some(most) = options.max_length {
        within(most, MOST_TOKENS, Argument::MaxLength)?;
        settings.limit = Limit::New(most);
    }
    if !settings.start.is_empty() || !ready.model.architecture.reads(Side::Source) {
        return Ok(settings);
    }
    let title = ready.model.family.title;
    let (why, help) = match (ready.model.graph.reads_audio(), &ready.tokenizer) {
        (true, None) => (
            "its vocabulary is not one of OpenAI's, and there is no tokenizer beside the weights",
            Remedy::TokenizerOrStart,
        ),
        _ => ("no document beside the weights says it", Remedy::DecoderStart),
    };
    let name = &ready.opened.name;
    Err(Failure::new(
        format!("{name}: what the decoder of this {title} begins with is not known: {why}"),
        help,
    ))
}

/// A model without a decoder, or without logits, generates nothing.
fn check_generates(ready: &Ready<'_>) -> Result<(), Failure> {
    let (name, architecture) = (&ready.opened.name, &ready.model.architecture);
    match architecture.reads(Side::Target) && architecture.classifier().is_none() {
        true => Ok(()),
        false => Err(Failure::new(
            format!("{name}: a model that is {} does not generate", architecture.kind()),
            Remedy::TraceInstead(name.clone()),
        )),
    }
}

/// A running generation.
struct Writer<'a> {
    ready: &'a Ready<'a>,
    settings: &'a Settings,
    /// Whether the caller gave what the decoder begins with: it is part of the sentence.
    given: bool,
    /// Of the alignment, where one is wanted.
    heads: Option<&'a Heads>,
    session: Box<dyn Session>,
    /// Tokens of the longest sentence, with what the decoder began with.
    longest: usize,
}

impl Writer<'_> {
    /// Continues each prompt.
    fn prompts(&mut self, rows: &Rows, texts: &[String]) -> Result<Vec<Output>, Failure> {
        let rows = rows.tokens();
        let generated = self.ready.continue_prompts(&mut *self.session, &rows, self.settings)?;
        let mut texts = texts.iter().cloned();
        let output = |(ids, generated): (Vec<u32>, GeneratedRow)| {
            let prompt = Prompt {
                text: texts.next(),
                decoded: self.decoded(&ids),
                tokens: self.pieces(Side::Target, &ids),
            };
            Output { prompt: Some(prompt), ..self.output(None, &[], &generated) }
        };
        Ok(rows.into_iter().zip(generated).map(output).collect())
    }

    /// Generates from each row of a source.
    fn rows(&mut self, source: &Sequence, texts: Vec<String>) -> Result<Vec<Output>, Failure> {
        let generated = self.ready.generate_rows(&mut *self.session, source, self.settings)?;
        let Sequence::Tokens(rows) = source else {
            let of_row = |(row, generated): (usize, GeneratedRow)| match source.select(&[row]) {
                Sequence::Features(features) => {
                    let end = features.frames as f64 * POSITION_SECONDS / 2.0;
                    Some((Window { start: 0.0, end, zeros: false, features }, generated))
                }
                Sequence::Tokens(_) => None,
            };
            let windows: Vec<_> = generated.into_iter().enumerate().filter_map(of_row).collect();
            return windows.into_iter().map(|(window, generated)| self.window(&window, generated)).collect();
        };
        let mut texts = texts.into_iter();
        let output = |(ids, generated): (Vec<u32>, GeneratedRow)| {
            let alignment = match self.heads {
                Some(heads) => {
                    Some(word_alignment(&self.ready.align(&mut *self.session, heads, &ids, &generated)?))
                }
                None => None,
            };
            let source = From::Tokens { text: texts.next(), tokens: self.pieces(Side::Source, &ids) };
            Ok(Output { alignment, ..self.output(Some(source), &[], &generated) })
        };
        rows.tokens().into_iter().zip(generated).map(output).collect()
    }

    /// Transcribes one window of the model's length after the other.
    fn recording(
        &mut self,
        file: &Path,
        notes: &mut Notes,
    ) -> Result<(Option<Recorded>, Vec<Output>), Failure> {
        let (mels, frames) = self.ready.window(Argument::Audio)?;
        let recording = Recording::read(file)?;
        let (seconds, length) = (recording.seconds(), frames as f64 * POSITION_SECONDS / 2.0);
        notes.add(recording.cancels().then_some(Note::ChannelsCancel));
        if seconds > length {
            notes.add([Note::Windows { seconds, window: length, by_segments: self.ready.times }]);
        }
        let (mut outputs, mut at) = (Vec::new(), 0.0);
        while let Some(mut window) = recording.window(at, mels, frames) {
            if self.ready.times {
                window.cut_features();
            }
            let source = Sequence::Features(window.features.clone());
            let mut next = length;
            for mut generated in self.ready.generate_rows(&mut *self.session, &source, self.settings)? {
                generated.zeros = window.zeros;
                next = self.ready.segments(&window, &generated).1;
                outputs.push(self.window(&window, generated)?);
            }
            at += next;
            let progress = &self.ready.prepared.limits().progress;
            progress.tell(Counted::Decoded, at.min(seconds) as usize, seconds as usize);
        }
        let audio = Recorded { file: file.display().to_string(), seconds, window_seconds: length };
        Ok((Some(audio), outputs))
    }

    fn window(&mut self, window: &Window, generated: GeneratedRow) -> Result<Output, Failure> {
        let words = match self.heads {
            Some(heads) => {
                let timed = self.ready.times(&mut *self.session, heads, window, &generated)?;
                let word = |(word, probability): (attnscope_run::align::Timed, f64)| TimedWord {
                    word: word.text,
                    start: hundredths(word.start),
                    end: hundredths(word.end),
                    probability,
                    tokens: [word.tokens.start, word.tokens.end],
                };
                Some(timed.into_iter().map(word).collect())
            }
            None => None,
        };
        let segments = self.ready.segments(window, &generated).0;
        let detection = generated.detection.unwrap_or_default();
        let source = From::Window(SpeechWindow {
            start: window.start,
            end: window.end,
            language: self.language(&generated),
            language_probability: detection.language.and_then(|(_, p)| p),
            no_speech: detection.no_speech,
            silent: generated.is_silence(),
            zeros: generated.zeros,
        });
        let mut output = self.output(Some(source), &segments, &generated);
        if let (true, Some(best)) = (self.ready.times, generated.best()) {
            let segment = |segment: &Segment| TimedSegment {
                start: hundredths(segment.start + window.start),
                end: hundredths(segment.end + window.start),
                text: best.tokens.get(segment.tokens.clone()).and_then(|tokens| self.decoded(tokens)),
                tokens: [segment.tokens.start, segment.tokens.end],
            };
            output.segments = Some(segments.iter().map(segment).collect());
        }
        Ok(Output { words, ..output })
    }

    /// The output, without its source.
    fn output(&mut self, source: Option<From>, segments: &[Segment], generated: &GeneratedRow) -> Output {
        if let Some(best) = generated.best() {
            self.longest = self.longest.max(generated.start.len() + best.tokens.len());
        }
        Output {
            source,
            start: generated.start.clone(),
            start_pieces: generated.start.iter().map(|&id| self.piece(Side::Target, id)).collect(),
            hypotheses: generated.hypotheses.iter().map(|found| self.sentence(found)).collect(),
            prompt: None,
            said: generated.best().map(|best| self.said(segments, best)),
            segments: None,
            alignment: None,
            words: None,
        }
    }

    fn sentence(&self, hypothesis: &Hypothesis) -> Sentence {
        let token = |(&id, &log_prob): (&u32, &f64)| WrittenToken {
            id,
            piece: self.piece(Side::Target, id),
            log_prob,
        };
        Sentence {
            text: self.decoded(&self.whole(hypothesis)),
            score: hypothesis.score,
            log_prob: hypothesis.log_probs.iter().sum::<f64>(),
            ended_by: if hypothesis.ended { EndedBy::End } else { EndedBy::Limit },
            tokens: hypothesis.tokens.iter().zip(&hypothesis.log_probs).map(token).collect(),
        }
    }

    /// A sentence's tokens, with the start that was given.
    fn whole(&self, hypothesis: &Hypothesis) -> Vec<u32> {
        let given = if self.given { self.settings.start.as_slice() } else { &[] };
        [given, &hypothesis.tokens].concat()
    }

    /// The text of a sentence, or its ids where no tokenizer is known; without a segment that is not whole.
    fn said(&self, segments: &[Segment], best: &Hypothesis) -> String {
        let last = segments.last().and_then(|last| self.decoded(best.tokens.get(..last.tokens.end)?));
        let tokens = self.whole(best);
        let ids = || tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        last.or_else(|| self.decoded(&tokens)).unwrap_or_else(ids)
    }

    /// The text of tokens, without special ones.
    fn decoded(&self, tokens: &[u32]) -> Option<String> {
        let tokenizer = self.ready.tokenizer.as_ref()?;
        // Times are not everywhere marked as special.
        let is_text = |id: &&u32| self.ready.speech.as_ref().is_none_or(|speech| speech.is_text(**id));
        let text: Vec<u32> = tokens.iter().filter(is_text).copied().collect();
        Some(tokenizer.decode(&text, true).trim().to_owned())
    }

    fn language(&self, generated: &GeneratedRow) -> Option<String> {
        let (speech, tokenizer) = (self.ready.speech.as_ref()?, self.ready.tokenizer.as_ref()?);
        speech.code(tokenizer, generated.detection?.language?.0)
    }

    fn pieces(&self, side: Side, ids: &[u32]) -> Vec<Piece> {
        ids.iter().map(|&id| Piece { id, piece: self.piece(side, id) }).collect()
    }

    fn piece(&self, side: Side, id: u32) -> Option<String> {
        self.ready.tokenizer.as_ref().and_then(|tokenizer| tokenizer.piece(side, id))
    }
}

fn word_alignment(aligned: &Aligned) -> WordAlignment {
    let word = |word: &Word| AlignedWord {
        text: word.text.clone(),
        tokens: [word.tokens.start, word.tokens.end],
        special: word.special,
    };
    let weights = &aligned.alignment.weights;
    let link = |(target, source): (usize, &Option<usize>)| {
        let source = (*source)?;
        Some(Link { target, source, weight: *weights.get(target)?.get(source)? })
    };
    WordAlignment {
        source_words: aligned.source.iter().map(word).collect(),
        target_words: aligned.target.iter().map(word).collect(),
        weights: weights.clone(),
        links: aligned.alignment.links.iter().enumerate().filter_map(link).collect(),
    }
}

/// Positions are 20 ms apart; further digits come from binary rounding.
fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}
