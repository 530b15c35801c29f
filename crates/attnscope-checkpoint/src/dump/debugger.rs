//! What Hugging Face's `model_addition_debugger_context(debug_path=…, use_repr=False)` writes: a tree of module calls, and
//! beside it one safetensors file for each tensor that went in or came out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::{DumpTensor, small_json};
use crate::error::{Error, ErrorKind};
use crate::folder::{inside, list};
use crate::read::{self, clip};
use crate::source::Source;

const ENDING: &str = "_FULL_TENSORS.json";
/// A tree of a large model comes to a few megabytes.
const MAX_TREE: u64 = 256 << 20;

/// Whether a file is such a tree. Only its name tells.
pub(super) fn is_tree(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ENDING))
}

/// The tree in a folder.
pub(super) fn find(folder: &Path) -> Result<Option<PathBuf>, Error> {
    let names = list(folder).map_err(|e| Error::new(folder, e))?;
    let trees: Vec<&String> = names.iter().filter(|name| name.ends_with(ENDING)).collect();
    match trees.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(folder.join(one))),
        several => {
            let what = format!("{} trees of calls: {}, …", several.len(), clip(several[0]));
            Err(Error::new(
                folder,
                ErrorKind::Unsupported { what, help: "give one of the .json files".into() },
            ))
        }
    }
}

/// The tensors that a tree names, in the order of the calls, then those of layers that it leaves out: by default the tree keeps
/// the first and the last layer, but the files of all layers exist. Also returns how many tensors the tree names.
pub(super) fn read(tree: &Path) -> Result<(Vec<DumpTensor>, usize), Error> {
    let root = small_json(tree, MAX_TREE)?;
    let mut calls = Calls { named: Vec::new(), times: HashMap::new(), printed: 0 };
    calls.visit(&root, 0);
    if calls.named.is_empty() {
        let (what, help) = match calls.printed {
            0 => ("no tensors in this tree of calls", "give the tree that the debugger wrote"),
            _ => ("the tensors are printed, not kept", "run the debugger again with use_repr=False"),
        };
        return Err(Error::new(tree, ErrorKind::Unsupported { what: what.into(), help: help.into() }));
    }
    let folder = tree.parent().unwrap_or(Path::new("."));
    let mut tensors = Vec::new();
    let mut seen = HashSet::new();
    for (name, value) in &calls.named {
        let file = value.strip_prefix("./").unwrap_or(value);
        if !inside(file) {
            let expected = "names of files in the same folder";
            return Err(Error::new(
                tree,
                ErrorKind::invalid(clip(name), expected, format!("{:?}", clip(value))),
            ));
        }
        // A module that is called twice has one file, which holds the last call.
        if seen.insert(file.to_owned()) {
            tensors.push(tensor(&folder.join(file), calls.once(name))?);
        }
    }
    let in_order = tensors.len();
    tensors.extend(left_out(folder, &seen, &calls)?);
    Ok((tensors, in_order))
}

struct Calls {
    /// `Model.encoder.layers.0.fc1.outputs` and the file that is named there.
    named: Vec<(String, String)>,
    /// How often each module is called.
    times: HashMap<String, usize>,
    /// Tensors of which the tree holds only an excerpt.
    printed: usize,
}

/// Deeper than any tree of modules.
const MAX_DEPTH: usize = 120;

impl Calls {
    fn visit(&mut self, call: &Value, depth: usize) {
        let module = call["module_path"].as_str().unwrap_or_default().to_owned();
        *self.times.entry(module.clone()).or_insert(0) += 1;
        self.tensors(&call["inputs"], &format!("{module}.inputs"), depth);
        for child in call["children"].as_array().into_iter().flatten() {
            if depth < MAX_DEPTH {
                self.visit(child, depth + 1);
            }
        }
        self.tensors(&call["outputs"], &format!("{module}.outputs"), depth);
    }

    fn tensors(&mut self, value: &Value, name: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Object(entries) if entries.contains_key("dtype") => match &entries.get("value") {
                Some(Value::String(file)) => self.named.push((name.to_owned(), file.clone())),
                _ => self.printed += 1,
            },
            Value::Object(entries) => {
                entries.iter().for_each(|(key, v)| self.tensors(v, &format!("{name}.{key}"), depth + 1));
            }
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(i, v)| self.tensors(v, &format!("{name}.{i}"), depth + 1));
            }
            _ => {}
        }
    }

    /// A name that marks the tensor as that of the last of several calls.
    fn once(&self, name: &str) -> String {
        let module =
            [".inputs", ".outputs"].iter().find_map(|end| name.rfind(end)).map_or(name, |at| &name[..at]);
        match self.times.get(module) {
            Some(&n) if n > 1 => format!("{module}#{n}{}", &name[module.len()..]),
            _ => name.to_owned(),
        }
    }
}

/// `Model.encoder.layers.1.fc1_inputs_args_0.safetensors` as `Model.encoder.layers.1.fc1.inputs.args.0`.
fn left_out(folder: &Path, seen: &HashSet<String>, calls: &Calls) -> Result<Vec<DumpTensor>, Error> {
    let names = list(folder).map_err(|e| Error::new(folder, e))?;
    let mut others: BTreeMap<String, PathBuf> = BTreeMap::new();
    for file in names.iter().filter(|name| !seen.contains(*name)) {
        let Some(stem) = file.strip_suffix(".safetensors") else { continue };
        let at = ["_inputs_", "_outputs"].iter().filter_map(|end| stem.rfind(end)).max();
        let Some((module, rest)) = at.and_then(|at| stem.split_at_checked(at)) else { continue };
        // `inputs`, then `args` or `kwargs`, then a name that may have underscores of its own.
        let parts: Vec<&str> = rest.trim_start_matches('_').splitn(3, '_').collect();
        others.insert(calls.once(&format!("{module}.{}", parts.join("."))), folder.join(file));
    }
    others.into_iter().map(|(name, file)| tensor(&file, name)).collect()
}

/// The one tensor of a file.
fn tensor(path: &Path, name: String) -> Result<DumpTensor, Error> {
    let source = Source::open(path)?;
    let (_, listing) = read::read(&source).map_err(|kind| source.error(kind))?;
    let count = listing.tensors.len();
    let Some(info) = listing.tensors.into_iter().next().filter(|_| count == 1) else {
        return Err(source.error(ErrorKind::invalid("the file", "one tensor", count)));
    };
    let file: Arc<Path> = path.into();
    Ok(DumpTensor::in_file(name, &file, info))
}
