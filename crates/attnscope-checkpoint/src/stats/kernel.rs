//! One pass over a block of values.
//!
//! Plain loops over lanes, compiled three times: for AVX-512, for AVX2, and for any machine. Values are widened
//! to f32 where that is exact, else to f64; extremes and counts are taken in that type, sums in f64. Sums are of
//! distances from a value of the block itself, so that an offset shared by all values (a running mean of 1e4, a
//! table of positions) does not hide their spread in rounding errors.

use std::ops::AddAssign;

/// Values that are widened at once: they stay in the nearest cache.
const WIDENED: usize = 2048;
/// Lanes: enough that an addition need not wait for the one before it, few enough to stay in registers.
const LANES: usize = 32;

/// A vector that straddles two cache lines takes two loads.
#[repr(align(64))]
struct Widened<W>([W; WIDENED]);

/// Statistics of some values, which can be merged with those of others.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Partial {
    pub(super) finite: u64,
    pub(super) zeros: u64,
    pub(super) nan: u64,
    pub(super) inf: u64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
    /// Sum of squared distances from the mean.
    pub(super) m2: f64,
}

impl Partial {
    /// The mean and spread of `finite` values from the sums of their distances from `shift` and of the squares.
    pub(super) fn of_sums(finite: u64, shift: f64, sum: f64, squares: f64) -> Self {
        let mean = sum / finite as f64;
        let m2 = (squares - sum * mean).max(0.0);
        Self { finite, mean: shift + mean, m2, ..Self::default() }
    }

