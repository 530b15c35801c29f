//! Tensors that are in memory: of a model or a run in this process.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::checkpoint::Checkpoint;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::folder;
use crate::format::Format;
use crate::read::dims;
use crate::source::{SharedBytes, Source};
use crate::tensor::{Packing, Place, TensorInfo};

/// A tensor in memory, row-major and in little-endian bytes.
#[derive(Clone)]
pub struct HeldTensor {
    /// Its name.
    pub name: String,
    /// How its elements are stored.
    pub dtype: DType,
    /// Its shape, slowest dimension first.
    pub shape: Vec<usize>,
    /// Its bytes. Two names of one tensor share them.
    pub bytes: SharedBytes,
}

impl fmt::Debug for HeldTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} {:?}", self.name, self.dtype, self.shape)
    }
}

impl HeldTensor {
    /// Whether there are as many bytes as the shape takes.
    pub(crate) fn check(&self) -> Result<(), ErrorKind> {
        let elements = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let (need, found) = (elements.and_then(|n| self.dtype.bytes_for(n)), (*self.bytes).as_ref().len());
        if need == Some(found) {
            return Ok(());
        }
        let expected = format!("the bytes of {} {}", self.dtype, dims(&self.shape));
        Err(ErrorKind::invalid(format!("tensor {:?}", self.name), expected, format!("{found} bytes")))
    }
}

impl Checkpoint {
    /// Tensors of a model that is in memory, and the documents that would lie beside them in a folder, by their names there:
    /// `config.json`, `tokenizer.json`. The tensors are not copied.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use attnscope_checkpoint::{Checkpoint, DType, HeldTensor};
    ///
    /// let bytes = Arc::new(1.5f32.to_le_bytes());
    /// let tensor = HeldTensor { name: "bias".into(), dtype: DType::F32, shape: vec![1], bytes };
    /// let held = Checkpoint::held("a model", vec![tensor], vec![])?;
    /// assert_eq!(held.read_f32(&held.tensors()[0])?, [1.5]);
    /// # Ok::<(), attnscope_checkpoint::Error>(())
    /// ```
    ///
    /// # Errors
    /// When two tensors have one name, a tensor has not the bytes of its shape, or a document is none.
    pub fn held(
        name: impl Into<PathBuf>,
        tensors: Vec<HeldTensor>,
        documents: Vec<(String, Vec<u8>)>,
    ) -> Result<Self, Error> {
        let path = name.into();
        let mut listed = Vec::with_capacity(tensors.len());
        // Each piece once, by its address.
        let mut pieces: Vec<SharedBytes> = Vec::new();
        let mut places: HashMap<*const (), u64> = HashMap::new();
        let mut end = 0;
        for tensor in tensors {
            tensor.check().map_err(|kind| Error::new(&path, kind))?;
            let len = (*tensor.bytes).as_ref().len() as u64;
            let start = *places.entry(Arc::as_ptr(&tensor.bytes).cast()).or_insert_with(|| {
                let start = end;
                end += len;
                pieces.push(tensor.bytes.clone());
                start
            });
            let place =
                Place { source: 0, range: start..start + len, strides: None, packing: Packing::Stored };
            listed.push(TensorInfo { name: tensor.name, dtype: tensor.dtype, shape: tensor.shape, place });
        }
        let source = Source::pieces(&path, pieces);
        let mut held = Self::of_tensors(&path, Format::Memory, source, listed)?;
        for (document, bytes) in documents {
            let file = path.join(&document);
            if folder::CONFIGS.contains(&document.as_str()) {
                held.add_config(folder::config(&file, &document, &bytes)?);
            } else if folder::is_companion(&document) {
                held.add_companion(file, bytes);
            }
        }
        Ok(held)
    }
}
