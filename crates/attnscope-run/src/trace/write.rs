//! Writes a trace during the run: each tensor is written to the file as soon as it is computed, so that memory does not hold
//! it, too. The folder gets its name when it is complete.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Purpose, Unfinished};
use attnscope_graph::{Graph, NodeId, Op};
use serde_json::{Map, Value, json};

use super::{ABOUT, TENSORS, TraceError, gradient_name};
use crate::error::RunError;
use crate::learn::LearningSink;
use crate::sink::Sink;
use crate::tensor::{Tensor, Values};

/// In which type values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// As the native executor computes.
    F32,
    /// As the reference executor computes.
    F64,
}

impl Precision {
    /// Its name: `f32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

/// A trace that is being written. Dropped before [`TraceWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct TraceWriter {
    /// The trace's name, once it is whole.
    target: PathBuf,
    /// Its folder until then, beside the target.
    folder: Unfinished,
    file: File,
    places: HashMap<NodeId, Place>,
    gradients: HashMap<NodeId, Place>,
    bytes: u64,
}

/// Where a tensor goes.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u64,
    elements: usize,
    store: Store,
    written: bool,
}

/// How a tensor's values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    /// Token ids: whole numbers.
    I64,
    F32,
    F64,
}

impl Store {
    fn name(self) -> &'static str {
        match self {
            Self::I64 => "I64",
            Self::F32 => "F32",
            Self::F64 => "F64",
        }
    }

    fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }
}

impl TraceWriter {
    /// Begins a trace of these nodes, whose shapes are known before the run, and of the gradients of some of them.
    ///
    /// # Errors
    /// When there is something under that name, or its folder cannot be made.
    pub fn create(
        target: &Path,
        graph: &Graph,
        nodes: &[(NodeId, Vec<usize>)],
        gradients: &[NodeId],
        precision: Precision,
    ) -> Result<Self, TraceError> {
        refuse_existing(target)?;
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = Unfinished::folder(parent, Purpose::Trace).map_err(TraceError::io(parent))?;
        // Errors use the requested name: the temporary name means nothing to the user.
        let path = target.join(TENSORS);
        let file = folder.file_inside(TENSORS).map_err(TraceError::io(&path))?;
        let mut writer = Self {
            target: target.to_owned(),
            folder,
            file,
            places: HashMap::new(),
            gradients: HashMap::new(),
            bytes: 0,
        };
        let header = writer.plan(graph, nodes, gradients, precision);
        writer.write_header(header).map_err(TraceError::io(&path))?;
        Ok(writer)
    }

    /// The size of the tensors, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives every tensor its place, one after the other.
    fn plan(
        &mut self,
        graph: &Graph,
        nodes: &[(NodeId, Vec<usize>)],
        gradients: &[NodeId],
        precision: Precision,
    ) -> Map<String, Value> {
        let mut header = Map::new();
        let mut place = |name: String, shape: &[usize], store: Store| {
            let elements = shape.iter().product();
            let end = self.bytes + (elements * store.width()) as u64;
            let entry = json!({ "dtype": store.name(), "shape": shape, "data_offsets": [self.bytes, end] });
            header.insert(name, entry);
            let place = Place { at: self.bytes, elements, store, written: false };
            self.bytes = end;
            place
        };
        for (id, shape) in nodes {
            let node = graph.node(*id);
            let store = match (&node.op, precision) {
                (Op::Ids(_), _) => Store::I64,
                (_, Precision::F32) => Store::F32,
                (_, Precision::F64) => Store::F64,
            };
            self.places.insert(*id, place(node.path.as_str().to_owned(), shape, store));
        }
        for (id, shape) in nodes.iter().filter(|(id, _)| gradients.contains(id)) {
            let name = gradient_name(graph.node(*id).path.as_str());
            self.gradients.insert(*id, place(name, shape, Store::F32));
        }
        header
    }

