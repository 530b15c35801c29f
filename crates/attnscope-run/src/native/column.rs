//! The columns of a panel, as a tile reads them: in f32, or pairs of bf16 that a shift and a mask widen in registers.
#![allow(unsafe_code)] // Vectors are read through pointers, which tiles have checked.

use std::marker::PhantomData;

use pulp::{Arch, Simd, WithSimd};

/// Vectors across a panel.
pub(super) const ACROSS: usize = 2;

/// How the columns of a panel are stored.
pub(super) trait Column: Copy + Sync {
    /// Cells that hold a vector on both halves of a panel.
    fn across<S: Simd>() -> usize;

    /// Both vectors.
    ///
    /// # Safety
    /// So many cells can be read.
    unsafe fn load<S: Simd>(simd: S, from: *const Self) -> [S::f32s; ACROSS];
}

impl Column for f32 {
    #[inline(always)]
    fn across<S: Simd>() -> usize {
        ACROSS * S::F32_LANES
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(_: S, from: *const f32) -> [S::f32s; ACROSS] {
        // SAFETY: the caller's.
        unsafe { [load::<S>(from, 0), load::<S>(from, S::F32_LANES)] }
    }
}

/// Two bf16: the lower bits are of the first half, the upper ones of the other.
impl Column for u32 {
    #[inline(always)]
    fn across<S: Simd>() -> usize {
        S::F32_LANES
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, from: *const u32) -> [S::f32s; ACROSS] {
        // SAFETY: the caller's; there are as many u32 as f32 in a vector.
        let pairs = unsafe { from.cast::<S::u32s>().read_unaligned() };
        let low = simd.wrapping_dyn_shl_u32s(pairs, simd.splat_u32s(16));
        let high = simd.and_u32s(pairs, simd.splat_u32s(0xffff_0000));
        [simd.transmute_f32s_u32s(low), simd.transmute_f32s_u32s(high)]
    }
}

/// Cells of a panel for each of its rows.
pub(super) fn across<C: Column>(arch: Arch) -> usize {
    arch.dispatch(Across::<C>(PhantomData))
}

struct Across<C>(PhantomData<C>);

impl<C: Column> WithSimd for Across<C> {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        C::across::<S>()
    }
}

/// A vector that begins so many elements after a place.
///
/// # Safety
/// It can be read there.
#[inline(always)]
pub(super) unsafe fn load<S: Simd>(from: *const f32, at: usize) -> S::f32s {
    // SAFETY: the caller's.
    unsafe { from.add(at).cast::<S::f32s>().read_unaligned() }
}
