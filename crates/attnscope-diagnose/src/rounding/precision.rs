//! The types that a program computes in.

/// Units of rounding: half the distance of neighbouring numbers near 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// Of the operands of a product.
    pub operand: f64,
    /// Of sums, and of values inside a kernel.
    pub sum: f64,
    /// Of results.
    pub result: f64,
    /// Half the distance of the numbers next to 0, where a type has no digits left; also what may be flushed to 0.
    pub smallest: f64,
}

const U64: f64 = f64::EPSILON / 2.0;
const U32: f64 = f32::EPSILON as f64 / 2.0;
const U16: f64 = 1.0 / 2048.0;
const UB16: f64 = 1.0 / 256.0;
/// What is smaller may be flushed to 0 by a kernel in f32.
const FLUSHED: f64 = 1.2e-38;

impl Precision {
    /// f64 throughout, as the reference executor.
    pub const F64: Self = Self { operand: U64, sum: U64, result: U64, smallest: f64::MIN_POSITIVE };
    /// f32 throughout.
    pub const F32: Self = Self { operand: U32, sum: U32, result: U32, smallest: FLUSHED };
    /// f32, with 11 digits of what enters a product: NVIDIA's TensorFloat-32.
    pub const TF32: Self = Self { operand: U16, ..Self::F32 };
    /// bfloat16 with sums in f32.
    pub const BF16: Self = Self { operand: UB16, result: UB16, ..Self::F32 };
    /// IEEE half precision with sums in f32. Numbers below 2⁻¹⁴ have fewer digits, 2⁻²⁴ apart.
    pub const F16: Self = Self { operand: U16, result: U16, smallest: 0.5 / 16_777_216.0, ..Self::F32 };

    /// The coarser of two in every respect.
    pub fn coarser(self, other: Self) -> Self {
        Self {
            operand: self.operand.max(other.operand),
            sum: self.sum.max(other.sum),
            result: self.result.max(other.result),
            smallest: self.smallest.max(other.smallest),
        }
    }
}
