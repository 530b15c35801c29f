//! Values in quantised blocks, held as a file has them and widened where they are read.

use crate::dtype::DType;
use crate::quant;

/// The most values of a block of any type.
const LARGEST: usize = 256;

/// Quantised values in whole blocks, each of which can be widened alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    dtype: DType,
    bytes: Vec<u8>,
}

impl Blocks {
    /// Whether values of this type lie in such blocks: no scale is the whole tensor's, and no block is partly used.
    pub fn holds(dtype: DType) -> bool {
        match dtype {
            DType::Q4_0
            | DType::Q4_1
            | DType::Q5_0
            | DType::Q5_1
            | DType::Q8_0
            | DType::Q4K
            | DType::Q5K
            | DType::Q6K => true,
            DType::F64
            | DType::F32
            | DType::F16
            | DType::BF16
            | DType::F8E4M3
            | DType::F8E5M2
            | DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool
            | DType::AprQ8
            | DType::AprQ4
            | DType::Opaque { .. } => false,
        }
    }

    /// The blocks in some bytes; `None` where the type has no such blocks, or the bytes end within one.
    pub fn new(dtype: DType, bytes: Vec<u8>) -> Option<Self> {
        (Self::holds(dtype) && bytes.len().is_multiple_of(dtype.block().1)).then_some(Self { dtype, bytes })
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        let (values, bytes) = self.dtype.block();
        self.bytes.len() / bytes * values
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Values from one on, as many as `out` has; what is beyond the last value is left as it is. Equal, bit for bit, to those of
    /// [`Checkpoint::read_f32`](crate::Checkpoint::read_f32).
    pub fn widen(&self, from: usize, out: &mut [f32]) {
        let (values, bytes) = self.dtype.block();
        let blocks = &self.bytes[(from / values * bytes).min(self.bytes.len())..];
        let skip = from % values;
        match self.dtype {
            DType::Q4_0 => each(blocks, skip, quant::q4_0, out),
            DType::Q4_1 => each(blocks, skip, quant::q4_1, out),
            DType::Q5_0 => each(blocks, skip, quant::q5_0, out),
            DType::Q5_1 => each(blocks, skip, quant::q5_1, out),
            DType::Q8_0 => each(blocks, skip, quant::q8_0, out),
            DType::Q4K => each(blocks, skip, quant::q4_k, out),
            DType::Q5K => each(blocks, skip, quant::q5_k, out),
            DType::Q6K => each(blocks, skip, quant::q6_k, out),
            // `new` has refused it.
            _ => debug_assert!(Self::holds(self.dtype)),
        }
    }
}

/// Widens blocks one after another, of the first one what follows `skip` values.
fn each<const BYTES: usize, const VALUES: usize>(
    bytes: &[u8],
    skip: usize,
    widen: impl Fn(&[u8; BYTES]) -> [f32; VALUES],
    out: &mut [f32],
) {
    const { assert!(VALUES <= LARGEST) };
    let mut blocks = bytes.as_chunks().0.iter();
    let (head, rest) = out.split_at_mut(if skip > 0 { out.len().min(VALUES - skip) } else { 0 });
    if let (false, Some(block)) = (head.is_empty(), if skip > 0 { blocks.next() } else { None }) {
        head.copy_from_slice(&widen(block)[skip..][..head.len()]);
    }
    for (out, block) in rest.chunks_mut(VALUES).zip(blocks) {
        let values = widen(block);
        match <&mut [f32; VALUES]>::try_from(&mut *out) {
            Ok(whole) => *whole = values,
            Err(_) => out.copy_from_slice(&values[..out.len()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::values::Layout;

    const TYPES: [DType; 8] =
        [DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0, DType::Q4K, DType::Q5K, DType::Q6K];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any part of a tensor is, bit for bit, that part of the whole.
        #[test]
        fn a_part_is_that_part_of_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 4 * 210..5 * 210),
            from in 0usize..600,
            len in 0usize..600,
        ) {
            for dtype in TYPES {
                let size = dtype.block().1;
                let whole = &bytes[..bytes.len() / size * size];
                let blocks = Blocks::new(dtype, whole.to_vec()).unwrap();
                let mut all = Vec::new();
                let elements = blocks.len();
                Layout { dtype, elements, prefix: 0 }.widen(1.0, whole, &mut all);
                prop_assert_eq!(all.len(), elements);
                let (from, to) = (from.min(elements), (from + len).min(elements));
                let mut part = vec![0.5; to - from];
                blocks.widen(from, &mut part);
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&part), bits(&all[from..to]), "{} {}..{}", dtype, from, to);
            }
        }
    }

    #[test]
    fn what_is_no_whole_blocks_is_refused() {
        assert_eq!(Blocks::new(DType::Q8_0, vec![0; 33]), None);
        assert_eq!(Blocks::new(DType::F32, vec![0; 32]), None);
        assert_eq!(Blocks::new(DType::AprQ4, vec![0; 18]), None);
        assert_eq!(Blocks::new(DType::Q8_0, vec![0; 68]).map(|blocks| blocks.len()), Some(64));
    }
}
