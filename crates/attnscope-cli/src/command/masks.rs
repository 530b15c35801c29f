//! `masks`: the masks of a model for an input, drawn, and proved on the model itself.

use std::process::ExitCode;

use attnscope::{Failure, MaskOptions};
use attnscope_diagnose::masks::Mistake;
use attnscope_render::masks;
use attnscope_run::PadSide;
use clap::{Args, ValueEnum};

use super::input::{SourceArgs, TargetArgs};
use super::{ModelArgs, Output, OutputArgs, TextOrJson};

#[derive(Debug, Args)]
pub(super) struct Masks {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Where the shorter rows of a batch are padded
    #[arg(long, value_enum, value_name = "SIDE", default_value_t = Pad::Right)]
    pad: Pad,
    /// The row of the batch that is drawn [default: all of a small batch]
    #[arg(long, value_name = "N")]
    row: Option<usize>,
    /// Show a mistake compared with the right mask, on the model's own scores; repeat it, or use commas, for several
    #[arg(long, value_enum, value_name = "MISTAKE", value_delimiter = ',')]
    wrong: Vec<Wrong>,
    /// With --wrong: the layer whose scores are taken
    #[arg(long, value_name = "N", default_value_t = 0, requires = "wrong")]
    layer_index: usize,
    /// With --wrong: the head
    #[arg(long, value_name = "N", default_value_t = 0, requires = "wrong")]
    head: usize,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pad {
    Left,
    Right,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wrong {
    /// A causal mask in cross-attention
    CausalCross,
    /// Weights multiplied by 0 and 1 after the softmax
    MultiplyAfter,
    /// Scores multiplied by 0 and 1 before the softmax
    MultiplyBefore,
    /// Padding left visible
    NoPadding,
    /// The future left visible
    NoCausal,
}

impl Wrong {
    fn mistake(self) -> Mistake {
        match self {
            Self::CausalCross => Mistake::CausalCross,
            Self::MultiplyAfter => Mistake::MultiplyAfter,
            Self::MultiplyBefore => Mistake::MultiplyBefore,
            Self::NoPadding => Mistake::NoPadding,
            Self::NoCausal => Mistake::NoCausal,
        }
    }
}

impl Masks {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let output = Output::new(&self.output)?;
        let model = self.source.model(&self.model, Some(&self.target))?.on_note(output.listener());
        let options = MaskOptions {
            pad: match self.pad {
                Pad::Left => PadSide::Left,
                Pad::Right => PadSide::Right,
            },
            wrong: self.wrong.iter().map(|wrong| wrong.mistake()).collect(),
            layer: self.layer_index,
            head: self.head,
            row: self.row.unwrap_or(0),
        };
        let answer = model.masks(&self.source.input(Some(&self.target))?, &options)?;
        match self.format {
            TextOrJson::Text => {
                output.write(&masks::text(&answer, self.row, output.layout(), output.style()))
            }
            TextOrJson::Json => output.write_json(&answer),
        }?;
        Ok(super::exit(answer.outcome()?))
    }
}
