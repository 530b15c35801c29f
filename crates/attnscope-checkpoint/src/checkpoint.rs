//! An opened checkpoint: its files, its tensors, and what was found beside it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::folder::{self, Weights};
use crate::format::Format;
use crate::inputs;
use crate::list::StoredList;
use crate::listing::{Check, Config, Listing, Placeholder};
use crate::read::{self, dims};
use crate::source::Source;
use crate::tensor::{Packing, Place, TensorInfo};

/// The largest companion file that is read is a tokenizer, and tokenizers stay far below this.
const MAX_COMPANION: u64 = 256 << 20;

/// Configs that one more shard may add: comparing them with those that are known takes time.
const MAX_NEW: usize = 64;

/// A checkpoint whose headers have been read and checked, and whose values have not been read.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    format: Format,
    sources: Vec<Arc<Source>>,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    configs: Vec<Config>,
    placeholders: Vec<Placeholder>,
    checks: Vec<Check>,
    lists: Vec<StoredList>,
    companions: Vec<Companion>,
    ignored: Vec<PathBuf>,
    left_out: Vec<String>,
}

/// A file beside the weights that belongs to the model: a tokenizer, a vocabulary.
#[derive(Debug, Clone)]
pub struct Companion {
    path: PathBuf,
    memory: Option<Cow<'static, [u8]>>,
}

impl Companion {
    /// Where it is; only a name where it is embedded in the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the file.
    pub fn name(&self) -> Cow<'_, str> {
        self.path.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Its bytes.
    pub fn read(&self) -> Result<Cow<'_, [u8]>, Error> {
        match &self.memory {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => folder::read_capped(&self.path, MAX_COMPANION).map(Cow::Owned),
        }
    }
}

