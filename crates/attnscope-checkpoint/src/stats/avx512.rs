//! The pass over a block of f32, f16 or bf16 that is all finite, as nearly every block of a checkpoint is.
//!
//! Written by hand, because the compiler's vectors take twice as long as reading the file: it does not find the instruction
//! that widens sixteen halves, and it splits a step that mixes f32 and f64 into unequal parts.
//!
//! Unsafe for two reasons: a function compiled for AVX-512 may be called only where the machine has it, and the
//! loads take pointers. The first is asked in [`run`], the second are to arrays of the size that is loaded.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::kernel::{self, Partial};
use crate::dtype::DType;
use crate::values::{bf16_to_f32, f16_to_f32};

/// Statistics of a block, or `None` where the machine, the type, an infinity or a NaN needs the general code.
pub(super) fn run(dtype: DType, bytes: &[u8]) -> Option<Partial> {
    if !(is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq")) {
        return None;
    }
    // SAFETY: exactly these features have just been detected.
    match dtype {
        DType::F32 => unsafe { f32s(bytes) },
        DType::F16 => unsafe { f16s(bytes) },
        DType::BF16 => unsafe { bf16s(bytes) },
        _ => None,
    }
}

#[target_feature(enable = "avx512f,avx512dq")]
fn f32s(bytes: &[u8]) -> Option<Partial> {
    // SAFETY: a row is 64 bytes.
    sums(bytes, f32::from_le_bytes, |row: &[u8; 64]| unsafe { _mm512_loadu_ps(row.as_ptr().cast()) })
}

#[target_feature(enable = "avx512f,avx512dq")]
fn f16s(bytes: &[u8]) -> Option<Partial> {
    // SAFETY: a row is 32 bytes.
    let load = |row: &[u8; 32]| unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
    sums(bytes, |b| f16_to_f32(u16::from_le_bytes(b)), |row| _mm512_cvtph_ps(load(row)))
}

#[target_feature(enable = "avx512f,avx512dq")]
fn bf16s(bytes: &[u8]) -> Option<Partial> {
    // SAFETY: a row is 32 bytes.
    let load = |row: &[u8; 32]| unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
    sums(
        bytes,
        |b| bf16_to_f32(u16::from_le_bytes(b)),
        |row| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load(row)))),
    )
}

/// Rows of sixteen values of `SIZE` bytes, and the rest one by one.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn sums<const ROW: usize, const SIZE: usize>(
    bytes: &[u8],
    value: impl Fn([u8; SIZE]) -> f32 + Copy,
    widen: impl Fn(&[u8; ROW]) -> __m512,
) -> Option<Partial> {
    let (rows, rest) = bytes.as_chunks::<ROW>();
    let first = value(*bytes.first_chunk()?);
    let shift = _mm512_set1_pd(first.into());
    let (mut min, mut max) = (_mm512_set1_ps(first), _mm512_set1_ps(first));
    let mut sum = [_mm512_setzero_pd(); 2];
    let mut squares = [_mm512_setzero_pd(); 2];
    let mut zeros = _mm512_setzero_si512();
    let mut unusual = 0;
    for row in rows {
        let x = widen(row);
        unusual |= _mm512_fpclass_ps_mask::<NOT_FINITE>(x);
        let is_zero = _mm512_cmpeq_ps_mask(x, _mm512_setzero_ps());
        zeros = _mm512_mask_add_epi32(zeros, is_zero, zeros, _mm512_set1_epi32(1));
        min = _mm512_min_ps(min, x);
        max = _mm512_max_ps(max, x);
        let halves = [_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x)];
        for i in 0..2 {
            let d = _mm512_sub_pd(_mm512_cvtps_pd(halves[i]), shift);
            sum[i] = _mm512_add_pd(sum[i], d);
            squares[i] = _mm512_fmadd_pd(d, d, squares[i]);
        }
    }
    if unusual != 0 || !first.is_finite() {
        return None;
    }
    let count = (rows.len() * ROW / SIZE) as u64;
    let sum = _mm512_reduce_add_pd(_mm512_add_pd(sum[0], sum[1]));
    let squares = _mm512_reduce_add_pd(_mm512_add_pd(squares[0], squares[1]));
    let mut whole = Partial::default();
    if count > 0 {
        whole = Partial {
            zeros: u64::from(_mm512_reduce_add_epi32(zeros).cast_unsigned()),
            min: _mm512_reduce_min_ps(min).into(),
            max: _mm512_reduce_max_ps(max).into(),
            ..Partial::of_sums(count, first.into(), sum, squares)
        };
    }
    whole.merge(kernel::run(rest.as_chunks().0, value));
    Some(whole)
}

/// Both kinds of NaN, both infinities.
const NOT_FINITE: i32 = 0x01 | 0x80 | 0x08 | 0x10;
