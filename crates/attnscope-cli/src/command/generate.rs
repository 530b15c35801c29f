//! `generate`: what the model writes by itself, with its scores, and where each word came from.

use std::path::Path;

use attnscope_graph::{Front, Side, Stack};
use attnscope_render::json;
use attnscope_run::align::{Head, Heads};
use attnscope_run::audio::{POSITION_SECONDS, Recording, Window};
use attnscope_run::generate::{Limit, MOST_BEAMS, Settings};
use attnscope_run::{Native, Rows, Sequence, parse_ids};
use clap::Args;

use super::generated::{Aligned, Audio, From, Generated, Made};
use super::input::SourceArgs;
use super::{ModelArgs, Output, OutputArgs, TextOrJson, notes};
use attnscope::Failure;
use attnscope::Ready;
use attnscope::Written;

#[derive(Debug, Args)]
pub(super) struct Generate {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// What the decoder begins with, as token ids [default: as the model's documents say]
    #[arg(long, value_name = "IDS", help_heading = "Input", allow_negative_numbers = true)]
    tgt_ids: Option<String>,
    /// Sentences followed at once; 1 takes the likeliest token at each step [default: the model's own setting, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_BEAMS as i64))]
    beams: Option<u16>,
    /// The most tokens that are written for a sentence, or for a window of audio [default: the model's own limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_length: Option<u32>,
    /// Transcribe with times: segments, and windows that begin where the last segment ended
    #[arg(long, requires = "audio", conflicts_with = "tgt_ids")]
    timestamps: bool,
    /// Which source word each word came from; for audio, when each word was said
    #[arg(long)]
    align: bool,
    /// Align by these heads of the cross-attention, as LAYER.HEAD with commas between, both from 0 [default: the model's own, else
    /// all of the later half of the layers]; implies --align
    #[arg(long, value_name = "HEADS", value_delimiter = ',')]
    align_heads: Vec<Head>,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Generate {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output);
        let opened = self.source.open(&self.model, None)?;
        let mut ready = self.source.ready(&opened)?;
        notes::of_model(ready.model).iter().for_each(|note| output.note(note));
        check_generates(&ready)?;
        let is_prompted = !ready.model.architecture.has(Stack::Encoder);
        if let (Some(ids), false) = (&self.tgt_ids, is_prompted) {
            let row = one_row(ids)?;
            let note = notes::pads(&ready, Side::Target, &Rows::new(std::slice::from_ref(&row), ready.pad));
            note.iter().for_each(|note| output.note(note));
            ready.begin_with(row)?;
        }
        if self.timestamps {
            ready.write_times()?;
        }
        let settings = self.settings(&ready)?;
        settings.notes.iter().for_each(|note| output.note(note));
        let heads = self.alignment_heads(&ready)?;
        let native = Native::new();
        let mut task = Writing { ready: &ready, settings: &settings, heads: heads.as_ref(), native };
        let (audio, made) = match self.source.recording() {
            _ if !ready.model.architecture.has(Stack::Encoder) => {
                let rows = self.source.prompt_rows(&ready, self.tgt_ids.as_deref())?;
                (None, task.prompts(&rows, self.source.prompts()?)?)
            }
            Some(file) => task.recording(file, &output)?,
            None => {
                let source = self.source.source(&ready)?;
                notes::of_source(&ready, &source).iter().for_each(|note| output.note(note));
                (None, task.rows(&source, self.source.texts(&ready)?)?)
            }
        };
        let longest =
            made.iter().filter_map(|made| Some(made.written.start.len() + made.written.best()?.tokens.len()));
        // The last token is written and never read.
        let read = longest.max().unwrap_or(0).saturating_sub(1);
        notes::beyond_positions(&ready, Side::Target, read).iter().for_each(|note| output.note(note));
        let given = self.tgt_ids.is_some() && !is_prompted;
        let generated =
            Generated { ready: &ready, settings: &settings, given, heads: heads.as_ref(), audio, made };
        output.write(&match self.format {
            TextOrJson::Text => generated.text(&output),
            TextOrJson::Json => json::pretty(&generated.json()),
        })
    }

    /// The heads to align by, where an alignment is wanted.
    fn alignment_heads(&self, ready: &Ready<'_>) -> Result<Option<Heads>, Failure> {
        match (self.align_heads.as_slice(), self.align) {
            ([], false) => Ok(None),
            _ if !ready.model.architecture.has_cross_attention() => Err(Failure::new(
                format!(
                    "{}: a model that is {} has no cross-attention, so there is nothing to align by",
                    ready.opened.name,
                    ready.model.architecture.kind()
                ),
                "leave --align out",
            )),
            ([], true) => Ok(Some(ready.alignment_heads()?)),
            (chosen, _) => Heads::chosen(ready.model, chosen).map(Some).map_err(|why| {
                Failure::new(
                    format!("--align-heads {why}"),
                    "`attnscope trace --head all` draws what each head of the cross-attention looks at",
                )
            }),
        }
    }

    /// The model's own settings, with what was asked for in their place.
    fn settings(&self, ready: &Ready<'_>) -> Result<Settings, Failure> {
        let mut settings = ready.settings();
        if let Some(beams) = self.beams {
            settings.beams = usize::from(beams);
        }
        if let Some(most) = self.max_length {
            settings.limit = Limit::New(most as usize);
        }
        if settings.start.is_empty() && ready.model.architecture.has(Stack::Encoder) {
            let title = ready.model.family.title;
            let (why, help) = match (ready.model.wiring.front, &ready.tokenizer) {
                (Front::Audio, None) => (
                    "its vocabulary is none of OpenAI's, and no tokenizer is beside the weights",
                    "put tokenizer.json beside the weights, or give the decoder's first tokens with --tgt-ids",
                ),
                _ => (
                    "no document beside the weights says it",
                    "give the decoder's first tokens with --tgt-ids",
                ),
            };
            let name = &ready.opened.name;
            return Err(Failure::new(
                format!("{name}: what the decoder of this {title} begins with is not known: {why}"),
                help,
            ));
        }
        Ok(settings)
    }
}

