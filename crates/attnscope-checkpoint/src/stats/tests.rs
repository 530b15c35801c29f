use half::{bf16, f16};
use proptest::prelude::*;

use super::*;

/// Two plain passes.
fn naive(values: &[f64]) -> Stats {
    let finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    let n = finite.len() as f64;
    // Relative to the first value, so that the sum does not lose the digits that are compared.
    let first = finite.first().copied().unwrap_or(f64::NAN);
    let mean = first + finite.iter().map(|x| x - first).sum::<f64>() / n;
    let var = finite.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    Stats {
        count: values.len() as u64,
        min: finite.iter().copied().fold(f64::NAN, f64::min),
        max: finite.iter().copied().fold(f64::NAN, f64::max),
        mean,
        std: var.sqrt(),
        zeros: values.iter().filter(|x| **x == 0.0).count() as u64,
        nan: values.iter().filter(|x| x.is_nan()).count() as u64,
        inf: values.iter().filter(|x| x.is_infinite()).count() as u64,
    }
}

#[track_caller]
fn same(found: Stats, expected: Stats) {
    let counts = |s: Stats| (s.count, s.zeros, s.nan, s.inf);
    assert_eq!(counts(found), counts(expected));
    let near = |a: f64, b: f64, scale: f64| (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * scale;
    let (f, e) = (found, expected);
    assert!(near(f.min, e.min, 0.0) && near(f.max, e.max, 0.0), "{f:?} {e:?}");
    // A mean near zero is as exact as the values around it.
    assert!(near(f.mean, e.mean, e.mean.abs().max(e.std)), "{f:?} {e:?}");
    // A spread below the last place of the values is as exact as that place.
    let place = e.min.abs().max(e.max.abs()) * 1e-7;
    assert!(near(f.std, e.std, e.std.max(place)), "{f:?} {e:?}");
}

fn odd_f32() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -1f32..1.0,
        2 => any::<f32>(),
        1 => prop::sample::select(vec![0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, f32::MAX]),
    ]
}

proptest! {
    #[test]
    fn f32_as_the_naive_loop(values in prop::collection::vec(odd_f32(), 0..5000)) {
        let wide: Vec<f64> = values.iter().map(|&x| x.into()).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        same(Stats::of_f32(&values), naive(&wide));
        same(Stats::of_bytes(DType::F32, &bytes).unwrap(), naive(&wide));
    }

    #[test]
    fn f64_as_the_naive_loop(
        values in prop::collection::vec(prop_oneof![-1e100f64..1e100, -1f64..1.0, Just(f64::NAN)], 0..300)
    ) {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        same(Stats::of_bytes(DType::F64, &bytes).unwrap(), naive(&values));
    }

    #[test]
    fn bits_as_the_naive_loop(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        fn check<const N: usize>(dtype: DType, bytes: &[u8], value: impl Fn([u8; N]) -> f64) {
            let values: Vec<f64> = bytes.as_chunks().0.iter().map(|&b| value(b)).collect();
            let whole = &bytes[..values.len() * N];
            same(Stats::of_bytes(dtype, whole).unwrap(), naive(&values));
        }
        check(DType::F16, &bytes, |b| f16::from_le_bytes(b).to_f64());
        check(DType::BF16, &bytes, |b| bf16::from_le_bytes(b).to_f64());
        check(DType::I64, &bytes, |b| i64::from_le_bytes(b) as f64);
        check(DType::I32, &bytes, |b| i32::from_le_bytes(b).into());
        check(DType::I16, &bytes, |b| i16::from_le_bytes(b).into());
        check(DType::I8, &bytes, |b| i8::from_le_bytes(b).into());
        check(DType::U64, &bytes, |b| u64::from_le_bytes(b) as f64);
        check(DType::U32, &bytes, |b| u32::from_le_bytes(b).into());
        check(DType::U16, &bytes, |b| u16::from_le_bytes(b).into());
        check(DType::U8, &bytes, |b| u8::from_le_bytes(b).into());
        check(DType::Bool, &bytes, |[b]| f64::from(u8::from(b != 0)));
        check(DType::F8E5M2, &bytes, |[b]| f16::from_bits(u16::from(b) << 8).to_f64());
    }
}

#[test]
fn an_offset_does_not_drown_the_spread() {
    let values: Vec<f32> = (0..300_000).map(|i| 1e4 + (i % 1000) as f32 / 1024.0).collect();
    let wide: Vec<f64> = values.iter().map(|&x| x.into()).collect();
    let (found, expected) = (Stats::of_f32(&values), naive(&wide));
    assert!((found.mean / expected.mean - 1.0).abs() < 1e-12, "{found:?} {expected:?}");
    assert!((found.std / expected.std - 1.0).abs() < 1e-9, "{found:?} {expected:?}");
}

#[test]
fn nothing_and_nothing_finite() {
    let none = Stats::of_f32(&[]);
    assert!(none.count == 0 && none.mean.is_nan() && none.std.is_nan() && none.min.is_nan());
    let odd = Stats::of_f32(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!((odd.count, odd.nan, odd.inf), (3, 1, 2));
    assert!(odd.max.is_nan());
    assert_eq!(Stats::of_bytes(DType::Q4_0, &[0; 18]), None);
}

#[test]
fn zeros_among_what_is_left_out() {
    let s = Stats::of_f32(&[0.0, f32::NAN, -0.0, f32::INFINITY, 1.0]);
    assert_eq!((s.zeros, s.nan, s.inf, s.min, s.max), (2, 1, 1, 0.0, 1.0));
}

#[test]
fn every_way_gives_the_same() {
    for length in [1, 15, 16, 17, 31, 33, 1000, 2047, 2049, 70_001] {
        // Offset, with zeros, spread over many magnitudes.
        let values: Vec<f32> = (0..length)
            .map(|i| if i % 7 == 0 { 0.0 } else { ((i * 7919 % 1009) as f32 - 400.0) * 1.5f32.powi(i % 20) })
            .collect();
        let wide: Vec<f64> = values.iter().map(|&x| x.into()).collect();
        let expected = naive(&wide);
        for way in kernel::every_way(&values, values[0], |x| x) {
            same(merge([way]), expected);
        }
        for way in kernel::every_way(&wide, wide[0], |x| x) {
            same(merge([way]), expected);
        }
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let halves: Vec<f16> = values.iter().map(|x| f16::from_f32(x / 1e4)).collect();
        let half_bytes: Vec<u8> = halves.iter().flat_map(|x| x.to_le_bytes()).collect();
        let of_halves = naive(&halves.iter().map(|x| x.to_f64()).collect::<Vec<_>>());
        let brains: Vec<bf16> = values.iter().map(|&x| bf16::from_f32(x)).collect();
        let brain_bytes: Vec<u8> = brains.iter().flat_map(|x| x.to_le_bytes()).collect();
        let of_brains = naive(&brains.iter().map(|x| x.to_f64()).collect::<Vec<_>>());
        for (dtype, bytes, expected) in [
            (DType::F32, bytes, expected),
            (DType::F16, half_bytes, of_halves),
            (DType::BF16, brain_bytes, of_brains),
        ] {
            same(merge([plain(dtype, &bytes)]), expected);
            same(merge([portable(dtype, &bytes)]), expected);
        }
    }
}
