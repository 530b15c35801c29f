//! The one type that the rest of the program sees: a checkpoint that is open.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::folder::{self, Index, parse_object};
use crate::format::Format;
use crate::listing::{Check, CheckState, Config, Listing, Placeholder};
use crate::read;
use crate::source::Source;
use crate::stats::{self, Stats};
use crate::tensor::{Packing, TensorInfo};
use crate::values;
use crate::write::Entry;

/// An open checkpoint: its tensors are listed, none of their values has been read.
///
/// ```no_run
/// use attnscope_checkpoint::Checkpoint;
///
/// let checkpoint = Checkpoint::open("model.safetensors".as_ref())?;
/// for tensor in checkpoint.tensors() {
///     println!("{} {} {:?}", tensor.name, tensor.dtype, tensor.shape);
/// }
/// # Ok::<(), attnscope_checkpoint::Error>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    format: Format,
    sources: Vec<Source>,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    configs: Vec<Config>,
    placeholders: Vec<Placeholder>,
    checks: Vec<Check>,
    tokenizer: Vec<Companion>,
    ignored: Vec<PathBuf>,
}

/// A file that belongs to a checkpoint and is not weights: a part of its tokenizer.
#[derive(Debug, Clone)]
pub enum Companion {
    /// On disk.
    File(PathBuf),
    /// Embedded: name and contents.
    Memory(String, Cow<'static, [u8]>),
}

impl Companion {
    /// Its file name.
    pub fn name(&self) -> &str {
        match self {
            Self::File(path) => path.file_name().and_then(|n| n.to_str()).unwrap_or_default(),
            Self::Memory(name, _) => name,
        }
    }
}

impl Checkpoint {
    /// Opens a file of any format, a sharded checkpoint's index, or a folder.
    ///
    /// # Errors
    /// When nothing is there, the format is not known, or the file does not hold what it promises.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let found = folder::find(path)?;
        let sources = found.weights.iter().map(|file| Source::open(file)).collect::<Result<Vec<_>, _>>()?;
        let mut checkpoint = Self::read(path.to_owned(), sources, found.index.as_ref())?;
        let own = std::mem::take(&mut checkpoint.configs);
        checkpoint.configs = found.configs.into_iter().chain(own).collect();
        checkpoint.tokenizer = found.tokenizer.into_iter().map(Companion::File).collect();
        checkpoint.ignored = found.ignored;
        Ok(checkpoint)
    }