impl Checkpoint {
    /// Opens a weight file, the index of a sharded model, or a folder that holds either.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let chosen = folder::choose(path)?;
        let mut opened = Self::empty(path);
        match &chosen.weights {
            Weights::File(file) => opened.add(Source::open(file)?)?,
            Weights::Index(index) => folder::open_shards(index, &mut opened)?,
        }
        let own = std::mem::take(&mut opened.configs);
        if let Some(dir) = &chosen.beside {
            for name in folder::CONFIGS.into_iter().filter(|name| folder::is_about(name, &chosen.weights)) {
                let file = dir.join(name);
                if file.exists() {
                    let bytes = folder::read_capped(&file, folder::MAX_CONFIG)?;
                    opened.configs.push(folder::config(&file, name, &bytes)?);
                }
            }
        }
        opened.configs.extend(own);
        chosen.companions.iter().chain(&chosen.ignored).for_each(|path| inputs::note(path));
        opened.companions =
            chosen.companions.into_iter().map(|path| Companion { path, memory: None }).collect();
        opened.ignored = chosen.ignored;
        Ok(opened.indexed())
    }

    /// Opens files that are already in memory, by the names they would have in a folder: the embedded model.
    pub fn from_memory(
        name: impl Into<PathBuf>,
        files: Vec<(&'static str, Cow<'static, [u8]>)>,
    ) -> Result<Self, Error> {
        let mut opened = Self::empty(&name.into());
        let mut given = Vec::new();
        for (file, bytes) in files {
            let path = opened.path.join(file);
            if folder::CONFIGS.contains(&file) {
                given.push(folder::config(&path, file, &bytes)?);
            } else if folder::is_companion(file) {
                opened.companions.push(Companion { path, memory: Some(bytes) });
            } else {
                opened.add(Source::memory(path, bytes))?;
            }
        }
        if opened.sources.is_empty() {
            return Err(Error::new(&opened.path, ErrorKind::Unrecognised { found: "no weights".into() }));
        }
        given.append(&mut opened.configs);
        opened.configs = given;
        Ok(opened.indexed())
    }

    /// Tensors that no file holds yet, in f32, with what their configs would say: everything that headers tell, and no values.
    ///
    /// # Errors
    /// When two tensors have one name, or there are more bytes than 64 bits can count.
    pub fn planned(
        name: impl Into<PathBuf>,
        tensors: Vec<(String, Vec<usize>)>,
        configs: Vec<Config>,
    ) -> Result<Self, Error> {
        let mut opened = Self::empty(&name.into());
        let mut end = 0u64;
        for (name, shape) in tensors {
            let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            let bytes = elements.and_then(|n| DType::F32.bytes_for(n)).map(|n| n as u64);
            let Some(to) = bytes.and_then(|n| end.checked_add(n)) else {
                let kind = ErrorKind::invalid(name, "a tensor that 64 bits can count", dims(&shape));
                return Err(Error::new(&opened.path, kind));
            };
            let place = Place { source: 0, range: end..to, strides: None, packing: Packing::Stored };
            opened.tensors.push(TensorInfo { name, dtype: DType::F32, shape, place });
            end = to;
        }
        let source = Source::planned(&opened.path, end);
        let planned = Self::of_tensors(&opened.path, Format::Recipe, source, opened.tensors)?;
        Ok(Self { configs, ..planned })
    }

    /// Tensors that lie in one source, and nothing beside them.
    pub(crate) fn of_tensors(
        path: &Path,
        format: Format,
        source: Source,
        tensors: Vec<TensorInfo>,
    ) -> Result<Self, Error> {
        read::fields::check_unique(&tensors).map_err(|kind| source.error(kind))?;
        Ok(Self { format, sources: vec![Arc::new(source)], tensors, ..Self::empty(path) }.indexed())
    }

    pub(crate) fn add_config(&mut self, config: Config) {
        self.configs.push(config);
    }

    pub(crate) fn add_companion(&mut self, path: PathBuf, bytes: Vec<u8>) {
        self.companions.push(Companion { path, memory: Some(bytes.into()) });
    }

    fn empty(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            format: Format::Safetensors,
            sources: Vec::new(),
            tensors: Vec::new(),
            by_name: HashMap::new(),
            configs: Vec::new(),
            placeholders: Vec::new(),
            checks: Vec::new(),
            lists: Vec::new(),
            companions: Vec::new(),
            ignored: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Reads one more file of the model. All of them have one format, and no tensor is in two of them.
    pub(crate) fn add(&mut self, source: Source) -> Result<(), Error> {
        let (format, listing) = read::read(&source).map_err(|kind| source.error(kind))?;
        if !self.sources.is_empty() && format != self.format {
            let kind = ErrorKind::invalid("shard", format!("{}, like the others", self.format), format);
            return Err(source.error(kind));
        }
        self.format = format;
        let Listing { mut tensors, configs, placeholders, checks, lists, left_out } = listing;
        self.left_out.extend(left_out);
        let source_number = self.sources.len();
        self.lists.extend(lists.into_iter().map(|list| StoredList { source: source_number, ..list }));
        for tensor in &mut tensors {
            tensor.place.source = self.sources.len();
        }
        self.tensors.append(&mut tensors);
        self.checks.extend(checks);
        // Every shard repeats the same metadata; one file does not repeat itself.
        if self.sources.is_empty() {
            (self.configs, self.placeholders) = (configs, placeholders);
        } else {
            let known = &self.configs;
            let new: Vec<_> = configs.into_iter().filter(|c| !known.contains(c)).take(MAX_NEW).collect();
            self.configs.extend(new);
            let known: HashSet<_> = self.placeholders.iter().cloned().collect();
            self.placeholders.extend(placeholders.into_iter().filter(|p| !known.contains(p)));
        }
        read::fields::check_unique(&self.tensors).map_err(|kind| source.error(kind))?;
        self.sources.push(Arc::new(source));
        Ok(())
    }

    fn indexed(mut self) -> Self {
        self.by_name = self.tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        self
    }

    /// What was opened: the file or the folder that was asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format of its weights.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its weight files and their sizes in bytes.
    pub fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.sources.iter().map(|s| (s.name(), s.len()))
    }

    /// The weight file that holds a tensor of this checkpoint.
    pub fn file_of(&self, tensor: &TensorInfo) -> &Path {
        self.source(tensor).name()
    }

    /// Every tensor, in the order of the files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).and_then(|&i| self.tensors.get(i))
    }

    /// The facts about the model: config.json first, then generation_config.json, then the weight
    /// files' own metadata.
    pub fn configs(&self) -> &[Config] {
        &self.configs
    }

    /// Pickled objects of classes that are not known. None was called.
    pub fn placeholders(&self) -> &[Placeholder] {
        &self.placeholders
    }

    /// The checksums of the files.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Groups of tensors that lie on the same bytes, such as a tied embedding and output projection.
    pub fn shared(&self) -> Vec<Vec<&TensorInfo>> {
        let mut spans: Vec<_> =
            self.tensors.iter().filter(|t| t.elements() > 0).map(|t| (span(t), t)).collect();
        spans.sort_by_key(|(span, _)| *span);
        let mut groups: Vec<Vec<&TensorInfo>> = Vec::new();
        let mut open: Option<(usize, u64, u64)> = None;
        for ((source, stream, start, end), tensor) in spans {
            match (&mut open, groups.last_mut()) {
                (Some((s, t, last)), Some(group)) if (*s, *t) == (source, stream) && start < *last => {
                    *last = end.max(*last);
                    group.push(tensor);
                }
                _ => {
                    open = Some((source, stream, end));
                    groups.push(vec![tensor]);
                }
            }
        }
        groups.retain(|group| group.len() > 1);
        groups
    }

    /// Files beside the weights that a tokenizer is made of.
    pub fn tokenizer(&self) -> &[Companion] {
        &self.companions
    }

    /// What the weight files hold besides tensors and facts, and is not read: a vocabulary, mel filters.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Other weight files in the folder, which were not opened.
    pub fn ignored(&self) -> &[PathBuf] {
        &self.ignored
    }

    /// Kept for checksums that are computed later.
    pub(crate) fn sources(&self) -> &[Arc<Source>] {
        &self.sources
    }

    pub(crate) fn lists(&self) -> &[StoredList] {
        &self.lists
    }

    /// The file in which a tensor lies.
    pub(crate) fn source(&self, tensor: &TensorInfo) -> &Source {
        // Set by `add`, never by a file.
        &self.sources[tensor.place.source]
    }

    /// The same, for whoever reads it later.
    pub(crate) fn shared_source(&self, tensor: &TensorInfo) -> Arc<Source> {
        self.sources[tensor.place.source].clone()
    }
}

/// File, deflate stream (0 where there is none), first byte and end.
fn span(tensor: &TensorInfo) -> (usize, u64, u64, u64) {
    let place = &tensor.place;
    match place.packing {
        Packing::Stored => (place.source, 0, place.range.start, place.range.end),
        // Distinct from a stored place: no stream begins at byte 0, where the zip's own header is.
        Packing::Deflated { skip, len } => (place.source, place.range.start, skip, skip.saturating_add(len)),
    }
}
