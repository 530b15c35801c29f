//! From a name or path to a checkpoint and what it was recognised as.

use std::borrow::Cow;
use std::path::Path;

use attnscope_checkpoint::{Checkpoint, Config as Document, HeldTensor, Remedy};
use attnscope_graph::{Config, Dim, Model, OtherKind, Recognised, recognise};
use attnscope_run::Tokenizer;
use attnscope_train::recipe::shipped;
use attnscope_train::{Planned, Recipe, RunFolder};
use serde_json::Value;

use crate::failure::{Argument, Failure};
use crate::toy;
use crate::train::recipe;

/// The trained model that the binary carries: English to German, 1.2 M parameters.
const DEMO: [(&str, &[u8]); 3] = [
    ("model.safetensors", include_bytes!("../models/demo/model.safetensors")),
    ("config.json", include_bytes!("../models/demo/config.json")),
    ("tokenizer.json", include_bytes!("../models/demo/tokenizer.json")),
];

/// A checkpoint that is open, and what it is.
#[derive(Debug)]
pub struct Opened {
    /// The MODEL as given.
    pub name: String,
    /// Its tensors.
    pub checkpoint: Checkpoint,
    /// What they are.
    pub recognised: Recognised,
    /// The source and target sentences whose words are the toy's vocabularies.
    words: Option<[Vec<String>; 2]>,
    /// Of a recipe: rows of a batch, where it says so.
    pub(crate) batch: Option<usize>,
}

impl Opened {
    /// Opens a file, a folder, a built-in, the best weights of a training run, or a recipe, which has no values yet. `heads` is
    /// the head count given by the user.
    pub fn open(name: &str, heads: Option<usize>) -> Result<Self, Failure> {
        let checkpoint = match name {
            "demo" => Checkpoint::from_memory("demo", DEMO.map(|(n, b)| (n, Cow::Borrowed(b))).to_vec())?,
            "toy" => return Self::toy(vec![toy::SOURCE.to_owned()], vec![toy::TARGET.to_owned()]),
            name if is_recipe(name) => {
                let recipe = recipe(name)?;
                let opened = Self::recognise(name, planned(name, &recipe)?, heads)?;
                return Ok(Self { batch: recipe.train.batch, ..opened });
            }
            _ => {
                let path = Path::new(name);
                Checkpoint::open(RunFolder::weights_in(path).as_deref().unwrap_or(path))?
            }
        };
        Self::recognise(name, checkpoint, heads)
    }

    /// A model that is in memory: its tensors, and the documents that would lie beside them in a folder.
    ///
    /// # Errors
    /// Where a tensor has not the bytes of its shape, or a document is none.
    pub fn held(
        name: &str,
        tensors: Vec<HeldTensor>,
        documents: Vec<(String, Vec<u8>)>,
        heads: Option<usize>,
    ) -> Result<Self, Failure> {
        Self::recognise(name, Checkpoint::held(name, tensors, documents)?, heads)
    }

    /// The toy, with vocabularies of these sentences' words.
    pub fn toy(source: Vec<String>, target: Vec<String>) -> Result<Self, Failure> {
        let is_empty = |texts: &[String]| texts.iter().all(|text| text.trim().is_empty());
        if is_empty(&source) || is_empty(&target) {
            return Err(Failure::new(
                "toy: nothing to read: its vocabularies are the words that it is given",
                Remedy::WordsOfBothSides,
            ));
        }
        let opened = Self::recognise("toy", toy::checkpoint(&source, &target)?, None)?;
        Ok(Self { words: Some([source, target]), ..opened })
    }

