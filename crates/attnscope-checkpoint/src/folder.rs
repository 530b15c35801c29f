//! Which files of a folder are the model: its weights, its shards, its configuration, its tokenizer.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind};
use crate::format::ONNX_HELP;
use crate::hub;
use crate::inputs::open_input;
use crate::json::{MAX_JSON_VALUES, check_json_values};
use crate::listing::Config;
use crate::read::clip;
use crate::source::Source;

/// Facts beside the weights, the model's own first. The last is an adapter's, and is read beside one.
pub(crate) const CONFIGS: [&str; 4] = ["config.json", "generation_config.json", META_CONFIG, ADAPTER_CONFIG];

/// What Meta puts beside the weights of its Llamas.
const META_CONFIG: &str = "params.json";

/// What the PEFT library writes beside the weights of an adapter.
const ADAPTER_CONFIG: &str = "adapter_config.json";

/// Whether a document speaks of weights of this name.
pub(crate) fn is_about(config: &str, weights: &Weights) -> bool {
    let (Weights::File(path) | Weights::Index(path)) = weights;
    let adapter = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("adapter_model"));
    let of_meta = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("consolidated"));
    match config {
        ADAPTER_CONFIG => adapter,
        META_CONFIG => of_meta,
        _ => true,
    }
}

/// The largest configuration that is read. Its values may take about thirty times its bytes in memory.
pub(crate) const MAX_CONFIG: u64 = 4 << 20;

/// The index of a sharded model names every tensor.
const MAX_INDEX: u64 = 16 << 20;

/// More files than this are not kept open at once.
const MAX_SHARDS: usize = 512;

/// Weights by name, in the order in which Hugging Face looks for them; then what other programs call a model, which goes before
/// files that only have the ending of weights (`logits.safetensors`).
const NAMED: [&str; 6] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "model.pth",
];

/// Weights by file name ending; the endings of one row have the same rank.
const ENDINGS: [&[&str]; 5] =
    [&["safetensors"], &["gguf"], &["apr"], &["pt", "pth", "bin", "ckpt"], &["npz"]];

/// Files of trainers that have the same endings as weights.
const NOT_WEIGHTS: [&str; 7] =
    ["training_args.bin", "optimizer.", "scheduler.", "rng_state", "scaler.", "trainer_state", "trace"];

/// Weights in formats that are not read; only mentioned.
const FOREIGN: [&str; 3] = ["h5", "msgpack", "onnx"];

/// The weights of a model.
#[derive(Debug)]
pub(crate) enum Weights {
    File(PathBuf),
    Index(PathBuf),
}

/// What a path stands for.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) weights: Weights,
    /// The folder whose configuration goes with them.
    pub(crate) beside: Option<PathBuf>,
    pub(crate) companions: Vec<PathBuf>,
    pub(crate) ignored: Vec<PathBuf>,
}

/// Decides what to open for a path that the user gave.
pub(crate) fn choose(path: &Path) -> Result<Chosen, Error> {
    let meta = std::fs::metadata(path).map_err(|e| match hub::name(path) {
        Some(name) if e.kind() == std::io::ErrorKind::NotFound => hub::no_path(path, &name),
        _ => Error::new(path, e),
    })?;
    if meta.is_dir() {
        let files = list(path).map_err(|e| Error::new(path, e))?;
        check_parts(path, &files)?;
        let weights = choose_in(path, &files)?;
        let ignored = ignored(path, &files, &weights);
        let companions = companions(path, &files);
        return Ok(Chosen { weights, beside: Some(path.to_owned()), companions, ignored });
    }
    let beside = path.parent().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    // The folder may be unreadable although the file is readable.
    let files = beside.and_then(|dir| list(dir).ok()).unwrap_or_default();
    let companions = beside.map(|dir| companions(dir, &files)).unwrap_or_default();
    if path.file_name().is_some_and(|name| is_part(&name.to_string_lossy())) {
        check_parts(path, &files)?;
    }
    let index = path.to_string_lossy().ends_with(".index.json");
    let weights = if index { Weights::Index(path.to_owned()) } else { Weights::File(path.to_owned()) };
    Ok(Chosen { weights, beside: beside.map(Path::to_owned), companions, ignored: Vec::new() })
}

