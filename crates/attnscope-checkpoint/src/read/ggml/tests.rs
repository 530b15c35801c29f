use super::*;
use crate::read::hostile;
use crate::values;

/// A whisper.cpp file with two filters, two words and these tensors (name, dims, type, data).
fn file(ftype: i32, tensors: &[(&str, &[i32], i32, &[u8])]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    let ints = |file: &mut Vec<u8>, ints: &[i32]| ints.iter().for_each(|i| file.extend(i.to_le_bytes()));
    ints(&mut file, &[2, 1500, 4, 1, 1, 448, 4, 1, 1, 80, ftype]);
    ints(&mut file, &[1, 2]);
    file.extend([0; 8]);
    ints(&mut file, &[2]);
    for word in ["a", " the"] {
        ints(&mut file, &[word.len() as i32]);
        file.extend(word.as_bytes());
    }
    for (name, dims, kind, data) in tensors {
        ints(&mut file, &[dims.len() as i32, name.len() as i32, *kind]);
        ints(&mut file, dims);
        file.extend(name.as_bytes());
        file.extend(*data);
    }
    file
}

fn error(bytes: &[u8]) -> String {
    hostile::open(read, bytes).unwrap_err().to_string()
}

fn good() -> Vec<u8> {
    let data: Vec<u8> = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    file(1, &[("conv.bias", &[1, 2], 0, &data[..8]), ("w", &[3, 2], 0, &data), ("h", &[2], 1, &[0; 4])])
}

#[test]
fn reads_names_shapes_and_values() {
    let bytes = good();
    let listing = hostile::open(read, &bytes).unwrap();
    let shapes: Vec<_> = listing.tensors.iter().map(|t| (t.name.as_str(), &t.shape[..])).collect();
    assert_eq!(shapes, [("conv.bias", &[2, 1][..]), ("w", &[2, 3]), ("h", &[2])]);
    let values = values::to_f32(&Source::memory("w", bytes), &listing.tensors[1]).unwrap();
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(listing.configs[0].source, "hparams");
    assert_eq!(listing.configs[0].facts["n_audio_ctx"], 1500);
}

#[test]
fn cuts_and_mutants() {
    let bytes = good();
    let header = file(1, &[]).len();
    // The format ends where the file ends: cut between two tensors it cannot be told from a whole one.
    let tensors = hostile::open(read, &bytes).unwrap().tensors;
    for length in 0..bytes.len() {
        let whole = tensors.iter().any(|t| t.place.range.end == length as u64);
        assert_eq!(hostile::open(read, &bytes[..length]).is_ok(), whole, "cut to {length}");
    }
    hostile::cuts(read, &bytes, header + 12);
    hostile::mutants(read, &bytes, bytes.len());
}

#[test]
fn tensors_that_cannot_be() {
    let all = i32::MAX;
    for (dims, kind, data, says) in [
        (&[-1][..], 0, &[0u8; 4][..], "0 or more"),
        (&[all, all, all], 0, &[0; 4], "size can be counted"),
        (&[all, all], 0, &[0; 4], "bytes"),
        (&[1, 1, 1, 1, 1], 0, &[0; 4], "at most 4"),
        (&[2], 0, &[0; 4], "needs 8 bytes"),
        (&[1], 77, &[0; 4], "ggml type number"),
        (&[16], 2, &[0; 18], "whole blocks"),
    ] {
        let error = error(&file(2001, &[("a", dims, kind, data)]));
        assert!(error.contains(says), "{dims:?}: {error}");
    }
    assert!(error(&file(1, &[("a", &[1], 0, &[0; 4]), ("a", &[1], 0, &[0; 4])])).contains("twice"));
    assert!(error(&file(1, &[])).contains("tensors"));
}

#[test]
fn older_quantised_layouts_are_refused() {
    let q4: &[(&str, &[i32], i32, &[u8])] = &[("a", &[32], 2, &[0; 18])];
    assert!(hostile::open(read, &file(2002, q4)).is_ok());
    assert!(error(&file(1002, q4)).contains("layout version 1"));
    assert!(error(&file(2, q4)).contains("layout version 0"));
}
