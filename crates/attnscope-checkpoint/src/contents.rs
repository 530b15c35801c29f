//! What is in the tensors: bytes, values, statistics, checksums, and tensors on their way into another file.

use std::borrow::Cow;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::dtype::DType;
use crate::error::Error;
use crate::listing::CheckState;
use crate::read;
use crate::stats::{self, Stats};
use crate::tensor::TensorInfo;
use crate::values;
use crate::write::Entry;

impl Checkpoint {
    /// A tensor's bytes as they are stored, row-major; borrowed from the file where they lie that way.
    ///
    /// # Errors
    /// When a compressed entry is broken.
    pub fn raw<'c>(&'c self, tensor: &TensorInfo) -> Result<Cow<'c, [u8]>, Error> {
        values::raw(self.source(tensor), tensor)
    }

    /// A tensor's values in f32.
    ///
    /// # Errors
    /// When its type is one that is listed but not read, or a compressed entry is broken.
    pub fn read_f32(&self, tensor: &TensorInfo) -> Result<Vec<f32>, Error> {
        values::to_f32(self.source(tensor), tensor)
    }

    /// Statistics of every tensor, in the order of [`Checkpoint::tensors`], on all cores.
    pub fn stats(&self) -> Vec<Result<Stats, Error>> {
        let pairs: Vec<_> = self.tensors().iter().map(|t| (self.source(t), t)).collect();
        stats::of_all(&pairs)
    }

    /// Computes the checksums that opening left out because the file is large.
    ///
    /// # Errors
    /// When a sum is wrong.
    pub fn verify(&mut self) -> Result<(), Error> {
        let (sources, checks) = self.sources_and_checks();
        let mut left: Vec<_> = checks.iter_mut().filter(|c| c.state == CheckState::NotComputed).collect();
        if left.is_empty() {
            return Ok(());
        }
        for source in sources {
            read::apr::verify_footer(source).map_err(|kind| source.error(kind))?;
        }
        left.iter_mut().for_each(|check| check.state = CheckState::Verified);
        Ok(())
    }

    /// The weight files that are on disk.
    pub fn paths(&self) -> Vec<&Path> {
        self.files().map(|(path, _)| path).filter(|path| path.exists()).collect()
    }

    /// A tensor to be written as it is stored.
    pub fn entry<'c>(&'c self, tensor: &'c TensorInfo) -> Entry<'c> {
        Entry {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            bytes: Box::new(move |sink| values::for_each_raw(self.source(tensor), tensor, sink)),
        }
    }

    /// A tensor to be written in f32, or in i64 where `dtype` says so.
    pub fn entry_as<'c>(&'c self, tensor: &'c TensorInfo, dtype: DType) -> Entry<'c> {
        let provide = move |sink: &mut crate::Sink<'_>| {
            values::for_each_block(self.source(tensor), tensor, &mut |block| {
                let bytes: Vec<u8> = match dtype {
                    DType::I64 => block.iter().flat_map(|&x| (x as i64).to_le_bytes()).collect(),
                    _ => block.iter().flat_map(|x| x.to_le_bytes()).collect(),
                };
                sink(&bytes)
            })
        };
        Entry { name: tensor.name.clone(), dtype, shape: tensor.shape.clone(), bytes: Box::new(provide) }
    }
}