/// Whether a file is called as Meta calls the part of a Llama that one processor holds: `consolidated.00.pth`.
fn is_part(name: &str) -> bool {
    let number = name.strip_prefix("consolidated.").and_then(|rest| rest.strip_suffix(".pth"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Each of several such files holds a part of every matrix: rows of some, columns of others. One of them alone is no model.
fn check_parts(path: &Path, files: &BTreeSet<String>) -> Result<(), Error> {
    let parts: Vec<&String> = files.iter().filter(|name| is_part(name)).collect();
    if parts.len() < 2 {
        return Ok(());
    }
    let what = format!(
        "Meta's weights in {} files, each with a part of every matrix: {}; these are not joined here",
        parts.len(),
        some(&parts)
    );
    let help =
        "join them with transformers' convert_llama_weights_to_hf.py, and give the folder that it writes";
    Err(Error::new(path, ErrorKind::Unsupported { what, help: help.into() }))
}

/// Names in a folder, sorted, so that the choice does not depend on the file system.
pub(crate) fn list(dir: &Path) -> std::io::Result<BTreeSet<String>> {
    let names = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

fn choose_in(dir: &Path, files: &BTreeSet<String>) -> Result<Weights, Error> {
    for name in NAMED {
        if files.contains(name) && dir.join(name).is_file() {
            let path = dir.join(name);
            return Ok(if name.ends_with(".json") { Weights::Index(path) } else { Weights::File(path) });
        }
    }
    for endings in ENDINGS {
        let names: Vec<&String> = files.iter().filter(|name| has_ending(name, endings)).collect();
        let names = if names.len() > 1 { by_content(dir, names) } else { names };
        match names.as_slice() {
            [] => {}
            [one] => return Ok(Weights::File(dir.join(one))),
            several => return Err(ambiguous(dir, several)),
        }
    }
    Err(nothing(dir, files))
}

fn has_ending(name: &str, endings: &[&str]) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| endings.contains(&ending.as_str()))
        && !NOT_WEIGHTS.iter().any(|other| name.starts_with(other))
}

/// Those candidates that are checkpoints; all candidates where none is, so that opening one reports the error.
fn by_content<'f>(dir: &Path, names: Vec<&'f String>) -> Vec<&'f String> {
    let is_checkpoint =
        |name: &&&String| Source::look(&dir.join(name)).is_ok_and(|s| crate::format::sniff(&s).is_ok());
    let real: Vec<&String> = names.iter().filter(is_checkpoint).copied().collect();
    if real.is_empty() { names } else { real }
}

fn ambiguous(dir: &Path, names: &[&String]) -> Error {
    let what = format!("several weight files and no index: {}", some(names.iter().map(|n| n.as_str())));
    Error::new(dir, ErrorKind::Unsupported { what, help: "give one of the files".into() })
}

fn nothing(dir: &Path, files: &BTreeSet<String>) -> Error {
    let found = if files.is_empty() { "it is empty".into() } else { format!("it holds {}", some(files)) };
    let endings: Vec<String> = ENDINGS.concat().iter().map(|ending| format!("*.{ending}")).collect();
    let looked = format!("looked for {}, {}", NAMED.join(", "), endings.join(", "));
    let has_weights = |name: &&String| {
        let inner = dir.join(name);
        inner.is_dir() && list(&inner).is_ok_and(|files| choose_in_names(&files))
    };
    let inner: Vec<&String> = files.iter().take(1000).filter(has_weights).collect();
    let help = match inner.as_slice() {
        [] if files.iter().any(|name| has_ending(name, &["onnx"])) => {
            format!("ONNX models are not read: {ONNX_HELP}")
        }
        [] => "give a folder that holds a model's weights, or the weight file itself".into(),
        inner => format!(
            "give one of the folders in it that hold weights: {}",
            some(inner.iter().map(|n| n.as_str()))
        ),
    };
    Error::new(
        dir,
        ErrorKind::Unsupported { what: format!("no weights in this folder: {found}; {looked}"), help },
    )
}

fn choose_in_names(files: &BTreeSet<String>) -> bool {
    files.iter().any(|name| NAMED.contains(&name.as_str()) || has_ending(name, &ENDINGS.concat()))
}

/// The first few names and how many more there are.
fn some(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(8).map(|n| clip(n.as_ref())).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn ignored(dir: &Path, files: &BTreeSet<String>, weights: &Weights) -> Vec<PathBuf> {
    let shards = match weights {
        Weights::File(_) => BTreeSet::new(),
        // An index that cannot be read is reported when it is opened.
        Weights::Index(index) => Index::read(index).map(|i| i.shards()).unwrap_or_default(),
    };
    let (Weights::File(chosen) | Weights::Index(chosen)) = weights;
    files
        .iter()
        .filter(|name| has_ending(name, &ENDINGS.concat()) || has_ending(name, &FOREIGN))
        .filter(|name| !shards.contains(*name))
        .map(|name| dir.join(name))
        .filter(|path| path != chosen)
        .collect()
}

fn companions(dir: &Path, files: &BTreeSet<String>) -> Vec<PathBuf> {
    files.iter().filter(|name| is_companion(name)).map(|name| dir.join(name)).collect()
}

/// Whether a file is part of a tokenizer or of an audio front end, judged by its name alone.
pub(crate) fn is_companion(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "preprocessor_config.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "spiece.model",
        "tokenizer.model",
        "sentencepiece.bpe.model",
    ];
    NAMES.contains(&name)
        || name.ends_with(".tiktoken")
        || name.ends_with(".spm")
        || (name.starts_with("dict.") && name.ends_with(".txt"))
}

