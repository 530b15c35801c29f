//! The input of a model on the command line.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use attnscope_run::{Pair, parse_ids, read_pairs};
use clap::Args;

use super::ModelArgs;
use crate::text_file::{is_standard_input, opened_as, read_text};
use attnscope::{Device, Failure, Input, Model, Opened, PairLines, SourceInput, TargetInput, toy};

/// The source, and the languages of a multilingual model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(super) struct SourceArgs {
    /// Source text; repeat it for more rows of a batch
    #[arg(long, value_name = "TEXT", group = "source")]
    src: Vec<String>,
    /// A file of source texts, one per line, - for standard input; the lines are the rows of a batch
    #[arg(long, value_name = "FILE", group = "source")]
    src_file: Option<PathBuf>,
    /// The lines, after they were read: a pipe can be read only once
    #[arg(skip)]
    src_lines: OnceCell<Vec<String>>,
    /// Source token ids, used as they are: commas between ids, `;` between the rows of a batch
    #[arg(long, value_name = "IDS", group = "source", allow_negative_numbers = true)]
    src_ids: Option<String>,
    /// Text for a decoder-only model; repeat it for more rows of a batch
    #[arg(long, value_name = "TEXT", group = "source")]
    prompt: Vec<String>,
    /// A file of texts for a decoder-only model, one per line, - for standard input
    #[arg(long, value_name = "FILE", group = "source")]
    text: Option<PathBuf>,
    /// The lines, once they are read
    #[arg(skip)]
    text_lines: OnceCell<Vec<String>>,
    /// A recording (wav, flac, mp3) for an audio model
    #[arg(long, value_name = "FILE", group = "source")]
    audio: Option<PathBuf>,
    /// Log-mel features from another front end: .npy or .safetensors, [batch, mels, frames]
    #[arg(long, value_name = "FILE", group = "source")]
    features: Option<PathBuf>,
    /// Source and target sentences, one pair per line with a tab between, - for standard input; for an audio model `doctor`
    /// takes clips: a file, a tab and its transcript
    #[arg(long, value_name = "FILE", group = "source")]
    pairs: Option<PathBuf>,
    /// The pairs, after they were read: a pipe can be read only once
    #[arg(skip)]
    read_pairs: OnceCell<Vec<Pair>>,
    /// What the model runs on: `cpu`, or `reference` (plain loops in f64, slow, against which the CPU code is tested)
    #[arg(long, value_name = "NAME", default_value = "cpu", value_parser = device, help_heading = "Options")]
    device: Device,
    /// The source's language, by the model's own code, for a multilingual model
    #[arg(long, value_name = "CODE")]
    src_lang: Option<String>,
    /// The target's language
    #[arg(long, value_name = "CODE")]
    tgt_lang: Option<String>,
}

pub(super) fn device(name: &str) -> Result<Device, String> {
    let names = || Device::ALL.map(Device::name).join(" or ");
    let found = Device::ALL.into_iter().find(|device| device.name() == name);
    found.ok_or_else(|| format!("expected {}", names()))
}

/// The target.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(super) struct TargetArgs {
    /// Target text; the decoder's input is made from it by the model's shift [default: what the model generates]
    #[arg(long, value_name = "TEXT", conflicts_with = "pairs")]
    tgt: Vec<String>,
    /// A file of target texts, one line for each row of the source, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tgt", "tgt_ids", "pairs"])]
    tgt_file: Option<PathBuf>,
    /// The lines, once they are read
    #[arg(skip)]
    tgt_lines: OnceCell<Vec<String>>,
    /// The decoder's input as token ids, used as they are
    #[arg(long, value_name = "IDS", conflicts_with_all = ["tgt", "pairs"], allow_negative_numbers = true)]
    tgt_ids: Option<String>,
}

impl TargetArgs {
    /// Whether the user gave a target.
    pub(super) fn is_given(&self) -> bool {
        !self.tgt.is_empty() || self.tgt_file.is_some() || self.tgt_ids.is_some()
    }

    /// The same as arguments.
    pub(super) fn given(&self) -> Vec<String> {
        let texts = self.tgt.iter().map(|text| ("--tgt", text.clone()));
        let file = self.tgt_file.iter().map(|file| ("--tgt-file", file.display().to_string()));
        let ids = self.tgt_ids.iter().map(|ids| ("--tgt-ids", ids.clone()));
        as_arguments(texts.chain(file).chain(ids))
    }

    /// The texts that were given.
    fn texts(&self) -> Result<Vec<String>, Failure> {
        Ok([self.tgt.as_slice(), lines("--tgt-file", self.tgt_file.as_deref(), &self.tgt_lines)?].concat())
    }
}

impl SourceArgs {
    /// Opens the model; the toy's vocabulary is made of the texts that it is to read.
    pub(super) fn open(&self, model: &ModelArgs, target: Option<&TargetArgs>) -> Result<Opened, Failure> {
        if model.model != "toy" {
            return model.open();
        }
        let pairs = self.read_pairs()?;
        let of = |pick: fn(&Pair) -> &String| pairs.iter().map(pick).cloned().collect::<Vec<_>>();
        let or =
            |given: Vec<String>, usual: &str| if given.is_empty() { vec![usual.to_owned()] } else { given };
        self.check_standard_input(target)?;
        let sources = [self.given_texts()?, of(|p| &p.source)].concat();
        let target = target.map(TargetArgs::texts).transpose()?;
        let targets = [target.unwrap_or_default(), of(|p| &p.target)].concat();
        let mut opened = Opened::toy(or(sources, toy::SOURCE), or(targets, toy::TARGET))?;
        opened.set_wiring(&model.wiring)?;
        Ok(opened)
    }

