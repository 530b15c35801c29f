//! `masks`: the masks of a model for an input, drawn, and proved on the model itself.

use std::process::ExitCode;

use attnscope_diagnose::masks::{
    Attention, Bench, Compared, Mask, Mistake, NotFinite, Padding, Proof, masks,
};
use attnscope_graph::Side;
use attnscope_render::masks as render;
use attnscope_render::{clean, counted, json};
use attnscope_run::{Input, PadSide, Rows, Sequence};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::input::{SourceArgs, TargetArgs};
use super::tokens::{tokens_json, tokens_text};
use super::{ModelArgs, Output, OutputArgs, TextOrJson};
use attnscope::{Failure, notes_of_input};
use attnscope::{Ready, Token};

/// More rows of a batch are not drawn unless one is asked for.
const DRAWN_ROWS: usize = 4;
/// Proofs run the model again and again: on so many rows of a batch, the first.
const PROVED_ROWS: usize = 16;

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
    /// A mistake beside the right mask on the model's own scores; again, or with commas, for several
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
    /// Padding left open
    NoPadding,
    /// The future left open
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
        let output = Output::new(&self.output);
        let opened = self.source.open(&self.model, Some(&self.target))?;
        let given = self.source.input(Some(&self.target))?;
        let ready = given.ready(&opened)?;
        let (input, generated) = given.read(&ready)?.input(&ready)?;
        output.notes(&notes_of_input(&ready, &input, generated));
        let input = self.padded(&ready, &input);
        let masks = masks(ready.model, &input)?;
        self.check_row(&input)?;
        let side = self.side();
        let proved = input.select(&(0..input.batch().min(PROVED_ROWS)).collect::<Vec<_>>());
        let mut bench = Bench::new(ready.model, &ready.weights, &proved, Padding { id: ready.pad, side })?;
        let wrong = self.mistakes(&mut bench, &input)?;
        let proofs = bench.prove_all()?;
        let (added, not_finite) = (bench.added_padding(&proved), bench.not_finite()?);
        let shown = Shown {
            command: self,
            ready: &ready,
            input: &input,
            generated,
            masks,
            proofs,
            added,
            not_finite,
            wrong,
        };
        output.write(&match self.format {
            TextOrJson::Text => shown.text(&output),
            TextOrJson::Json => json::pretty(&shown.json()),
        })?;
        if shown.not_finite.is_some() || shown.proofs.iter().any(Proof::fails) {
            return Ok(ExitCode::FAILURE);
        }
        let undecided: Vec<&str> =
            shown.proofs.iter().filter(|p| p.is_inconclusive()).map(|p| p.claim.id()).collect();
        match undecided.is_empty() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(Failure::new(
                format!("{}: inconclusive: {}", opened.name, undecided.join(", ")),
                format!("the reasons are in the report; `attnscope doctor {}` looks for causes", opened.name),
            )),
        }
    }

    fn side(&self) -> PadSide {
        match self.pad {
            Pad::Left => PadSide::Left,
            Pad::Right => PadSide::Right,
        }
    }

    /// The input with its padding where the user wants it.
    fn padded(&self, ready: &Ready<'_>, input: &Input) -> Input {
        let pad = |rows: &Rows| Rows::padded(&rows.tokens(), ready.pad, self.side(), 0);
        let repad =
            |padded: Input, (side, rows): (Side, &Rows)| padded.with(side, Sequence::Tokens(pad(rows)));
        input.tokens().fold(input.clone(), repad)
    }

    fn check_row(&self, input: &Input) -> Result<(), Failure> {
        let rows = input.batch();
        match self.row.filter(|&row| row >= rows) {
            None => Ok(()),
            Some(row) => {
                let error = format!("--row {row}: the batch has {}", counted(rows, "row"));
                Err(Failure::new(error, "rows are counted from 0"))
            }
        }
    }

    /// Each mistake with the one row that it is shown on.
    fn mistakes(&self, bench: &mut Bench<'_>, input: &Input) -> Result<Vec<OneMistake>, Failure> {
        let row = input.select(&[self.row.unwrap_or(0)]);
        let one = |wrong: &Wrong| {
            let on = bench.shown_on(wrong.mistake(), &row);
            let added = if on == row { 0 } else { bench.added_padding(&row)[0] };
            let compared = bench.mistake(wrong.mistake(), &on, (self.layer_index, self.head, 0))?;
            Ok(OneMistake { compared, on, added })
        };
        self.wrong.iter().map(one).collect()
    }
}

/// A mistake, the input of one row that it is shown on, and how much padding that source was given for it.
struct OneMistake {
    compared: Compared,
    on: Input,
    added: usize,
}

/// Everything there is to show.
struct Shown<'a> {
    command: &'a Masks,
    ready: &'a Ready<'a>,
    input: &'a Input,
    generated: bool,
    masks: Vec<Mask>,
    proofs: Vec<Proof>,
    /// Padding that proofs add to each row of a source and of a target without any.
    added: [usize; 2],
    not_finite: Option<NotFinite>,
    wrong: Vec<OneMistake>,
}

