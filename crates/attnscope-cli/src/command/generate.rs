//! `generate`: what the model generates, with its scores, and where each word came from.

use attnscope::{Failure, GenerateOptions, MOST_TOKENS};
use attnscope_graph::Side;
use attnscope_render::generate;
use attnscope_run::align::Head;
use attnscope_run::generate::MOST_BEAMS;
use attnscope_run::parse_ids;
use clap::Args;

use super::input::SourceArgs;
use super::{ModelArgs, Output, OutputArgs, TextOrJson};

#[derive(Debug, Args)]
pub(super) struct Generate {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// What the decoder begins with, as token ids [default: as the model's documents say]
    #[arg(long, value_name = "IDS", help_heading = "Input", allow_negative_numbers = true)]
    tgt_ids: Option<String>,
    /// Beams; 1 takes the most likely token at each step [default: the model's own setting, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_BEAMS as i64))]
    beams: Option<u16>,
    /// The most tokens that are written for a sentence, or for a window of audio [default: the model's own limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_TOKENS as i64))]
    max_length: Option<u32>,
    /// Transcribe with times: segments, and windows that begin where the last segment ended
    #[arg(long, requires = "audio", conflicts_with = "tgt_ids")]
    timestamps: bool,
    /// Which source word each word came from; for audio, when each word was said
    #[arg(long)]
    align: bool,
    /// Align by these heads of the cross-attention, as LAYER.HEAD, separated by commas, both from 0 [default: the model's own,
    /// else all of the later half of the layers]; implies --align
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
        let output = Output::new(&self.output)?;
        let model = self.source.model(&self.model, None)?.on_note(output.listener());
        let mut input = self.source.input(None)?;
        let mut start = None;
        if let Some(ids) = &self.tgt_ids {
            // A decoder-only model continues them; others begin every sentence with them.
            match model.opened().model()?.architecture.reads(Side::Source) {
                true => start = Some(one_row(ids)?),
                false => input = input.with_target_ids(rows(ids)?),
            }
        }
        let options = GenerateOptions {
            start,
            beams: self.beams.map(usize::from),
            max_length: self.max_length.map(|n| n as usize),
            timestamps: self.timestamps,
            align: self.align,
            align_heads: self.align_heads.clone(),
        };
        let answer = model.generate(&input, &options)?;
        match self.format {
            TextOrJson::Text => output.write(&generate::text(&answer, output.layout(), output.style())),
            TextOrJson::Json => output.write_json(&answer),
        }
    }
}

fn rows(ids: &str) -> Result<Vec<Vec<u32>>, Failure> {
    parse_ids(ids).map_err(|e| Failure::new(format!("--tgt-ids: {e}"), e.remedy()))
}

/// The decoder's first tokens: the same for every sentence.
fn one_row(ids: &str) -> Result<Vec<u32>, Failure> {
    match <[Vec<u32>; 1]>::try_from(rows(ids)?) {
        Ok([row]) => Ok(row),
        Err(rows) => Err(Failure::new(
            format!("--tgt-ids: expected one row, found {}", rows.len()),
            "every sentence begins with the same tokens: give them once",
        )),
    }
}
