//! What a model is given to read, as it is written on the command line.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use attnscope_graph::{Side, Stack};
use attnscope_run::{Input, Pair, Rows, Sequence, parse_ids, read_pairs};
use clap::Args;

use super::ModelArgs;
use crate::text_file::{is_standard_input, opened_as, read_text};
use attnscope::Failure;
use attnscope::Opened;
use attnscope::PairLines;
use attnscope::Ready;
use attnscope::toy;

/// What the tour and `demo` read where nothing is given.
pub(super) const DEMO_SOURCE: &str = "A man in a red shirt is riding a bicycle.";

/// The source, and the languages of a model of many.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(super) struct SourceArgs {
    /// Source text; again for another row of a batch
    #[arg(long, value_name = "TEXT", group = "source")]
    src: Vec<String>,
    /// A file of source texts, a line each, - for standard input; the lines are the rows of a batch
    #[arg(long, value_name = "FILE", group = "source")]
    src_file: Option<PathBuf>,
    /// The lines, once they are read: a pipe gives them only once
    #[arg(skip)]
    src_lines: OnceCell<Vec<String>>,
    /// Source token ids, used as they are: commas between ids, `;` between the rows of a batch
    #[arg(long, value_name = "IDS", group = "source", allow_negative_numbers = true)]
    src_ids: Option<String>,
    /// Text for a decoder-only model; again for another row of a batch
    #[arg(long, value_name = "TEXT", group = "source")]
    prompt: Vec<String>,
    /// A file of texts for a decoder-only model, a line each, - for standard input
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
    /// Source and target sentences, a pair a line with a tab between, - for standard input; `doctor` takes clips for an
    /// audio model: a file, a tab and what is said in it
    #[arg(long, value_name = "FILE", group = "source")]
    pairs: Option<PathBuf>,
    /// The pairs, once they are read: a pipe gives them only once
    #[arg(skip)]
    read_pairs: OnceCell<Vec<Pair>>,
    /// The source's language, by the model's own code, for a model of many languages
    #[arg(long, value_name = "CODE")]
    src_lang: Option<String>,
    /// The target's language
    #[arg(long, value_name = "CODE")]
    tgt_lang: Option<String>,
}

/// The target that the decoder is to write.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(super) struct TargetArgs {
    /// Target text; the decoder's input is shifted from it as the model does [default: what the model generates]
    #[arg(long, value_name = "TEXT", conflicts_with = "pairs")]
    tgt: Vec<String>,
    /// A file of target texts, a line for each row of the source, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tgt", "tgt_ids", "pairs"])]
    tgt_file: Option<PathBuf>,
    /// The lines, once they are read
    #[arg(skip)]
    tgt_lines: OnceCell<Vec<String>>,
    /// The decoder's input as token ids, used as they are
    #[arg(long, value_name = "IDS", conflicts_with_all = ["tgt", "pairs"], allow_negative_numbers = true)]
    tgt_ids: Option<String>,
}

/// What was given of a run's input.
#[derive(Debug)]
pub(super) enum Given {
    /// Every sequence that the model reads.
    Whole(Input),
    /// The source; the model writes the target.
    Source(Sequence),
}

impl Given {
    /// A run's input, and whether the model wrote its target itself because none was given.
    pub(super) fn input(self, ready: &Ready<'_>) -> Result<(Input, bool), Failure> {
        match self {
            Self::Whole(input) => Ok((input, false)),
            Self::Source(source) => {
                let target = ready.written(&source)?;
                Ok((Input::pair(source, target), true))
            }
        }
    }
}

