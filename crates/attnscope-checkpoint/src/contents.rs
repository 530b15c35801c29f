//! What is in the tensors: bytes, values, statistics, checksums, and tensors on their way into another file.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::checkpoint::Checkpoint;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::listing::{Check, CheckState};
use crate::pread;
use crate::read;
use crate::source::Source;
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

    /// A tensor's values in f64: those of a type that f32 does not hold are not rounded.
    ///
    /// # Errors
    /// As [`Checkpoint::read_f32`].
    pub fn read_f64(&self, tensor: &TensorInfo) -> Result<Vec<f64>, Error> {
        values::to_f64(self.source(tensor), tensor)
    }

    /// The SHA-256 of every weight file, as `sha256sum` prints it.
    ///
    /// # Errors
    /// When a file cannot be read, or changes meanwhile.
    pub fn sha256(&self) -> Result<Vec<String>, Error> {
        self.sources().iter().map(|source| sha256(source).map_err(|kind| source.error(kind))).collect()
    }

    /// Statistics of a tensor, on all cores.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn stats_of(&self, tensor: &TensorInfo) -> Result<Stats, Error> {
        stats::of(self.source(tensor), tensor)
    }

    /// Statistics of every tensor, in the order of [`Checkpoint::tensors`], on all cores.
    pub fn stats(&self) -> Vec<Result<Stats, Error>> {
        let pairs: Vec<_> = self.tensors().iter().map(|t| (self.source(t), t)).collect();
        stats::of_all(&pairs)
    }

    /// Computes the checksums that opening left out because the file is large, and returns the state of all of them.
    ///
    /// # Errors
    /// When a sum is wrong.
    pub fn verify(&self) -> Result<Vec<Check>, Error> {
        let mut checks = self.checks().to_vec();
        let mut left: Vec<_> = checks.iter_mut().filter(|c| c.state == CheckState::NotComputed).collect();
        if left.is_empty() {
            return Ok(checks);
        }
        for source in self.sources() {
            read::apr::verify_footer(source).map_err(|kind| source.error(kind))?;
        }
        left.iter_mut().for_each(|check| check.state = CheckState::Verified);
        Ok(checks)
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

    /// A tensor to be written in f32; integers of up to 32 bits in i64, exactly.
    pub fn widened<'c>(&'c self, tensor: &'c TensorInfo) -> Entry<'c> {
        let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
        match whole_number(tensor.dtype) {
            Some(widen) => {
                let size = tensor.dtype.block().1;
                let provide = move |sink: &mut crate::Sink<'_>| {
                    values::for_each_raw(self.source(tensor), tensor, &mut |bytes| {
                        let wide: Vec<u8> = bytes.chunks(size).flat_map(|b| widen(b).to_le_bytes()).collect();
                        sink(&wide)
                    })
                };
                Entry { name, dtype: DType::I64, shape, bytes: Box::new(provide) }
            }
            None => {
                let provide = move |sink: &mut crate::Sink<'_>| {
                    values::for_each_block(self.source(tensor), tensor, &mut |block| {
                        let bytes: Vec<u8> = block.iter().flat_map(|x| x.to_le_bytes()).collect();
                        sink(&bytes)
                    })
                };
                Entry { name, dtype: DType::F32, shape, bytes: Box::new(provide) }
            }
        }
    }
}

fn sha256(source: &Source) -> Result<String, ErrorKind> {
    let mut sum = Sha256::new();
    for block in pread::blocks(0..source.len()) {
        pread::with(source, block, |bytes| sum.update(bytes))?;
    }
    Ok(format!("{:x}", sum.finalize()))
}

/// How the bytes of an integer type are read, if i64 holds every value of it.
fn whole_number(dtype: DType) -> Option<fn(&[u8]) -> i64> {
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        let mut array = [0; N];
        array.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        array
    }
    Some(match dtype {
        DType::U32 => |b| u32::from_le_bytes(array(b)).into(),
        DType::I32 => |b| i32::from_le_bytes(array(b)).into(),
        DType::U16 => |b| u16::from_le_bytes(array(b)).into(),
        DType::I16 => |b| i16::from_le_bytes(array(b)).into(),
        DType::U8 | DType::Bool => |b| u8::from_le_bytes(array(b)).into(),
        DType::I8 => |b| i8::from_le_bytes(array(b)).into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_widen_exactly() {
        let cases: &[(DType, &[u8], i64)] = &[
            (DType::U32, &[0xff; 4], 4_294_967_295),
            (DType::U32, &16_777_217u32.to_le_bytes(), 16_777_217),
            (DType::I32, &i32::MIN.to_le_bytes(), -2_147_483_648),
            (DType::U16, &[0xff; 2], 65_535),
            (DType::I16, &i16::MIN.to_le_bytes(), -32_768),
            (DType::U8, &[0xff], 255),
            (DType::I8, &[0x80], -128),
            (DType::Bool, &[1], 1),
        ];
        for (dtype, bytes, expected) in cases {
            assert_eq!(whole_number(*dtype).map(|widen| widen(bytes)), Some(*expected), "{dtype}");
        }
    }
}
