//! How numbers are stored.

use std::fmt;

/// The type of a tensor's elements as they lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // The variants are the names of the field.
#[non_exhaustive]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    F8E4M3,
    F8E5M2,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
    /// One f32 scale per tensor, then one i8 per element.
    AprQ8,
    /// One f16 scale for each 32 elements, then 16 bytes of nibbles.
    AprQ4,
    /// Known by name and size, so that it can be listed; its values are not read.
    Opaque {
        name: &'static str,
        block: usize,
        block_bytes: usize,
    },
}

impl DType {
    /// Elements in a block and bytes in a block; (1, n) for plain types.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F64 | Self::I64 | Self::U64 => (1, 8),
            Self::F32 | Self::I32 | Self::U32 => (1, 4),
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => (1, 2),
            Self::F8E4M3 | Self::F8E5M2 | Self::I8 | Self::U8 | Self::Bool => (1, 1),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
            Self::AprQ8 => (1, 1),
            Self::AprQ4 => (32, 18),
            Self::Opaque { block, block_bytes, .. } => (block, block_bytes),
        }
    }

    /// Bytes that `elements` take, or `None` on overflow or when they do not fill whole blocks.
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        let (block, bytes) = self.block();
        match self {
            Self::AprQ8 => elements.checked_add(4),
            // The last block of an .apr tensor may be partly used.
            Self::AprQ4 => elements.div_ceil(block).checked_mul(bytes),
            _ if !elements.is_multiple_of(block) => None,
            _ => (elements / block).checked_mul(bytes),
        }
    }

    /// True where every element is stored by itself, without a shared scale.
    pub fn is_plain(self) -> bool {
        self.block().0 == 1 && self != Self::AprQ8
    }

    /// The plain type of that name, as other programs have it in memory.
    pub fn plain(name: &str) -> Option<Self> {
        const PLAIN: [DType; 15] = [
            DType::F64,
            DType::F32,
            DType::F16,
            DType::BF16,
            DType::F8E4M3,
            DType::F8E5M2,
            DType::I64,
            DType::I32,
            DType::I16,
            DType::I8,
            DType::U64,
            DType::U32,
            DType::U16,
            DType::U8,
            DType::Bool,
        ];
        PLAIN.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The name shown to the user and used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F8E4M3 => "f8_e4m3",
            Self::F8E5M2 => "f8_e5m2",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U64 => "u64",
            Self::U32 => "u32",
            Self::U16 => "u16",
            Self::U8 => "u8",
            Self::Bool => "bool",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
            Self::AprQ8 => "apr_q8",
            Self::AprQ4 => "apr_q4",
            Self::Opaque { name, .. } => name,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