impl TargetArgs {
    /// Whether the user gave anything to write.
    pub(super) fn is_given(&self) -> bool {
        !self.tgt.is_empty() || self.tgt_file.is_some() || self.tgt_ids.is_some()
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

    /// Weights and tokenizer, with the languages that were asked for.
    pub(super) fn ready<'a>(&self, opened: &'a Opened) -> Result<Ready<'a>, Failure> {
        let mut ready = Ready::new(opened)?;
        ready.set_languages(self.src_lang.as_deref(), self.tgt_lang.as_deref())?;
        Ok(ready)
    }

    /// Whether the user gave anything to read.
    pub(super) fn is_given(&self) -> bool {
        self.is_prompt() || self.is_source()
    }

    /// Whether the user gave what a decoder alone reads.
    fn is_prompt(&self) -> bool {
        !self.prompt.is_empty() || self.text.is_some()
    }

    /// Whether the user gave what an encoder reads.
    fn is_source(&self) -> bool {
        !self.src.is_empty()
            || self.src_file.is_some()
            || self.src_ids.is_some()
            || self.audio.is_some()
            || self.features.is_some()
            || self.pairs.is_some()
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
                "--src-file - and --tgt-file -: standard input can be read once",
                "give one of the two as a file, or both with --pairs -",
            )),
        }
    }

    /// The texts that a decoder alone reads, where they are texts.
    pub(super) fn prompts(&self) -> Result<Vec<String>, Failure> {
        let lines = lines("--text", self.text.as_deref(), &self.text_lines)?;
        Ok([self.prompt.as_slice(), lines].concat())
    }

    /// What a decoder alone reads: a prompt, or ids.
    pub(super) fn prompt_rows(&self, ready: &Ready<'_>, ids: Option<&str>) -> Result<Rows, Failure> {
        if self.is_source() {
            return Err(wrong_side(ready, "--prompt TEXT, --text FILE or --tgt-ids"));
        }
        if let Some(ids) = ids {
            return ready.target_ids(&parse_ids(ids).map_err(|e| option("--tgt-ids", e))?);
        }
        let texts = self.prompts()?;
        if texts.is_empty() {
            return Err(Failure::new(
                format!("{}: nothing to read", ready.opened.name),
                "give a text with --prompt TEXT or --text FILE, or token ids with --tgt-ids",
            ));
        }
        ready.prompts(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The source alone. Of pairs, the sources.
    pub(super) fn source(&self, ready: &Ready<'_>) -> Result<Sequence, Failure> {
        if let Some(file) = &self.audio {
            return ready.audio(file);
        }
        if let Some(file) = &self.features {
            return ready.features(file);
        }
        if let Some(ids) = &self.src_ids {
            return ready.source_ids(&parse_ids(ids).map_err(|e| option("--src-ids", e))?);
        }
        let texts = self.texts(ready)?;
        ready.source(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The source's texts, where it is text. Of pairs, the sources.
    pub(super) fn texts(&self, ready: &Ready<'_>) -> Result<Vec<String>, Failure> {
        if self.audio.is_some() || self.features.is_some() || self.src_ids.is_some() {
            return Ok(Vec::new());
        }
        let mut texts = self.given_texts()?;
        texts.extend(self.read_pairs()?.iter().map(|pair| pair.source.clone()));
        if texts.is_empty() {
            texts.push(usual_source(ready)?.to_owned());
        }
        Ok(texts)
    }

    /// The recording, where the source is one.
    pub(super) fn recording(&self) -> Option<&Path> {
        self.audio.as_deref()
    }

    /// The source, and the target where one is given: `None` leaves it to the model.
    pub(super) fn read(&self, ready: &Ready<'_>, target: &TargetArgs) -> Result<Given, Failure> {
        self.check_standard_input(Some(target))?;
        let architecture = &ready.model.architecture;
        if !architecture.has(Stack::Encoder) {
            if target.tgt_file.is_some() || !target.tgt.is_empty() {
                return Err(wrong_side(ready, "--prompt TEXT, --text FILE or --tgt-ids"));
            }
            let rows = self.prompt_rows(ready, target.tgt_ids.as_deref())?;
            return Ok(Given::Whole(Input::of(Side::Target, Sequence::Tokens(rows))));
        }
        if self.is_prompt() {
            return Err(wrong_side(ready, "--src TEXT, --src-file FILE or --src-ids"));
        }
        let source = self.source(ready)?;
        if !architecture.has(Stack::Decoder) {
            if target.is_given() || self.pairs.is_some() {
                return Err(wrong_side(ready, "--src TEXT, --src-file FILE or --src-ids"));
            }
            return Ok(Given::Whole(Input::of(Side::Source, source)));
        }
        if let Some(ids) = &target.tgt_ids {
            let rows = ready.target_ids(&parse_ids(ids).map_err(|e| option("--tgt-ids", e))?)?;
            return Ok(Given::Whole(Input::pair(source, rows)));
        }
        let (pairs, given) = (self.read_pairs()?, target.texts()?);
        let mut texts: Vec<&str> = given.iter().map(String::as_str).collect();
        texts.extend(pairs.iter().map(|pair| pair.target.as_str()));
        if texts.is_empty() && ready.opened.name == "toy" {
            texts.push(toy::TARGET);
        }
        match texts.is_empty() {
            true => Ok(Given::Source(source)),
            false => Ok(Given::Whole(Input::pair(source, ready.target(&texts)?))),
        }
    }
}

/// What was given is for a model of another kind.
fn wrong_side(ready: &Ready<'_>, instead: &str) -> Failure {
    let kind = ready.model.architecture.kind();
    let reads =
        match (ready.model.architecture.has(Stack::Encoder), ready.model.architecture.has(Stack::Decoder)) {
            (true, true) => "a source and a target",
            _ => "one text",
        };
    Failure::new(
        format!("{}: a model that is {kind} reads {reads}, and something else is given", ready.opened.name),
        format!("give it with {instead}"),
    )
}

/// More than anybody runs at once.
const MOST_TEXT_BYTES: u64 = 1 << 26;

/// The lines of a file, read once.
fn lines<'c>(
    name: &str,
    file: Option<&Path>,
    read: &'c OnceCell<Vec<String>>,
) -> Result<&'c [String], Failure> {
    if let (None, Some(file)) = (read.get(), file) {
        let help = "give a text file in UTF-8, a sentence a line";
        let text = read_text(file, MOST_TEXT_BYTES, help)?;
        if text.is_empty() {
            return Err(Failure::new(format!("{name} {}: there is no line in it", file.display()), help));
        }
        return Ok(read.get_or_init(|| text.lines().map(str::to_owned).collect()));
    }
    Ok(read.get_or_init(Vec::new))
}

fn option(name: &str, e: attnscope_run::InputError) -> Failure {
    Failure::new(format!("{name}: {e}"), e.help())
}

/// What a built-in model reads where nothing is given.
fn usual_source(ready: &Ready<'_>) -> Result<&'static str, Failure> {
    match ready.opened.name.as_str() {
        "demo" => Ok(DEMO_SOURCE),
        "toy" => Ok(toy::SOURCE),
        name => Err(Failure::new(
            format!("{name}: nothing to read"),
            match ready.window("") {
                Ok(_) => "give a recording with --audio FILE, or features with --features FILE",
                Err(_) => "give a text with --src TEXT or --src-file FILE, or token ids with --src-ids",
            },
        )),
    }
}
