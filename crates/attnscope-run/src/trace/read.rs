//! Reads a saved trace.

use std::io::Read;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Checkpoint, Error, check_json_values, open_input};
use serde_json::Value;

use super::{ABOUT, TENSORS, TRACE_SCHEMA, TraceError, gradient_name};
use crate::tensor::Kept;

/// A trace on disk: its tensors are read one at a time.
#[derive(Debug)]
pub struct Trace {
    folder: PathBuf,
    tensors: Checkpoint,
    /// The whole of `trace.json`.
    pub about: Value,
    /// Its nodes, in the order of computation, including those whose tensors were not kept.
    pub nodes: Vec<TraceNode>,
}

/// A node as the trace describes it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceNode {
    /// Its name.
    pub path: String,
    /// What it computes.
    pub op: String,
    /// From which nodes.
    pub inputs: Vec<String>,
    /// Its shape in letters.
    pub dims: Vec<String>,
    /// Its shape in numbers.
    pub shape: Vec<usize>,
    /// Under which numbers it is seen in the walk of 43 snapshots.
    pub snapshots: Vec<usize>,
    /// Whether its tensor is in the trace.
    pub saved: bool,
    /// Whether its tensor's gradient is, too.
    #[serde(default)]
    pub gradient_saved: bool,
}

/// More than the description of any model's graph.
const MOST_ABOUT: u64 = 256 << 20;
/// Values in it, of which a token and a node have a few.
const MOST_VALUES: usize = 1 << 23;

impl Trace {
    /// Whether a folder has the files of a trace.
    pub fn is_one(folder: &Path) -> bool {
        folder.join(ABOUT).is_file() && folder.join(TENSORS).is_file()
    }

    /// Opens a folder that `trace --save` has written.
    ///
    /// # Errors
    /// When it is not one, or is damaged.
    pub fn open(folder: &Path) -> Result<Self, TraceError> {
        let path = folder.join(ABOUT);
        let meta = std::fs::metadata(&path).map_err(TraceError::io(&path))?;
        let size = meta.len();
        let invalid = |place: &str, expected, found: String| TraceError::Invalid {
            path: path.clone(),
            place: place.to_owned(),
            expected,
            found,
        };
        if !meta.is_file() {
            // Opening a pipe would wait for a writer.
            return Err(invalid("the file", "a regular file", "something else".into()));
        }
        if size > MOST_ABOUT {
            return Err(invalid("the file", "at most 256 MiB", format!("{size} bytes")));
        }
        let mut text = Vec::new();
        open_input(&path).and_then(|mut file| file.read_to_end(&mut text)).map_err(TraceError::io(&path))?;
        check_json_values(&text, MOST_VALUES, "the file").map_err(|kind| Error::new(&path, kind))?;
        let about: Value =
            serde_json::from_slice(&text).map_err(|e| invalid("the file", "JSON", e.to_string()))?;
        let schema = &about["schema"];
        if schema != TRACE_SCHEMA {
            return Err(invalid("schema", "1", schema.to_string()));
        }
        Self::of(folder, about, Checkpoint::open(&folder.join(TENSORS))?, &invalid)
    }

    /// A trace that is in memory: what `trace.json` would say, and the tensors. Errors call it by its name.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn held(name: &Path, about: Value, tensors: Checkpoint) -> Result<Self, TraceError> {
        let invalid = |place: &str, expected, found: String| TraceError::Invalid {
            path: name.to_owned(),
            place: place.to_owned(),
            expected,
            found,
        };
        Self::of(name, about, tensors, &invalid)
    }

    fn of(
        folder: &Path,
        about: Value,
        tensors: Checkpoint,
        invalid: &dyn Fn(&str, &'static str, String) -> TraceError,
    ) -> Result<Self, TraceError> {
        let nodes = serde_json::from_value(about["nodes"].clone())
            .map_err(|e| invalid("nodes", "a list of nodes", e.to_string()))?;
        let trace = Self { folder: folder.to_owned(), tensors, about, nodes };
        trace.check(invalid)?;
        Ok(trace)
    }

    /// Every saved node has its tensor, in its shape.
    fn check(&self, invalid: &dyn Fn(&str, &'static str, String) -> TraceError) -> Result<(), TraceError> {
        let check = |name: &str, shape: &[usize]| match self.tensors.tensor(name) {
            Some(tensor) if tensor.shape == shape => Ok(()),
            Some(tensor) => Err(invalid(name, "the shape of its tensor", format!("{:?}", tensor.shape))),
            None => Err(invalid(name, "a tensor of that name", "none".into())),
        };
        for node in &self.nodes {
            if node.saved {
                check(&node.path, &node.shape)?;
            }
            if node.gradient_saved {
                check(&gradient_name(&node.path), &node.shape)?;
            }
        }
        Ok(())
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its tensors as a checkpoint.
    pub fn tensors(&self) -> &Checkpoint {
        &self.tensors
    }

    /// A node's tensor, if it was kept.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, path: &str) -> Result<Option<Kept>, TraceError> {
        let Some(tensor) = self.tensors.tensor(path) else { return Ok(None) };
        Ok(Some(Kept { shape: tensor.shape.clone(), values: self.tensors.read_f64(tensor)? }))
    }
}