    /// Chan, Golub and LeVeque's rule for two sets of values.
    pub(super) fn merge(&mut self, other: Self) {
        self.zeros += other.zeros;
        self.nan += other.nan;
        self.inf += other.inf;
        if other.finite == 0 {
            return;
        }
        if self.finite == 0 {
            *self = Self { zeros: self.zeros, nan: self.nan, inf: self.inf, ..other };
            return;
        }
        let (a, b) = (self.finite as f64, other.finite as f64);
        let apart = other.mean - self.mean;
        self.finite += other.finite;
        self.mean += apart * (b / (a + b));
        self.m2 += other.m2 + apart * apart * (a * b / (a + b));
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// A type in which values are compared, f32 or f64.
pub(super) trait Wide: Copy + PartialOrd + Into<f64> {
    /// As wide as the value, so that a vector of comparisons is a vector of counts.
    type Bits: Copy + Default + Ord + AddAssign + From<bool> + Into<u64>;
    const ZERO: Self;
    const INFINITY: Self;
    /// Grows with the magnitude; NaN is above infinity.
    fn magnitude(self) -> Self::Bits;
}

impl Wide for f32 {
    type Bits = u32;
    const ZERO: Self = 0.0;
    const INFINITY: Self = f32::INFINITY;
    #[inline(always)]
    fn magnitude(self) -> u32 {
        self.abs().to_bits()
    }
}

impl Wide for f64 {
    type Bits = u64;
    const ZERO: Self = 0.0;
    const INFINITY: Self = f64::INFINITY;
    #[inline(always)]
    fn magnitude(self) -> u64 {
        self.abs().to_bits()
    }
}

#[inline(always)]
fn is_finite<W: Wide>(x: W) -> bool {
    x.magnitude() < W::INFINITY.magnitude()
}

/// Statistics of a block.
pub(super) fn run<T: Copy, W: Wide>(block: &[T], value: impl Fn(T) -> W + Copy) -> Partial {
    match block.iter().map(|&x| value(x)).find(|&x| is_finite(x)) {
        Some(shift) => dispatch(block, shift, value),
        None => {
            let nan = block.iter().filter(|&&x| value(x).into().is_nan()).count() as u64;
            Partial { nan, inf: block.len() as u64 - nan, ..Partial::default() }
        }
    }
}

/// Widens and adds up. With `FMA`, the machine multiplies and adds in one instruction; without, `mul_add` would
/// be a call to a function.
#[inline(always)]
fn accumulate<const FMA: bool, T: Copy, W: Wide>(block: &[T], shift: W, value: impl Fn(T) -> W) -> Partial {
    let mut widened = Widened([W::ZERO; WIDENED]);
    let mut sums = Sums::new(shift);
    for some in block.chunks(WIDENED) {
        let values = widened.0.get_mut(..some.len()).unwrap_or_default();
        for (to, &from) in values.iter_mut().zip(some) {
            *to = value(from);
        }
        let greatest = values.iter().fold(W::Bits::default(), |most, x| most.max(x.magnitude()));
        if greatest >= W::INFINITY.magnitude() {
            sums.leave_out(values);
        }
        sums.count_zeros(values);
        sums.extremes(values);
        sums.moments::<FMA>(values);
    }
    sums.partial(block.len() as u64)
}

/// Running sums of independent lanes.
struct Sums<W: Wide> {
    shift: W,
    min: [W; LANES],
    max: [W; LANES],
    sum: [f64; LANES],
    squares: [f64; LANES],
    zeros: u64,
    nan: u64,
    inf: u64,
}

impl<W: Wide> Sums<W> {
    #[inline(always)]
    fn new(shift: W) -> Self {
        let (min, max) = ([shift; LANES], [shift; LANES]);
        Self { shift, min, max, sum: [0.0; LANES], squares: [0.0; LANES], zeros: 0, nan: 0, inf: 0 }
    }

    /// Replaces NaN and infinities by the shift: it is a value of the block, at distance 0 from itself, so it changes neither
    /// extremes nor sums.
    #[cold]
    fn leave_out(&mut self, values: &mut [W]) {
        for x in values.iter_mut().filter(|x| !is_finite(**x)) {
            let is_nan = (*x).into().is_nan();
            self.nan += u64::from(is_nan);
            self.inf += u64::from(!is_nan);
            *x = self.shift;
        }
    }

    #[inline(always)]
    fn count_zeros(&mut self, values: &[W]) {
        let mut zeros = W::Bits::default();
        values.iter().for_each(|&x| zeros += W::Bits::from(x == W::ZERO));
        self.zeros += zeros.into();
    }

    #[inline(always)]
    fn extremes(&mut self, values: &[W]) {
        // Local copies are what the compiler keeps in registers.
        let (mut min, mut max) = (self.min, self.max);
        let (rows, rest) = values.as_chunks::<LANES>();
        for row in rows {
            for lane in 0..LANES {
                min[lane] = lesser(row[lane], min[lane]);
                max[lane] = greater(row[lane], max[lane]);
            }
        }
        for (lane, &x) in rest.iter().enumerate() {
            min[lane] = lesser(x, min[lane]);
            max[lane] = greater(x, max[lane]);
        }
        (self.min, self.max) = (min, max);
    }

    #[inline(always)]
    fn moments<const FMA: bool>(&mut self, values: &[W]) {
        let (mut sum, mut squares) = (self.sum, self.squares);
        let (rows, rest) = values.as_chunks::<LANES>();
        let shift: f64 = self.shift.into();
        for row in rows {
            for lane in 0..LANES {
                let d = row[lane].into() - shift;
                sum[lane] += d;
                squares[lane] = add_square::<FMA>(d, squares[lane]);
            }
        }
        for (lane, &x) in rest.iter().enumerate() {
            let d = x.into() - shift;
            sum[lane] += d;
            squares[lane] = add_square::<FMA>(d, squares[lane]);
        }
        (self.sum, self.squares) = (sum, squares);
    }

    fn partial(&self, count: u64) -> Partial {
        let Self { shift, nan, inf, .. } = *self;
        let sums = (self.sum.iter().sum(), self.squares.iter().sum());
        Partial {
            // NaN and infinities were counted as the shift.
            zeros: self.zeros - if shift == W::ZERO { nan + inf } else { 0 },
            nan,
            inf,
            min: self.min.iter().map(|&x| x.into()).fold(shift.into(), f64::min),
            max: self.max.iter().map(|&x| x.into()).fold(shift.into(), f64::max),
            ..Partial::of_sums(count - nan - inf, shift.into(), sums.0, sums.1)
        }
    }
}

/// `f64::min` checks for NaN, which cannot occur here; this is one instruction.
#[inline(always)]
fn lesser<W: Wide>(x: W, y: W) -> W {
    if x < y { x } else { y }
}

#[inline(always)]
fn greater<W: Wide>(x: W, y: W) -> W {
    if x > y { x } else { y }
}

#[inline(always)]
fn add_square<const FMA: bool>(d: f64, sum: f64) -> f64 {
    if FMA { d.mul_add(d, sum) } else { d * d + sum }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
fn avx512<T: Copy, W: Wide>(block: &[T], shift: W, value: impl Fn(T) -> W) -> Partial {
    accumulate::<true, _, _>(block, shift, value)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<T: Copy, W: Wide>(block: &[T], shift: W, value: impl Fn(T) -> W) -> Partial {
    accumulate::<true, _, _>(block, shift, value)
}

/// Calling a function compiled for instructions that the machine lacks is undefined behaviour, hence `unsafe`;
/// each call is made only after a check that the machine has them.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn dispatch<T: Copy, W: Wide>(block: &[T], shift: W, value: impl Fn(T) -> W) -> Partial {
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: exactly these features have just been detected.
            return unsafe { avx512(block, shift, value) };
        }
        // SAFETY: as above.
        return unsafe { avx2(block, shift, value) };
    }
    accumulate::<false, _, _>(block, shift, value)
}

#[cfg(not(target_arch = "x86_64"))]
fn dispatch<T: Copy, W: Wide>(block: &[T], shift: W, value: impl Fn(T) -> W) -> Partial {
    accumulate::<{ cfg!(target_arch = "aarch64") }, _, _>(block, shift, value)
}

/// The same block by every implementation that this machine can run.
#[cfg(test)]
#[allow(unsafe_code)]
pub(super) fn every_way<T: Copy, W: Wide>(
    block: &[T],
    shift: W,
    value: impl Fn(T) -> W + Copy,
) -> Vec<Partial> {
    let mut ways = vec![
        run(block, value),
        accumulate::<true, _, _>(block, shift, value),
        accumulate::<false, _, _>(block, shift, value),
    ];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: exactly these features have just been detected.
        ways.push(unsafe { avx2(block, shift, value) });
    }
    ways
}
