use std::io::Write;

use super::*;
use crate::tensor::Place;

fn info(dtype: DType, shape: &[usize], range: Range<u64>) -> TensorInfo {
    let place = Place { source: 0, range, strides: None, packing: Packing::Stored };
    TensorInfo { name: "t".into(), dtype, shape: shape.into(), place }
}

fn floats(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

/// The values in blocks, put together.
fn streamed(source: &Source, info: &TensorInfo) -> Result<Vec<f32>, Error> {
    let mut all = Vec::new();
    for_each_block(source, info, &mut |values| {
        all.extend_from_slice(values);
        Ok(())
    })?;
    Ok(all)
}

#[test]
fn contiguous_bytes_are_borrowed() {
    let source = Source::memory("m", floats(8));
    let info = info(DType::F32, &[3], 8..20);
    assert!(matches!(raw(&source, &info).unwrap(), Cow::Borrowed(_)));
    assert_eq!(to_f32(&source, &info).unwrap(), [2.0, 3.0, 4.0]);
}

#[test]
fn views_are_gathered_in_row_major_order() {
    let source = Source::memory("m", floats(24));
    let mut view = info(DType::F32, &[4, 3], 0..48);
    view.place.strides = Some(vec![1, 4]); // a transpose
    let expected = [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11].map(|x| x as f32);
    assert_eq!(to_f32(&source, &view).unwrap(), expected);
    assert_eq!(streamed(&source, &view).unwrap(), expected);
    view.shape = vec![2, 2, 2];
    view.place.strides = Some(vec![0, 5, 1]);
    assert_eq!(to_f32(&source, &view).unwrap(), [0.0, 1.0, 5.0, 6.0, 0.0, 1.0, 5.0, 6.0]);
    view.shape = vec![];
    view.place.strides = Some(vec![]);
    assert_eq!(to_f32(&source, &view).unwrap(), [0.0]);
    view.shape = vec![2, 0];
    view.place.strides = Some(vec![usize::MAX, usize::MAX]);
    assert!(to_f32(&source, &view).unwrap().is_empty());
}

#[test]
fn views_outside_their_bytes_are_refused() {
    let source = Source::memory("m", floats(24));
    for (shape, strides) in [
        (vec![4, 4], vec![4, 1]),
        (vec![2], vec![usize::MAX]),
        (vec![usize::MAX / 4, 2], vec![usize::MAX, 1]),
        (vec![2], vec![]),
        // A terabyte of one element.
        (vec![1 << 38], vec![0]),
    ] {
        let mut view = info(DType::F32, &shape, 0..48);
        view.place.strides = Some(strides);
        to_f32(&source, &view).unwrap_err();
        crate::stats::of(&source, &view).unwrap_err();
    }
}

#[test]
fn deflated_tensors() {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&[9; 10]).unwrap();
    encoder.write_all(&floats(200_000)).unwrap();
    let bytes = encoder.finish().unwrap();
    let mut packed = info(DType::F32, &[200_000], 0..bytes.len() as u64);
    let source = Source::memory("m", bytes);
    packed.place.packing = Packing::Deflated { skip: 10, len: 800_000 };
    let expected: Vec<f32> = (0..200_000).map(|i| i as f32).collect();
    assert_eq!(to_f32(&source, &packed).unwrap(), expected);
    assert_eq!(streamed(&source, &packed).unwrap(), expected);
    assert_eq!(crate::stats::of(&source, &packed).unwrap(), crate::Stats::of_f32(&expected));
    for (skip, len) in [(11, 800_000), (10, u64::MAX), (u64::MAX, 800_000), (10, 800_004)] {
        packed.shape = vec![usize::try_from(len / 4).unwrap()];
        packed.place.packing = Packing::Deflated { skip, len };
        to_f32(&source, &packed).unwrap_err();
        streamed(&source, &packed).unwrap_err();
    }
}

#[test]
fn blocks_from_a_file_equal_the_whole() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..1_000_003u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    file.write_all(&bytes).unwrap();
    let source = Source::open(file.path()).unwrap();
    for (dtype, elements) in [
        (DType::I8, 999_999),
        (DType::I16, 400_001),
        (DType::Q4_0, 32 * 30_001),
        (DType::Q6K, 256 * 3001),
        (DType::AprQ4, 32 * 20_000 + 7),
        (DType::AprQ8, 700_001),
    ] {
        let size = dtype.bytes_for(elements).unwrap() as u64;
        let tensor = info(dtype, &[elements], 3..3 + size);
        let whole = to_f32(&source, &tensor).unwrap();
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&whole), bits(&streamed(&source, &tensor).unwrap()), "{dtype}");
        let (a, b) = (crate::stats::of(&source, &tensor).unwrap(), crate::Stats::of_f32(&whole));
        assert_eq!((a.count, a.zeros, a.nan, a.inf), (b.count, b.zeros, b.nan, b.inf), "{dtype}");
        assert_eq!((a.min, a.max), (b.min, b.max), "{dtype}");
    }
}

#[test]
fn small_floats_are_those_of_the_definitions() {
    for bits in 0..=u16::MAX {
        let (found, expected) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
        assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()), "{bits:#x}");
        let (found, expected) = (bf16_to_f32(bits), half::bf16::from_bits(bits).to_f32());
        assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()), "{bits:#x}");
    }
    // OCP 8-bit floating point, table 2.
    for (bits, value) in
        [(0x7e, 448.0), (0x08, 2f32.powi(-6)), (0x07, 0.875 * 2f32.powi(-6)), (0x01, 2f32.powi(-9))]
    {
        assert_eq!((f8_e4m3(bits), f8_e4m3(bits | 0x80)), (value, -value));
    }
    for (bits, value) in
        [(0x7b, 57_344.0), (0x04, 2f32.powi(-14)), (0x01, 2f32.powi(-16)), (0x7c, f32::INFINITY)]
    {
        assert_eq!((f8_e5m2(bits), f8_e5m2(bits | 0x80)), (value, -value));
    }
    assert!(f8_e4m3(0x7f).is_nan() && f8_e4m3(0xff).is_nan() && f8_e5m2(0x7d).is_nan());
    assert_eq!(f8_e4m3(0x80).to_bits(), (-0.0f32).to_bits());
}