    /// Opens files that are already in memory: the first is the weights, `config.json` may follow.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_memory(name: &str, files: Vec<(&'static str, Cow<'static, [u8]>)>) -> Result<Self, Error> {
        let mut files = files.into_iter();
        let (_, weights) = files.next().unwrap_or_default();
        let mut checkpoint = Self::read(name.into(), vec![Source::memory(name, weights)], None)?;
        let mut configs = Vec::new();
        for (file, bytes) in files {
            if file == "config.json" || file == "generation_config.json" {
                let facts = parse_object(&bytes).map_err(|kind| Error::new(file, kind))?;
                configs.push(Config { source: file.into(), facts });
            } else {
                checkpoint.tokenizer.push(Companion::Memory(file.into(), bytes));
            }
        }
        configs.append(&mut checkpoint.configs);
        checkpoint.configs = configs;
        Ok(checkpoint)
    }

    fn read(path: PathBuf, sources: Vec<Source>, index: Option<&Index>) -> Result<Self, Error> {
        let mut all = Listing::default();
        let mut format = None;
        let mut by_name: HashMap<String, usize> = HashMap::new();
        for (i, source) in sources.iter().enumerate() {
            let (this, listing) = read::read(source).map_err(|kind| source.error(kind))?;
            format.get_or_insert(this);
            for mut tensor in listing.tensors {
                tensor.place.source = i;
                if by_name.insert(tensor.name.clone(), all.tensors.len()).is_some() {
                    return Err(source.error(ErrorKind::Duplicate { name: tensor.name }));
                }
                all.tensors.push(tensor);
            }
            all.configs.extend(listing.configs);
            all.placeholders.extend(listing.placeholders);
            all.checks.extend(listing.checks);
        }
        if let Some(index) = index {
            check_index(index, &sources, &all.tensors, &by_name)?;
        }
        let Listing { tensors, configs, placeholders, checks } = all;
        Ok(Self {
            path,
            format: format.unwrap_or(Format::Safetensors),
            sources,
            tensors,
            by_name,
            configs,
            placeholders,
            checks,
            tokenizer: Vec::new(),
            ignored: Vec::new(),
        })
    }

    /// What was opened, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format of the weights.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The weight files: name and size.
    pub fn files(&self) -> impl Iterator<Item = (String, u64)> {
        self.sources.iter().map(|s| (s.name().display().to_string(), s.bytes().len() as u64))
    }

    /// The weight files that are on disk.
    pub fn paths(&self) -> Vec<&Path> {
        self.sources.iter().filter(|s| s.file().is_some()).map(Source::name).collect()
    }

    /// Every tensor, in the files' order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).and_then(|&i| self.tensors.get(i))
    }

    /// What is said beside the tensors: config.json first, then generation_config.json, then the file itself.
    pub fn configs(&self) -> &[Config] {
        &self.configs
    }

    /// Pickled objects that were not built and never called.
    pub fn placeholders(&self) -> &[Placeholder] {
        &self.placeholders
    }

    /// The file's checksums and how they stand.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The parts of a tokenizer that stand beside the weights.
    pub fn tokenizer(&self) -> &[Companion] {
        &self.tokenizer
    }

    /// Other weight files in the folder, which were not opened.
    pub fn ignored(&self) -> &[PathBuf] {
        &self.ignored
    }

    /// Tensors that share bytes, in groups of two or more.
    pub fn shared(&self) -> Vec<Vec<&TensorInfo>> {
        let mut order: Vec<&TensorInfo> = self.tensors.iter().filter(|t| t.bytes() > 0).collect();
        let span = |t: &TensorInfo| match t.place.packing {
            Packing::Stored => (t.place.range.start, t.place.range.end),
            // Inside a deflated entry, places are counted from the entry's first unpacked byte.
            Packing::Deflated { skip, len } => (t.place.range.start + skip, t.place.range.start + skip + len),
        };
        let key =
            |t: &TensorInfo| (t.place.source, matches!(t.place.packing, Packing::Deflated { .. }), span(t));
        order.sort_by_key(|t| key(t));
        let mut groups: Vec<(usize, u64, Vec<&TensorInfo>)> = Vec::new();
        for tensor in order {
            let (start, end) = span(tensor);
            match groups.last_mut() {
                Some((source, reach, group)) if *source == tensor.place.source && start < *reach => {
                    *reach = end.max(*reach);
                    group.push(tensor);
                }
                _ => groups.push((tensor.place.source, end, vec![tensor])),
            }
        }
        groups.into_iter().map(|(_, _, group)| group).filter(|group| group.len() > 1).collect()
    }

    fn source(&self, tensor: &TensorInfo) -> Result<&Source, Error> {
        self.sources.get(tensor.place.source).ok_or_else(|| {
            let kind = ErrorKind::invalid(
                format!("tensor {:?}", tensor.name),
                "a tensor of this checkpoint",
                "another",
            );
            Error::new(&self.path, kind)
        })
    }

    /// A tensor's bytes as they are stored, row-major; borrowed from the file where they lie that way.
    ///
    /// # Errors
    /// When a compressed entry is broken.
    pub fn raw(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>, Error> {
        values::raw(self.source(tensor)?, tensor)
    }

    /// A tensor's values in f32.
    ///
    /// # Errors
    /// When its type is one that is listed but not read, or a compressed entry is broken.
    pub fn read_f32(&self, tensor: &TensorInfo) -> Result<Vec<f32>, Error> {
        values::to_f32(self.source(tensor)?, tensor)
    }

    /// Statistics of every tensor, in the order of [`Checkpoint::tensors`], on all cores.
    pub fn stats(&self) -> Vec<Result<Stats, Error>> {
        let mut pairs = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            match self.source(tensor) {
                Ok(source) => pairs.push((source, tensor)),
                Err(e) => return vec![Err(e)],
            }
        }
        stats::of_all(&pairs)
    }

    /// Computes the checksums that opening left out because the file is large.
    ///
    /// # Errors
    /// When a sum is wrong.
    pub fn verify(&mut self) -> Result<(), Error> {
        if self.format == Format::Apr && self.checks.iter().any(|c| c.state == CheckState::NotComputed) {
            for source in &self.sources {
                read::apr::verify_footer(source).map_err(|kind| source.error(kind))?;
            }
            for check in &mut self.checks {
                if check.state == CheckState::NotComputed {
                    check.state = CheckState::Verified;
                }
            }
        }
        Ok(())
    }

    /// A tensor to be written as it is stored.
    pub fn entry<'c>(&'c self, tensor: &'c TensorInfo) -> Entry<'c> {
        Entry {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            bytes: Box::new(move |sink| values::for_each_raw(self.source(tensor)?, tensor, sink)),
        }
    }

    /// A tensor to be written in f32, or in i64 where its elements are whole numbers.
    pub fn entry_as<'c>(&'c self, tensor: &'c TensorInfo, dtype: DType) -> Entry<'c> {
        Entry {
            name: tensor.name.clone(),
            dtype,
            shape: tensor.shape.clone(),
            bytes: Box::new(move |sink| {
                values::for_each_block(self.source(tensor)?, tensor, &mut |block| {
                    let bytes: Vec<u8> = match dtype {
                        DType::I64 => block.iter().flat_map(|&x| (x as i64).to_le_bytes()).collect(),
                        _ => block.iter().flat_map(|x| x.to_le_bytes()).collect(),
                    };
                    sink(&bytes)
                })
            }),
        }
    }
}

/// Every tensor of an index is in the shard that the index names.
fn check_index(
    index: &Index,
    sources: &[Source],
    tensors: &[TensorInfo],
    by_name: &HashMap<String, usize>,
) -> Result<(), Error> {
    for (name, shard) in &index.shards {
        let at = by_name.get(name).and_then(|&i| tensors.get(i)).and_then(|t| sources.get(t.place.source));
        if at.is_none_or(|source| source.name() != shard) {
            let place = format!("weight_map: {:?}", read::clip(name));
            let expected = format!("a tensor in {}", shard.file_name().unwrap_or_default().to_string_lossy());
            let found = at.map_or("none".to_owned(), |s| format!("it is in {}", s.name().display()));
            return Err(Error::new(&index.file, ErrorKind::invalid(place, expected, found)));
        }
    }
    Ok(())
}
