use super::*;
use crate::dtype::DType;
use crate::read::hostile;
use crate::values;

const FILE: &[u8] = include_bytes!("../../../../../fixtures/formats/gguf/every-type.gguf");
const EXPECTED: &[u8] = include_bytes!("../../../../../fixtures/formats/gguf/every-type.f32");

/// The start of a file: magic, version, counts.
fn head(version: u32, tensors: u64, keys: u64) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(version.to_le_bytes());
    file.extend(tensors.to_le_bytes());
    file.extend(keys.to_le_bytes());
    file
}

fn line(file: &mut Vec<u8>, name: &str, dims: &[u64], kind: u32, offset: u64) {
    file.extend((name.len() as u64).to_le_bytes());
    file.extend(name.as_bytes());
    file.extend((dims.len() as u32).to_le_bytes());
    dims.iter().for_each(|d| file.extend(d.to_le_bytes()));
    file.extend(kind.to_le_bytes());
    file.extend(offset.to_le_bytes());
}

/// A file with these tensors (name, dims, type, offset) and 256 bytes of data.
fn file(lines: &[(&str, &[u64], u32, u64)]) -> Vec<u8> {
    let mut file = head(3, lines.len() as u64, 0);
    lines.iter().for_each(|(name, dims, kind, offset)| line(&mut file, name, dims, *kind, *offset));
    file.resize(file.len().next_multiple_of(32) + 256, 0);
    file
}

fn error(bytes: &[u8]) -> String {
    hostile::open(read, bytes).unwrap_err().to_string()
}

#[test]
fn every_type_reads_as_the_reference_does_bit_for_bit() {
    let source = Source::memory("every-type.gguf", FILE);
    let listing = read(&source).unwrap();
    let mut expected = EXPECTED.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b));
    let mut compared = 0;
    for info in &listing.tensors {
        assert_eq!(info.shape, [2, 256], "{}", info.name);
        assert_eq!(info.dtype.name().to_uppercase(), info.name);
        if matches!(info.dtype, DType::Opaque { .. }) {
            let error = values::to_f32(&source, info).unwrap_err();
            assert!(error.to_string().contains("values are not read"), "{error}");
            continue;
        }
        for (i, found) in values::to_f32(&source, info).unwrap().into_iter().enumerate() {
            let wanted = expected.next().unwrap();
            assert_eq!(found.to_bits(), wanted.to_bits(), "{}[{i}]: {found} {wanted}", info.name);
        }
        compared += 1;
    }
    assert_eq!((compared, expected.next()), (16, None));
}

#[test]
fn metadata_is_kept_short() {
    let listing = read(&Source::memory("every-type.gguf", FILE)).unwrap();
    let facts = &listing.configs[0].facts;
    assert_eq!(facts["general.architecture"], "fixture");
    assert_eq!(facts["fixture.text"], "naïve");
    assert_eq!(facts["fixture.yes"], true);
    assert_eq!(facts["fixture.epsilon"], 1e-6);
    assert_eq!(facts["fixture.large"], 1u64 << 63);
    assert_eq!(facts["fixture.negative"], -5);
    assert_eq!(facts["fixture.short"], serde_json::json!([1, 2, 3]));
    assert_eq!(facts["fixture.nested"], serde_json::json!([[1, 2], [3]]));
    assert_eq!(facts["tokenizer.ggml.tokens"]["length"], 200);
    assert_eq!(facts["tokenizer.ggml.tokens"]["first"][7], "token 7");
    assert_eq!(facts["tokenizer.ggml.scores"]["first"][1], 1.0);
}

#[test]
fn a_cut_file_does_not_open() {
    let listing = read(&Source::memory("every-type.gguf", FILE)).unwrap();
    let end = listing.tensors.iter().map(|t| t.place.range.end).max().unwrap();
    hostile::cuts(read, FILE, end as usize);
}

#[test]
fn mutants_do_not_panic() {
    let listing = read(&Source::memory("every-type.gguf", FILE)).unwrap();
    let data = listing.tensors.iter().map(|t| t.place.range.start).min().unwrap();
    hostile::mutants(read, FILE, data as usize);
}

