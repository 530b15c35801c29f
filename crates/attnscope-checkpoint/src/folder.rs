//! Which files of a folder make up a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};
use crate::listing::Config;

/// Configs and indices are text for people; none comes near this.
const MAX_JSON: u64 = 16 << 20;

/// The weights of a folder or of a file, and what stands beside them.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// One file, or the shards of an index.
    pub(crate) weights: Vec<PathBuf>,
    /// For a sharded checkpoint: where the index says each tensor is.
    pub(crate) index: Option<Index>,
    pub(crate) configs: Vec<Config>,
    pub(crate) tokenizer: Vec<PathBuf>,
    pub(crate) ignored: Vec<PathBuf>,
}

/// `model.safetensors.index.json`.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) file: PathBuf,
    /// Tensor name to shard.
    pub(crate) shards: BTreeMap<String, PathBuf>,
}

/// Names that are looked for first, in this order.
const PREFERRED: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// Endings of weight files, in the order of preference.
const ENDINGS: [&str; 8] = ["safetensors", "gguf", "apr", "pt", "pth", "bin", "ckpt", "npz"];

/// Files that a tokenizer is made of.
const TOKENIZERS: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "source.spm",
    "target.spm",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "gpt2.tiktoken",
    "multilingual.tiktoken",
];

/// Finds what belongs to `path`, which is a weight file, an index or a folder.
pub(crate) fn find(path: &Path) -> Result<Found, Error> {
    let meta = fs::metadata(path).map_err(|e| Error::new(path, e))?;
    let (folder, chosen, ignored) = if meta.is_dir() {
        let (chosen, ignored) = choose(path)?;
        (path.to_owned(), chosen, ignored)
    } else {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        (folder.to_owned(), path.to_owned(), Vec::new())
    };
    let mut found = Found { ignored, ..Found::default() };
    for name in ["config.json", "generation_config.json"] {
        let file = folder.join(name);
        if file.is_file() {
            found.configs.push(Config { source: name.into(), facts: json_object(&file)? });
        }
    }
    found.tokenizer = TOKENIZERS.iter().map(|n| folder.join(n)).filter(|p| p.is_file()).collect();
    if chosen.to_string_lossy().ends_with(".index.json") {
        let index = read_index(&chosen, &folder)?;
        let shards: BTreeSet<PathBuf> = index.shards.values().cloned().collect();
        found.weights = shards.into_iter().collect();
        found.index = Some(index);
    } else {
        found.weights = vec![chosen];
    }
    Ok(found)
}

/// The weight file of a folder, and those that were passed over.
fn choose(folder: &Path) -> Result<(PathBuf, Vec<PathBuf>), Error> {
    let mut files = Vec::new();
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::new(folder, e))? {
        let path = entry.map_err(|e| Error::new(folder, e))?.path();
        if path.is_dir() { folders.push(path) } else { files.push(path) }
    }
    files.sort();
    let name = |p: &Path| p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let preferred = PREFERRED.iter().find_map(|want| files.iter().find(|f| name(f) == *want));
    let by_ending = |ending: &&str| files.iter().find(|f| f.extension().is_some_and(|e| e == *ending));
    let Some(chosen) = preferred.or_else(|| ENDINGS.iter().find_map(by_ending)).cloned() else {
        return Err(Error::new(folder, nothing_there(&files, &folders)));
    };
    let is_weights = |f: &PathBuf| f.extension().is_some_and(|e| ENDINGS.iter().any(|w| e == *w));
    let sharded = name(&chosen).ends_with(".index.json");
    // Shards of the chosen index are not passed over, and neither are small files that only end alike.
    let passed_over = |f: &PathBuf| *f != chosen && is_weights(f) && !(sharded && name(f).contains("-of-"));
    let ignored = files.iter().filter(|f| passed_over(f)).cloned().collect();
    Ok((chosen, ignored))
}

fn nothing_there(files: &[PathBuf], folders: &[PathBuf]) -> ErrorKind {
    let names = |paths: &[PathBuf]| {
        let shown: Vec<String> =
            paths.iter().take(6).filter_map(|p| p.file_name()).map(|n| n.to_string_lossy().into()).collect();
        let more = if paths.len() > 6 { ", …" } else { "" };
        format!("{}{more}", shown.join(", "))
    };
    let what = match files.is_empty() {
        true => "no weight file in this folder, which holds no files".to_owned(),
        false => format!("no weight file in this folder; it holds {}", names(files)),
    };
    let help = match folders.is_empty() {
        true => format!("looked for {}, and files ending in {}", PREFERRED.join(", "), ENDINGS.join(", ")),
        false => format!("give one of its folders: {}", names(folders)),
    };
    ErrorKind::Unsupported { what, help }
}

/// The index of a sharded checkpoint. A shard is a file in the same folder: an index cannot send us elsewhere.
fn read_index(file: &Path, folder: &Path) -> Result<Index, Error> {
    let index = json_object(file)?;
    let bad = |place: String, expected: &str, found: String| {
        Error::new(file, ErrorKind::invalid(place, expected, found))
    };
    let Some(Value::Object(map)) = index.get("weight_map") else {
        return Err(bad("weight_map".into(), "an object of tensor names and files", "none".into()));
    };
    let mut shards = BTreeMap::new();
    for (tensor, shard) in map {
        let place = || format!("weight_map: {:?}", crate::read::clip(tensor));
        let Some(name) = shard.as_str() else {
            return Err(bad(place(), "a file name", shard.to_string()));
        };
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(bad(place(), "the name of a file in the same folder", format!("{name:?}")));
        }
        shards.insert(tensor.clone(), folder.join(name));
    }
    if shards.is_empty() {
        return Err(bad("weight_map".into(), "at least one tensor", "none".into()));
    }
    Ok(Index { file: file.to_owned(), shards })
}

/// A small JSON file that must hold an object.
fn json_object(file: &Path) -> Result<Map<String, Value>, Error> {
    let at = |e: std::io::Error| Error::new(file, e);
    let mut bytes = Vec::new();
    File::open(file).map_err(at)?.take(MAX_JSON + 1).read_to_end(&mut bytes).map_err(at)?;
    if bytes.len() as u64 > MAX_JSON {
        let found = fs::metadata(file).map_or(bytes.len() as u64, |m| m.len());
        return Err(Error::new(
            file,
            ErrorKind::TooLarge { place: "the whole file".into(), found, cap: MAX_JSON },
        ));
    }
    parse_object(&bytes).map_err(|kind| Error::new(file, kind))
}

pub(crate) fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, ErrorKind> {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => {
            let found = crate::read::clip(&other.to_string());
            Err(ErrorKind::invalid("the whole file", "a JSON object", found))
        }
        Err(e) => {
            let place = format!("line {}, column {}", e.line(), e.column());
            Err(ErrorKind::invalid(place, "JSON", e))
        }
    }
}