    /// The same as the library has it.
    pub(super) fn model(&self, model: &ModelArgs, target: Option<&TargetArgs>) -> Result<Model, Failure> {
        Ok(Model::from(self.open(model, target)?).on(self.device))
    }

    /// Whether the user gave a source.
    pub(super) fn is_given(&self) -> bool {
        self.is_prompt()
            || !self.src.is_empty()
            || self.src_file.is_some()
            || self.src_ids.is_some()
            || self.audio.is_some()
            || self.features.is_some()
            || self.pairs.is_some()
    }

    /// What the user gave, as arguments.
    pub(super) fn given(&self) -> Vec<String> {
        let of = |name: &'static str, texts: &[String]| -> Vec<(&'static str, String)> {
            texts.iter().map(|text| (name, text.clone())).collect()
        };
        let file = |name: &'static str, file: &Option<PathBuf>| -> Vec<(&'static str, String)> {
            file.iter().map(|file| (name, file.display().to_string())).collect()
        };
        let one = |name: &'static str, text: &Option<String>| of(name, text.as_slice());
        let all = [
            of("--src", &self.src),
            file("--src-file", &self.src_file),
            one("--src-ids", &self.src_ids),
            of("--prompt", &self.prompt),
            file("--text", &self.text),
            file("--audio", &self.audio),
            file("--features", &self.features),
            file("--pairs", &self.pairs),
            one("--src-lang", &self.src_lang),
            one("--tgt-lang", &self.tgt_lang),
        ];
        as_arguments(all.into_iter().flatten())
    }

    /// Whether the user gave what a decoder alone reads.
    fn is_prompt(&self) -> bool {
        !self.prompt.is_empty() || self.text.is_some()
    }

    /// The pairs that were given; none where none were.
    pub(super) fn read_pairs(&self) -> Result<&[Pair], Failure> {
        if let Some(pairs) = self.read_pairs.get() {
            return Ok(pairs);
        }
        let pairs = self.pairs.as_deref().map(|f| read_pairs(opened_as(f))).transpose()?.unwrap_or_default();
        Ok(self.read_pairs.get_or_init(|| pairs))
    }

    /// The same with the file that they came from, for pairs that name other files.
    pub(super) fn pair_lines(&self) -> Result<PairLines, Failure> {
        Ok(PairLines { lines: self.read_pairs()?.to_vec(), file: self.pairs.clone().unwrap_or_default() })
    }

    /// The texts that were given as such.
    fn given_texts(&self) -> Result<Vec<String>, Failure> {
        Ok([self.src.as_slice(), lines("--src-file", self.src_file.as_deref(), &self.src_lines)?].concat())
    }

    /// Standard input can be read once, for one of the two sides.
    fn check_standard_input(&self, target: Option<&TargetArgs>) -> Result<(), Failure> {
        let is = |file: Option<&PathBuf>| file.is_some_and(|f| is_standard_input(f));
        match is(self.src_file.as_ref()) && is(target.and_then(|t| t.tgt_file.as_ref())) {
            false => Ok(()),
            true => Err(Failure::new(
                "--src-file - and --tgt-file -: standard input can be read only once",
                "give one of the two as a file, or both with --pairs -",
            )),
        }
    }

    /// What was given, of both sides. Pairs give the texts of both.
    pub(super) fn input(&self, target: Option<&TargetArgs>) -> Result<Input, Failure> {
        self.check_standard_input(target)?;
        let ids = |name: &str, ids: &str| {
            parse_ids(ids).map_err(|e| Failure::new(format!("{name}: {e}"), e.remedy()))
        };
        let source = match (&self.audio, &self.features, &self.src_ids) {
            _ if self.is_prompt() => {
                let lines = lines("--text", self.text.as_deref(), &self.text_lines)?;
                Some(SourceInput::Prompts([self.prompt.as_slice(), lines].concat()))
            }
            (Some(file), _, _) => Some(SourceInput::Audio(file.clone())),
            (_, Some(file), _) => Some(SourceInput::Features(file.clone())),
            (_, _, Some(given)) => Some(SourceInput::Ids(ids("--src-ids", given)?)),
            (None, None, None) => {
                let mut texts = self.given_texts()?;
                texts.extend(self.read_pairs()?.iter().map(|pair| pair.source.clone()));
                (!texts.is_empty()).then_some(SourceInput::Texts(texts))
            }
        };
        let target = match target.map(|target| (target, &target.tgt_ids)) {
            Some((_, Some(given))) => Some(TargetInput::Ids(ids("--tgt-ids", given)?)),
            Some((target, None)) => {
                let mut texts = target.texts()?;
                texts.extend(self.read_pairs()?.iter().map(|pair| pair.target.clone()));
                (!texts.is_empty()).then_some(TargetInput::Texts(texts))
            }
            None => None,
        };
        Ok(Input {
            source,
            target,
            source_language: self.src_lang.clone(),
            target_language: self.tgt_lang.clone(),
        })
    }
}

fn as_arguments(given: impl Iterator<Item = (&'static str, String)>) -> Vec<String> {
    given.flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// More rows than are useful.
const MOST_TEXT_BYTES: u64 = 1 << 26;

/// The lines of a file, read once.
fn lines<'c>(
    name: &str,
    file: Option<&Path>,
    read: &'c OnceCell<Vec<String>>,
) -> Result<&'c [String], Failure> {
    if let (None, Some(file)) = (read.get(), file) {
        let help = "give a text file in UTF-8, one sentence per line";
        let text = read_text(file, MOST_TEXT_BYTES, help)?;
        if text.is_empty() {
            return Err(Failure::new(format!("{name} {}: there is no line in it", file.display()), help));
        }
        return Ok(read.get_or_init(|| text.lines().map(str::to_owned).collect()));
    }
    Ok(read.get_or_init(Vec::new))
}