#[test]
fn dimensions_are_turned_round_and_zero_is_a_length() {
    let listing = hostile::open(read, &file(&[("a", &[3, 2], 0, 0), ("b", &[0, 4], 0, 32)])).unwrap();
    assert_eq!(listing.tensors[0].shape, [2, 3]);
    assert_eq!(listing.tensors[1].shape, [4, 0]);
}

#[test]
fn other_versions_are_refused_with_the_reason() {
    assert!(error(&head(1, 0, 0)).contains("version 1"));
    assert!(error(&head(3 << 24, 0, 0)).contains("big-endian"));
    assert!(error(&head(4, 0, 0)).contains("expected 2 or 3, found 4"));
    assert!(hostile::open(read, &head(2, 0, 0)).is_ok());
}

#[test]
fn counts_are_not_believed() {
    for (tensors, keys) in [(u64::MAX, 0), (1 << 20, 0), (0, u64::MAX), (0, 1 << 16), (1, 0), (0, 1)] {
        hostile::open(read, &head(3, tensors, keys)).unwrap_err();
    }
}

#[test]
fn tensors_that_cannot_be() {
    let max = u64::MAX;
    for (lines, says) in [
        (&[("a", &[1u64 << 40, 1 << 40][..], 0, 0)][..], "size can be counted"),
        (&[("a", &[max, 0, max], 0, 0)], "counted"),
        (&[("a", &[1 << 62], 0, 0)], "whole blocks"),
        (&[("a", &[65], 0, 0)], "needs 260 bytes"),
        (&[("a", &[1], 0, 256)], "needs 4 bytes"),
        (&[("a", &[1], 0, max - 31)], "needs 4 bytes"),
        (&[("a", &[1], 0, 4)], "a multiple of 32"),
        (&[("a", &[31], 2, 0)], "whole blocks of 32"),
        (&[("a", &[16, 2], 2, 0)], "whole blocks of 32"),
        (&[("a", &[1], 4, 0)], "ggml type number"),
        (&[("a", &[1], 99, 0)], "ggml type number"),
        (&[("a", &[1, 1, 1, 1, 1], 0, 0)], "at most 4"),
        (&[("a", &[1], 0, 0), ("a", &[1], 0, 32)], "twice"),
        (&[("a", &[16], 0, 0), ("b", &[1], 0, 32)], "inside tensor"),
    ] {
        let error = error(&file(lines));
        assert!(error.contains(says), "{lines:?}: {error}");
    }
}

/// One key of type `kind` with these bytes as its value.
fn key(kind: u32, value: &[u8]) -> Vec<u8> {
    let mut file = head(3, 0, 1);
    file.extend(1u64.to_le_bytes());
    file.push(b'k');
    file.extend(kind.to_le_bytes());
    file.extend(value);
    file
}

#[test]
fn values_that_cannot_be() {
    let array = |kind: u32, length: u64| [&kind.to_le_bytes()[..], &length.to_le_bytes()].concat();
    assert!(error(&key(13, &[0; 8])).contains("0 to 12"));
    assert!(error(&key(7, &[2])).contains("0 or 1"));
    assert!(error(&key(8, &u64::MAX.to_le_bytes())).contains("bytes"));
    for kind in 0..14 {
        error(&key(9, &array(kind, u64::MAX)));
        error(&key(9, &array(kind, 1 << 40)));
    }
    // An array in an array in an array …
    let deep: Vec<u8> = std::iter::repeat_n(array(9, 1), 1000).flatten().collect();
    assert!(error(&key(9, &deep)).contains("deep"));
}

#[test]
fn alignment_is_honoured_and_must_be_a_power_of_two() {
    let with = |alignment: u32| {
        let mut file = head(3, 1, 1);
        file.extend(17u64.to_le_bytes());
        file.extend(b"general.alignment");
        file.extend(4u32.to_le_bytes());
        file.extend(alignment.to_le_bytes());
        line(&mut file, "a", &[1], 0, 128);
        file.resize(1024, 0);
        file
    };
    let listing = hostile::open(read, &with(128)).unwrap();
    assert_eq!(listing.tensors[0].place.range, 256..260);
    for bad in [0, 3, 24] {
        assert!(error(&with(bad)).contains("power of two"));
    }
    assert!(error(&with(256)).contains("a multiple of 256"));
}
