//! One tensor of an opened file, which is read when it is needed, also once the checkpoint is gone.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::blocks::Blocks;
use crate::checkpoint::Checkpoint;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::memory::room;
use crate::source::Source;
use crate::tensor::{Packing, TensorInfo};
use crate::values::{self, Layout};

/// The values of a tensor: in their own type where that is a half or quantised in blocks, else in f32.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredValues {
    /// In f32: exact for types of at most 24 significant bits, rounded to nearest for wider ones.
    F32(Vec<f32>),
    /// The bits of f16.
    F16(Vec<u16>),
    /// The bits of bf16.
    Bf16(Vec<u16>),
    /// As they lie in the file.
    Blocks(Blocks),
}

/// A tensor of an opened file.
#[derive(Debug, Clone)]
pub struct TensorReader {
    source: Arc<Source>,
    info: TensorInfo,
}

impl Checkpoint {
    /// What reads a tensor later. The file stays open as long as it exists.
    pub fn reader(&self, tensor: &TensorInfo) -> TensorReader {
        TensorReader { source: self.shared_source(tensor), info: tensor.clone() }
    }
}

impl TensorReader {
    /// What it reads.
    pub fn info(&self) -> &TensorInfo {
        &self.info
    }

    /// The file that it reads.
    pub fn file(&self) -> &Path {
        self.source.name()
    }

    /// The order in which tensors lie in their files: reading them so reads on.
    pub fn order(&self) -> (usize, u64) {
        (self.info.place.source, self.info.place.range.start)
    }

    /// Bytes of what [`TensorReader::read`] gives.
    pub fn bytes(&self) -> u64 {
        match self.info.dtype {
            DType::F16 | DType::BF16 => self.info.bytes(),
            dtype if Blocks::holds(dtype) => self.info.bytes(),
            _ => (self.info.elements() as u64).saturating_mul(4),
        }
    }

    /// All of its values.
    ///
    /// # Errors
    /// As [`Checkpoint::read_f32`].
    pub fn read(&self) -> Result<StoredValues, Error> {
        let (source, info) = (&*self.source, &self.info);
        Ok(match info.dtype {
            DType::F16 => StoredValues::F16(self.bits()?),
            DType::BF16 => StoredValues::Bf16(self.bits()?),
            dtype if Blocks::holds(dtype) => {
                match Blocks::new(dtype, values::raw(source, info)?.into_owned()) {
                    Some(blocks) => StoredValues::Blocks(blocks),
                    None => StoredValues::F32(values::to_f32(source, info)?),
                }
            }
            _ => StoredValues::F32(values::to_f32(source, info)?),
        })
    }

    /// Whether a part of it can be read without the rest.
    pub fn has_parts(&self) -> bool {
        let place = &self.info.place;
        let layout = Layout::of(&self.info);
        place.strides.is_none()
            && place.packing == Packing::Stored
            && layout.is_ok_and(|layout| layout.prefix == 0)
    }

    /// Some of its values in f32, counted in row-major order. Where no part can be read alone, all of it is.
    ///
    /// # Errors
    /// As [`Checkpoint::read_f32`], and when the tensor has fewer values.
    pub fn read_part(&self, part: Range<usize>) -> Result<Vec<f32>, Error> {
        let have = self.info.elements();
        if part.start > part.end || part.end > have {
            let place = format!("tensor {:?}", self.info.name);
            let kind = ErrorKind::invalid(place, format!("{} elements", part.end), have);
            return Err(self.source.error(kind));
        }
        if !self.has_parts() {
            let mut all = values::to_f32(&self.source, &self.info)?;
            all.truncate(part.end);
            all.drain(..part.start);
            return Ok(all);
        }
        let layout = Layout::of(&self.info).map_err(|kind| self.source.error(kind))?;
        let (values, bytes) = self.info.dtype.block();
        let (first, last) = (part.start / values, part.end.div_ceil(values));
        let start = self.info.place.range.start;
        let range = start + (first * bytes) as u64..start + (last * bytes) as u64;
        let read = self.source.read(range, format_args!("tensor {:?}", self.info.name));
        let read = read.map_err(|kind| self.source.error(kind))?;
        let mut out = Vec::with_capacity((last - first) * values);
        layout.widen(1.0, &read, &mut out);
        out.truncate(part.end - first * values);
        out.drain(..part.start - first * values);
        Ok(out)
    }

    /// The bits of its elements, of 16 each.
    fn bits(&self) -> Result<Vec<u16>, Error> {
        let (source, info) = (&*self.source, &self.info);
        let place = format!("tensor {:?}", info.name);
        let mut bits: Vec<u16> = room(info.elements() as u64, place).map_err(|kind| source.error(kind))?;
        if info.place.strides.is_none() && info.place.packing == Packing::Stored {
            bits.resize(info.elements(), 0);
            let bytes = bytemuck::cast_slice_mut(&mut bits);
            source.read_into(info.place.range.start, bytes).map_err(|kind| source.error(kind))?;
            bits.iter_mut().for_each(|bits| *bits = u16::from_le(*bits));
            return Ok(bits);
        }
        values::for_each_raw(source, info, &mut |bytes| {
            bits.extend(bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b)));
            Ok(())
        })?;
        Ok(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::HeldTensor;

    fn held(dtype: DType, shape: &[usize], bytes: Vec<u8>) -> TensorReader {
        let tensor = HeldTensor { name: "t".into(), dtype, shape: shape.to_vec(), bytes: Arc::new(bytes) };
        let held = Checkpoint::held("a model", vec![tensor], vec![]).unwrap();
        held.reader(&held.tensors()[0])
    }

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i * 37 % 251) as u8).collect()
    }

    #[test]
    fn every_type_is_read_as_it_is_held_and_in_parts() {
        let cases = [
            (DType::F32, [4, 8], 128),
            (DType::F64, [4, 8], 256),
            (DType::F16, [4, 8], 64),
            (DType::BF16, [4, 8], 64),
            (DType::I8, [4, 8], 32),
            (DType::Q8_0, [2, 64], 2 * 68),
            (DType::Q4_0, [2, 64], 2 * 36),
            (DType::Q6K, [2, 256], 2 * 210),
            (DType::AprQ8, [4, 8], 36),
        ];
        for (dtype, shape, size) in cases {
            let reader = held(dtype, &shape, bytes(size));
            let all = values::to_f32(&reader.source, &reader.info).unwrap();
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let read: Vec<f32> = match reader.read().unwrap() {
                StoredValues::F32(values) => values,
                StoredValues::F16(bits) => bits.into_iter().map(values::f16_to_f32).collect(),
                StoredValues::Bf16(bits) => bits.into_iter().map(values::bf16_to_f32).collect(),
                StoredValues::Blocks(blocks) => {
                    let mut values = vec![0.0; blocks.len()];
                    blocks.widen(0, &mut values);
                    values
                }
            };
            assert_eq!(bits(&read), bits(&all), "{dtype}");
            for part in [0..0, 0..all.len(), 1..2, 5..23, all.len() - 3..all.len()] {
                let read = reader.read_part(part.clone()).unwrap();
                assert_eq!(bits(&read), bits(&all[part.clone()]), "{dtype} {part:?}");
            }
            let error = reader.read_part(0..all.len() + 1).unwrap_err().to_string();
            assert!(error.contains("\"t\"") && error.contains("elements"), "{error}");
        }
    }
}