impl Shown<'_> {
    fn text(&self, output: &Output<'_>) -> String {
        let options = output.layout();
        let model = self.ready.model;
        let mut sections = vec![
            format!("{}: {}\n", clean(&self.ready.opened.name), model.title()),
            tokens_text(self.ready, self.input, self.generated, output.width()),
            self.legend(options),
        ];
        for mask in &self.masks {
            sections.push(render::mask_heading(mask, options) + &self.drawings(mask, output));
        }
        sections.extend(self.wrong.iter().map(|wrong| self.mistake(wrong, output)));
        let batch = self.input.batch();
        let rows = match batch > PROVED_ROWS {
            true => format!(", on the first {PROVED_ROWS} of {batch} rows"),
            false => String::new(),
        };
        let table = render::proof_table(&self.proofs, options);
        sections.push(format!("Proofs on the model itself{rows}\n\n{table}"));
        let name = clean(&self.ready.opened.name);
        sections.push(match &self.not_finite {
            Some(_) => format!("`attnscope doctor {name}` says where it comes from.\n"),
            None => {
                render::measure_note(&self.proofs, options)
                    + &render::what_is_proved(&self.proofs, self.added, options)
            }
        });
        output.glyphs_text(&sections.join("\n"))
    }

    /// One row of the batch, or each of a few.
    fn drawings(&self, mask: &Mask, output: &Output<'_>) -> String {
        let batch = mask.shape[0];
        let rows: Vec<usize> = match self.command.row {
            Some(row) => vec![row],
            None => (0..batch.min(DRAWN_ROWS)).collect(),
        };
        let mut out = String::new();
        for &row in &rows {
            out += &if batch > 1 { format!("\nrow {row}\n") } else { "\n".to_owned() };
            let labels = self.labels(self.input, mask.attention, row);
            let [queries, keys] = labels.each_ref().map(Vec::as_slice);
            out += &render::mask_drawing(mask, row, [queries, keys], output.layout(), output.style());
        }
        if self.command.row.is_none() && batch > rows.len() {
            out += &format!("\nrows {} to {} are not drawn: --row N draws one\n", rows.len(), batch - 1);
        }
        out
    }

    /// What the signs mean, and of the words for padding those that occur.
    fn legend(&self, options: attnscope_render::Options) -> String {
        let rows = self.input.tokens().map(|(side, rows)| self.ready.tokens(side, rows));
        let tokens: Vec<Token> = rows.flatten().flatten().collect();
        let pad = self.ready.named_pad();
        let given = tokens.iter().find(|token| Some(token.id) == pad && !token.padding).map(Token::label);
        render::legend(tokens.iter().any(|token| token.padding), given.as_deref(), options)
    }

    fn mistake(&self, OneMistake { compared, on, added }: &OneMistake, output: &Output<'_>) -> String {
        let attention = compared.mistake.attention();
        let (layer, head, row) = self.place();
        let place = format!("{}, head {head}, row {row}", attention.path(&layer.to_string(), "scores"));
        let labels = self.labels(on, attention, 0);
        let [queries, keys] = labels.each_ref().map(Vec::as_slice);
        render::mistake(compared, (&place, *added), [queries, keys], output.layout(), output.style())
    }

    fn place(&self) -> (usize, usize, usize) {
        (self.command.layer_index, self.command.head, self.command.row.unwrap_or(0))
    }

    /// What stands beside the queries and above the keys.
    fn labels(&self, input: &Input, attention: Attention, row: usize) -> [Vec<String>; 2] {
        let positions = |side: Side| {
            let Some(rows) = input.rows(side) else {
                let frames = input.features().map_or(0, |f| f.frames);
                return (0..self.ready.model.graph.positions_of(frames)).map(|at| at.to_string()).collect();
            };
            let label = |token: &Token| if token.padding { "(pad)".to_owned() } else { token.label() };
            self.ready
                .tokens(side, rows)
                .get(row)
                .map(|row| row.iter().map(label).collect())
                .unwrap_or_default()
        };
        [positions(attention.queries()), positions(attention.keys())]
    }

    fn json(&self) -> Value {
        let wrong = |wrong: &OneMistake| render::mistake_json(&wrong.compared, self.place(), wrong.added);
        let not_finite = self
            .not_finite
            .as_ref()
            .map(|broken| json!({ "node": broken.node, "at": broken.at, "value": broken.value.to_string() }));
        json!({
            "schema": json::SCHEMA,
            "model": self.ready.opened.name,
            "family": self.ready.model.family.id,
            "tokens": tokens_json(self.ready, self.input, self.generated),
            "masks": self.masks.iter().map(render::mask_json).collect::<Vec<_>>(),
            "proved_rows": self.input.batch().min(PROVED_ROWS),
            "added_padding": { "source": self.added[0], "target": self.added[1] },
            "not_finite": not_finite,
            "proofs": self.proofs.iter().map(render::proof_json).collect::<Vec<_>>(),
            "wrong": self.wrong.iter().map(wrong).collect::<Vec<_>>(),
        })
    }
}