/// A model without a decoder, or without logits, generates nothing.
fn check_generates(ready: &Ready<'_>) -> Result<(), Failure> {
    match ready.model.architecture.has(Stack::Decoder) {
        true => Ok(()),
        false => Err(Failure::new(
            format!(
                "{}: a model that is {} does not generate",
                ready.opened.name,
                ready.model.architecture.kind()
            ),
            format!("`attnscope trace {} --src TEXT` shows what it makes of a text", ready.opened.name),
        )),
    }
}

/// The decoder's first tokens: the same for every sentence.
fn one_row(ids: &str) -> Result<Vec<u32>, Failure> {
    let rows = parse_ids(ids).map_err(|e| Failure::new(format!("--tgt-ids: {e}"), e.help()))?;
    match <[Vec<u32>; 1]>::try_from(rows) {
        Ok([row]) => Ok(row),
        Err(rows) => Err(Failure::new(
            format!("--tgt-ids: expected one row, found {}", rows.len()),
            "every sentence begins with the same tokens: give them once",
        )),
    }
}

/// A model at work.
struct Writing<'a> {
    ready: &'a Ready<'a>,
    settings: &'a Settings,
    /// Of the alignment, where one is wanted.
    heads: Option<&'a Heads>,
    native: Native,
}

impl Writing<'_> {
    /// Each prompt, with its text where it was given as text.
    fn prompts(&mut self, rows: &Rows, texts: Vec<String>) -> Result<Vec<Made>, Failure> {
        let rows = rows.tokens();
        let written = self.ready.continue_prompts(&mut self.native, &rows, self.settings)?;
        let mut texts = texts.into_iter();
        let made = |(ids, written): (Vec<u32>, Written)| Made {
            from: From::Prompt { text: texts.next(), ids },
            written,
            aligned: Aligned::None,
        };
        Ok(rows.into_iter().zip(written).map(made).collect())
    }

    /// Each row of a source, with its text where it was given as text.
    fn rows(&mut self, source: &Sequence, texts: Vec<String>) -> Result<Vec<Made>, Failure> {
        let written = self.ready.write(&mut self.native, source, self.settings)?;
        let rows = match source {
            Sequence::Tokens(rows) => rows.tokens(),
            Sequence::Features(_) => {
                let of_row = |(row, written): (usize, Written)| match source.select(&[row]) {
                    Sequence::Features(features) => {
                        let end = features.frames as f64 * POSITION_SECONDS / 2.0;
                        Some((Window { start: 0.0, end, zeros: false, features }, written))
                    }
                    Sequence::Tokens(_) => None,
                };
                let windows = written.into_iter().enumerate().filter_map(of_row);
                return windows.map(|(window, written)| self.window(&window, written)).collect();
            }
        };
        let mut texts = texts.into_iter();
        let made = |(ids, written): (Vec<u32>, Written)| {
            let aligned = match self.heads {
                Some(heads) => Aligned::Words(self.ready.align(&mut self.native, heads, &ids, &written)?),
                None => Aligned::None,
            };
            Ok(Made { from: From::Tokens { text: texts.next(), ids }, written, aligned })
        };
        rows.into_iter().zip(written).map(made).collect()
    }

    /// One window of the model's length after the other, each by itself.
    fn recording(&mut self, file: &Path, output: &Output<'_>) -> Result<(Option<Audio>, Vec<Made>), Failure> {
        let (mels, frames) = self.ready.window("--audio")?;
        let recording = Recording::read(file)?;
        let length = frames as f64 * POSITION_SECONDS / 2.0;
        let audio = Audio { file: file.display().to_string(), seconds: recording.seconds(), window: length };
        if recording.cancels() {
            output.note("every sample is 0 after the channels are mixed to one, though they are not: they cancel each other");
        }
        if audio.seconds > length {
            let how = if self.ready.times {
                "each begins where the last segment ended"
            } else {
                "each transcribed by itself"
            };
            output.note(&format!("{:.2} s are heard in windows of {length} s, {how}", audio.seconds));
        }
        let (mut made, mut at) = (Vec::new(), 0.0);
        while let Some(mut window) = recording.window(at, mels, frames) {
            if self.ready.times {
                window.cut_features();
            }
            let source = Sequence::Features(window.features.clone());
            let mut next = length;
            for mut written in self.ready.write(&mut self.native, &source, self.settings)? {
                written.zeros = window.zeros;
                next = self.ready.segments(&window, &written).1;
                made.push(self.window(&window, written)?);
            }
            at += next;
        }
        Ok((Some(audio), made))
    }

    fn window(&mut self, window: &Window, written: Written) -> Result<Made, Failure> {
        let aligned = match self.heads {
            Some(heads) => Aligned::Times(self.ready.times(&mut self.native, heads, window, &written)?),
            None => Aligned::None,
        };
        let mut segments = self.ready.segments(window, &written).0;
        for segment in &mut segments {
            segment.start += window.start;
            segment.end += window.start;
        }
        Ok(Made { from: From::Window { start: window.start, end: window.end, segments }, written, aligned })
    }
}