    fn write_header(&mut self, header: Map<String, Value>) -> std::io::Result<()> {
        let mut text = Value::Object(header).to_string().into_bytes();
        // Readers that map the file want the data on a boundary of 8.
        text.resize(text.len().next_multiple_of(8), b' ');
        self.file.write_all(&(text.len() as u64).to_le_bytes())?;
        self.file.write_all(&text)?;
        let start = 8 + text.len() as u64;
        let places = self.places.values_mut().chain(self.gradients.values_mut());
        places.for_each(|place| place.at += start);
        self.file.set_len(start + self.bytes)
    }

    fn write(&mut self, place: Place, values: Values<'_>) -> Result<(), RunError> {
        let path = self.target.join(TENSORS);
        Ok(self.write_values(place, values).map_err(TraceError::io(&path))?)
    }

    fn write_values(&mut self, place: Place, values: Values<'_>) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(place.at))?;
        let mut out = BufWriter::with_capacity(1 << 20, &self.file);
        match (values, place.store) {
            (Values::F32(values), Store::F32) => write_all(&mut out, values, f32::to_le_bytes)?,
            (Values::F64(values), Store::F64) => write_all(&mut out, values, f64::to_le_bytes)?,
            (values, Store::I64) => write_all(&mut out, &values.to_f64(), |x| (x as i64).to_le_bytes())?,
            (values, Store::F32) => write_all(&mut out, &values.to_f32(), f32::to_le_bytes)?,
            (values, Store::F64) => write_all(&mut out, &values.to_f64(), f64::to_le_bytes)?,
        }
        out.flush()
    }

    /// Puts `about` beside the tensors and gives the folder its name.
    ///
    /// # Errors
    /// When a file cannot be written, or something has taken the name in the meantime.
    pub fn finish(self, about: &Value) -> Result<(), TraceError> {
        if !self.places.values().chain(self.gradients.values()).all(|place| place.written) {
            return Err(TraceError::Incomplete { path: self.target });
        }
        let tensors = self.target.join(TENSORS);
        self.file.sync_all().map_err(TraceError::io(&tensors))?;
        let path = self.target.join(ABOUT);
        let write = || -> std::io::Result<()> {
            let mut file = self.folder.file_inside(ABOUT)?;
            file.write_all(format!("{about:#}\n").as_bytes())?;
            file.sync_all()
        };
        write().map_err(TraceError::io(&path))?;
        refuse_existing(&self.target)?;
        self.folder.commit(&self.target).map_err(TraceError::io(&self.target))
    }
}

impl Sink for TraceWriter {
    fn wants(&self, node: NodeId) -> bool {
        self.places.contains_key(&node)
    }

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        match self.places.get_mut(&node).map(|place| place.fill(tensor)).transpose()? {
            Some(place) => self.write(place, tensor.values()),
            None => Ok(()),
        }
    }
}

impl LearningSink for TraceWriter {
    fn wants_gradient(&self, node: NodeId) -> bool {
        self.gradients.contains_key(&node)
    }

    fn put_gradient(&mut self, node: NodeId, gradient: &Tensor) -> Result<(), RunError> {
        match self.gradients.get_mut(&node).map(|place| place.fill(gradient)).transpose()? {
            Some(place) => self.write(place, gradient.values()),
            None => Ok(()),
        }
    }
}

impl Place {
    /// The place of a tensor that is about to be written.
    fn fill(&mut self, tensor: &Tensor) -> Result<Self, RunError> {
        if self.elements != tensor.len() {
            let place = format!("a tensor of {:?}", tensor.shape());
            return Err(RunError::Defect { place, what: "it came in another shape than planned" });
        }
        self.written = true;
        Ok(*self)
    }
}

fn write_all<T: Copy, const N: usize>(
    out: &mut impl Write,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    for values in values.chunks(buffer.len() / N) {
        buffer.chunks_exact_mut(N).zip(values).for_each(|(to, &x)| to.copy_from_slice(&bytes(x)));
        out.write_all(&buffer[..values.len() * N])?;
    }
    Ok(())
}

fn refuse_existing(path: &Path) -> Result<(), TraceError> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let found = if meta.is_dir() { "a folder" } else { "a file" };
    Err(TraceError::Exists { path: path.to_owned(), found })
}