/// A file of at most `cap` bytes, in memory.
pub(crate) fn read_capped(path: &Path, cap: u64) -> Result<Vec<u8>, Error> {
    // Asked before opening: opening a pipe would wait for a writer.
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        let what = "not a regular file".into();
        let help = "replace it by a file, or remove it".into();
        return Err(Error::new(path, ErrorKind::Unsupported { what, help }));
    }
    let mut bytes = Vec::new();
    let read = open_input(path).and_then(|file| file.take(cap + 1).read_to_end(&mut bytes));
    read.map_err(|e| Error::new(path, e))?;
    if bytes.len() as u64 > cap {
        let found = std::fs::metadata(path).map_or(bytes.len() as u64, |meta| meta.len());
        return Err(Error::new(path, ErrorKind::TooLarge { place: "the file".into(), found, cap }));
    }
    Ok(bytes)
}

/// A JSON object of facts.
pub(crate) fn config(path: &Path, source: &str, bytes: &[u8]) -> Result<Config, Error> {
    match json(path, bytes)? {
        Value::Object(facts) => Ok(Config { source: source.to_owned(), facts }),
        other => {
            let found = match other {
                Value::Array(_) => "an array",
                Value::String(_) => "a string",
                _ => "a single value",
            };
            Err(Error::new(path, ErrorKind::invalid("line 1", "a JSON object", found)))
        }
    }
}

fn json<T: for<'de> Deserialize<'de>>(path: &Path, bytes: &[u8]) -> Result<T, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    check_json_values(bytes, MAX_JSON_VALUES, "the file").map_err(|kind| Error::new(path, kind))?;
    serde_json::from_slice(bytes).map_err(|e| {
        let place = format!("line {}, column {}", e.line(), e.column());
        Error::new(path, ErrorKind::invalid(place, "JSON", clip(&e.to_string())))
    })
}

/// `*.index.json`: which shard holds which tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    fn read(path: &Path) -> Result<Self, Error> {
        json(path, &read_capped(path, MAX_INDEX)?)
    }

    fn shards(&self) -> BTreeSet<String> {
        self.weight_map.values().cloned().collect()
    }
}

/// Opens every shard of an index and checks that each tensor is where the index says.
pub(crate) fn open_shards(path: &Path, into: &mut Checkpoint) -> Result<(), Error> {
    let index = Index::read(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let shards = index.shards();
    check_shards(path, dir, &shards)?;
    for shard in &shards {
        into.add(Source::open(&dir.join(shard))?)?;
    }
    let order: Vec<&String> = shards.iter().collect();
    let listed: BTreeMap<&str, usize> =
        into.tensors().iter().map(|t| (t.name.as_str(), t.place.source)).collect();
    for (tensor, shard) in &index.weight_map {
        let found = listed.get(tensor.as_str()).and_then(|&source| order.get(source));
        if found.is_none_or(|found| *found != shard) {
            let found = found.map_or("nowhere".to_owned(), |shard| format!("in {shard}"));
            let place = format!("tensor {:?}", clip(tensor));
            return Err(Error::new(path, ErrorKind::invalid(place, format!("it in {}", clip(shard)), found)));
        }
    }
    Ok(())
}

/// Whether a name that a file gives stays in that file's folder.
pub(crate) fn inside(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// The names of shards are untrusted: checks that each stays in the folder and exists.
fn check_shards(path: &Path, dir: &Path, shards: &BTreeSet<String>) -> Result<(), Error> {
    let wrong = |expected: String, found: &str| {
        Err(Error::new(path, ErrorKind::invalid("weight_map", expected, found)))
    };
    if shards.is_empty() {
        return wrong("at least one tensor".into(), "none");
    }
    if shards.len() > MAX_SHARDS {
        return wrong(format!("at most {MAX_SHARDS} shards"), &shards.len().to_string());
    }
    if let Some(name) = shards.iter().find(|name| !inside(name)) {
        return wrong("names of files in the same folder".into(), &format!("{:?}", clip(name)));
    }
    let missing: Vec<&String> = shards.iter().filter(|name| !dir.join(name).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = some(missing.iter().map(|n| n.as_str()));
    let what = format!("{} of {} shards are missing: {names}", missing.len(), shards.len());
    Err(Error::new(path, ErrorKind::Unsupported { what, help: "fetch them into the same folder".into() }))
}