    /// The tokenizer beside the weights or among them, if there is one; for a Whisper model with one of OpenAI's vocabularies,
    /// OpenAI's own.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, Failure> {
        if let Some(words) = &self.words {
            let [source, target] = words.each_ref().map(|s| s.iter().map(String::as_str).collect::<Vec<_>>());
            return Ok(Some(Tokenizer::words(&source, &target)));
        }
        let model = self.model()?;
        let rows = model.architecture.sides().next_back().and_then(|side| model.sizes.get(Dim::Vocab(side)));
        let beside = match Tokenizer::for_vocabulary(self.checkpoint.tokenizer(), rows)? {
            None => Tokenizer::embedded(&self.checkpoint)?,
            beside => beside,
        };
        match (beside, rows) {
            (None, Some(rows)) if model.graph.reads_audio() => Ok(Tokenizer::whisper(rows)?),
            (beside, _) => Ok(beside),
        }
    }

    fn recognise(name: &str, checkpoint: Checkpoint, heads: Option<usize>) -> Result<Self, Failure> {
        let configs: Vec<Config<'_>> =
            checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
        let recognised =
            recognise(attnscope_run::tensor_specs(&checkpoint), &configs, heads).map_err(|e| {
                Failure::new(
                    format!("{}: {e}", checkpoint.path().display()),
                    format!(
                        "correct {:?} in {}, or remove it: sizes are taken from the tensors",
                        e.key, e.source_name
                    ),
                )
            })?;
        Ok(Self { name: name.to_owned(), checkpoint, recognised, words: None, batch: None })
    }

    /// Sets fields of the wiring, each written `norm_place=pre`, whatever the documents say.
    pub fn set_wiring(&mut self, edits: &[String]) -> Result<(), Failure> {
        if edits.is_empty() {
            return Ok(());
        }
        let parsed = |edit: &String| match edit.split_once('=') {
            // A word, or a number or true and false as JSON has them.
            Some((field, value)) => {
                let value = value.trim();
                let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
                Ok((field.trim().to_owned(), value))
            }
            None => Err(Failure::new("expected FIELD=VALUE, found no =", Remedy::WiringForm)
                .about(Argument::Wiring(Some(edit.clone())))),
        };
        let edits = edits.iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
        let model = self.model()?.with_wiring(&edits).map_err(|e| {
            Failure::new(e.to_string(), Remedy::WiringFields(self.name.clone())).about(Argument::Wiring(None))
        })?;
        self.recognised = Recognised::Model(Box::new(model));
        Ok(())
    }

    /// The model, or why there is none.
    pub fn model(&self) -> Result<&Model, Failure> {
        match &self.recognised {
            Recognised::Model(model) => Ok(model),
            Recognised::Other(other) => {
                if let Some(family) = other.family {
                    let why =
                        format!("{}: {family} is not run or drawn: it needs {}", self.name, other.because);
                    return Err(Failure::new(why, Remedy::InspectTensors(self.name.clone())));
                }
                let what = match other.kind {
                    OtherKind::Adapter => {
                        "an adapter, not a model: it holds changes to the weights of another model"
                    }
                    OtherKind::Unknown => "not recognised as a model",
                    OtherKind::EncoderDecoder => "an encoder-decoder of an unknown family",
                    OtherKind::DecoderOnly => "a decoder-only model: there is no cross-attention in it",
                    OtherKind::EncoderOnly => "an encoder-only model: there is no cross-attention in it",
                };
                let remedy: Remedy = match other.kind {
                    OtherKind::Adapter => format!(
                        "merge it into its base model with the PEFT library and give the folder that this writes: \
                         PeftModel.from_pretrained(base, {:?}).merge_and_unload().save_pretrained(\"merged\")",
                        self.name
                    )
                    .into(),
                    _ => Remedy::InspectTensors(self.name.clone()),
                };
                Err(Failure::new(format!("{}: {what} ({})", self.name, other.because), remedy))
            }
        }
    }
}

/// Whether a name is that of a recipe: one that is shipped, unless a file or a folder has its name, or a file of one.
fn is_recipe(name: &str) -> bool {
    (shipped(name).is_some() && !Path::new(name).exists())
        || Path::new(name).extension().is_some_and(|extension| extension == "toml")
}

/// What training by a recipe would write: tensors without values, and configs.
fn planned(name: &str, recipe: &Recipe) -> Result<Checkpoint, Failure> {
    let Planned { tensors, configs, .. } = Planned::of(recipe)?;
    let tensors = tensors.into_iter().map(|tensor| (tensor.name, tensor.shape)).collect();
    let document = |(source, facts): (&str, _)| Document { source: format!("planned {source}"), facts };
    Ok(Checkpoint::planned(name, tensors, configs.into_iter().map(document).collect())?)
}
