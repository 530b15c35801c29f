//! One pass over a block of values.
//!
//! One plain loop over lanes, compiled three times: for AVX-512, for AVX2, and for any machine. Sums are taken
//! of distances from a value of the block itself, so that an offset shared by all values (a running mean of
//! 1e4, a table of positions) does not drown their spread.

/// Enough independent sums to keep the adders of two 512-bit units busy.
const LANES: usize = 32;

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

/// Statistics of a block.
pub(super) fn run<T: Copy>(block: &[T], value: impl Fn(T) -> f64 + Copy) -> Partial {
    // Where infinities and NaN are left out, this stands for them: it moves neither sums nor extremes.
    let Some(shift) = block.iter().map(|&x| value(x)).find(|x| x.is_finite()) else {
        return unusual(block, value, Partial::default());
    };
    let sums = dispatch(block, shift, value);
    let n = sums.finite as f64;
    let partial = Partial {
        finite: sums.finite,
        zeros: sums.zeros,
        min: sums.min,
        max: sums.max,
        mean: shift + sums.sum / n,
        m2: (sums.squares - sums.sum * (sums.sum / n)).max(0.0),
        ..Partial::default()
    };
    if sums.finite == block.len() as u64 { partial } else { unusual(block, value, partial) }
}

#[cold]
fn unusual<T: Copy>(block: &[T], value: impl Fn(T) -> f64, partial: Partial) -> Partial {
    let nan = block.iter().filter(|&&x| value(x).is_nan()).count() as u64;
    let inf = block.iter().filter(|&&x| value(x).is_infinite()).count() as u64;
    Partial { nan, inf, ..partial }
}

struct Sums {
    finite: u64,
    zeros: u64,
    min: f64,
    max: f64,
    sum: f64,
    squares: f64,
}

/// Each lane sees every `LANES`th value. Written so that the compiler turns a step into vector instructions:
/// fixed-size arrays, no branches, counters as wide as the values.
#[inline(always)]
fn accumulate<T: Copy>(block: &[T], shift: f64, value: impl Fn(T) -> f64) -> Sums {
    let (mut min, mut max) = ([shift; LANES], [shift; LANES]);
    let (mut sum, mut squares) = ([0.0; LANES], [0.0; LANES]);
    let (mut finite, mut zeros) = ([0u64; LANES], [0u64; LANES]);
    let mut step = |lane: usize, x: f64| {
        let is_finite = x.abs() < f64::INFINITY;
        finite[lane] += u64::from(is_finite);
        zeros[lane] += u64::from(x == 0.0);
        let x = if is_finite { x } else { shift };
        min[lane] = if x < min[lane] { x } else { min[lane] };
        max[lane] = if x > max[lane] { x } else { max[lane] };
        let d = x - shift;
        sum[lane] += d;
        squares[lane] += d * d;
    };
    let (rows, rest) = block.as_chunks::<LANES>();
    for row in rows {
        for lane in 0..LANES {
            step(lane, value(row[lane]));
        }
    }
    for (lane, &x) in rest.iter().enumerate() {
        step(lane, value(x));
    }
    Sums {
        finite: finite.iter().sum(),
        zeros: zeros.iter().sum(),
        min: min.iter().copied().fold(shift, f64::min),
        max: max.iter().copied().fold(shift, f64::max),
        sum: sum.iter().sum(),
        squares: squares.iter().sum(),
    }
}

/// Calling a function compiled for instructions that the machine lacks is undefined behaviour, hence `unsafe`;
/// each call stands behind the question whether the machine has them.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn dispatch<T: Copy>(block: &[T], shift: f64, value: impl Fn(T) -> f64) -> Sums {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn avx512<T: Copy>(block: &[T], shift: f64, value: impl Fn(T) -> f64) -> Sums {
        accumulate(block, shift, value)
    }
    #[target_feature(enable = "avx2")]
    fn avx2<T: Copy>(block: &[T], shift: f64, value: impl Fn(T) -> f64) -> Sums {
        accumulate(block, shift, value)
    }
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
    {
        // SAFETY: the machine has just been asked for exactly these features.
        return unsafe { avx512(block, shift, value) };
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: as above.
        return unsafe { avx2(block, shift, value) };
    }
    accumulate(block, shift, value)
}

#[cfg(not(target_arch = "x86_64"))]
fn dispatch<T: Copy>(block: &[T], shift: f64, value: impl Fn(T) -> f64) -> Sums {
    accumulate(block, shift, value)
}
