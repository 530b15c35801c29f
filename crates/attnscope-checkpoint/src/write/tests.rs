use std::fs;
use std::path::PathBuf;

use super::*;
use crate::listing::{CheckState, Listing};
use crate::read::apr as apr_reader;
use crate::source::Source;
use crate::values;

struct Tensor(&'static str, DType, &'static [usize], Vec<u8>);

/// Unusual bit patterns, no elements, no dimensions.
fn tensors() -> Vec<Tensor> {
    let nan_payloads = [0x7fc0_1234u32, 0xff80_0001, 0x8000_0000, 0x0000_0001, 0x7f80_0000, 0x3f80_0000];
    vec![
        Tensor("z.f32", DType::F32, &[2, 3], nan_payloads.iter().flat_map(|b| b.to_le_bytes()).collect()),
        Tensor("a.f16", DType::F16, &[3], vec![1, 0x7c, 0xff, 0xff, 0, 0]),
        Tensor("none", DType::I64, &[4, 0, 2], vec![]),
        Tensor("scalar", DType::F64, &[], 0xfff8_0000_dead_beefu64.to_le_bytes().to_vec()),
        Tensor("b.u8", DType::U8, &[5], vec![1, 2, 3, 4, 5]),
        Tensor("c.i8", DType::I8, &[1, 1], vec![0x80]),
    ]
}

fn entries(tensors: &[Tensor]) -> Vec<Entry<'_>> {
    let entry = |Tensor(name, dtype, shape, bytes): &'_ Tensor| -> Entry<'_> {
        // In two pieces, as a stream would come.
        let bytes = bytes.clone();
        let pour = move |sink: &mut Sink<'_>| {
            let (a, b) = bytes.split_at(bytes.len() / 2);
            sink(a)?;
            sink(b)
        };
        Entry { name: (*name).into(), dtype: *dtype, shape: shape.to_vec(), bytes: Box::new(pour) }
    };
    tensors.iter().map(entry).collect()
}

fn metadata() -> Map<String, Value> {
    let Value::Object(map) = serde_json::json!({ "name": "naïve", "hidden_size": 4 }) else { panic!() };
    map
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    (folder, path)
}

fn left_behind(folder: &tempfile::TempDir) -> usize {
    fs::read_dir(folder.path()).unwrap().count()
}

fn read_apr(path: &Path) -> (Source, Listing) {
    let source = Source::open(path).unwrap();
    let listing = apr_reader::read(&source).unwrap();
    (source, listing)
}

#[test]
fn apr_round_trip() {
    let (folder, path) = folder();
    let mut tensors = tensors();
    tensors.push(Tensor("bf", DType::BF16, &[2], vec![1, 2, 3, 4]));
    tensors.push(Tensor("q4", DType::AprQ4, &[33], vec![7; 36]));
    tensors.push(Tensor("q8", DType::AprQ8, &[3], vec![8; 7]));
    tensors.push(Tensor("q6k", DType::Q6K, &[256], vec![9; 210]));
    write(Target::Apr, &path, entries(&tensors), &metadata()).unwrap();
    assert_eq!(left_behind(&folder), 1);
    let (source, listing) = read_apr(&path);
    assert!(listing.checks.iter().all(|c| c.state == CheckState::Verified));
    assert_eq!(listing.configs[0].facts, metadata());
    assert_eq!(listing.tensors.len(), tensors.len());
    for Tensor(name, dtype, shape, bytes) in &tensors {
        let info = listing.tensors.iter().find(|t| t.name == *name).unwrap();
        assert_eq!((info.dtype, &info.shape[..]), (*dtype, *shape));
        assert_eq!(values::raw(&source, info).unwrap(), &bytes[..], "{name}");
    }
}

#[test]
fn safetensors_round_trip_by_the_reference() {
    let (_folder, path) = folder();
    let mut tensors = tensors();
    tensors.push(Tensor("bool", DType::Bool, &[2], vec![0, 1]));
    tensors.push(Tensor("f8", DType::F8E4M3, &[1], vec![0x7f]));
    write(Target::Safetensors, &path, entries(&tensors), &metadata()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let file = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), tensors.len());
    for Tensor(name, dtype, shape, expected) in &tensors {
        let tensor = file.tensor(name).unwrap();
        assert_eq!(tensor.shape(), *shape);
        assert_eq!(tensor.data(), &expected[..], "{name}");
        let start = tensor.data().as_ptr() as usize - bytes.as_ptr() as usize;
        assert!(expected.is_empty() || start.is_multiple_of(dtype.block().1), "{name} at {start}");
    }
    let (_, header) = ::safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["hidden_size"], "4");
    assert_eq!(header.metadata().as_ref().unwrap()["name"], "naïve");
}

#[test]
fn npz_round_trip_by_rawzip() {
    let (_folder, path) = folder();
    let tensors = tensors();
    write(Target::Npz, &path, entries(&tensors), &Map::new()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let archive = rawzip::ZipArchive::from_slice(&bytes).unwrap();
    let mut found = 0;
    for record in archive.entries() {
        let record = record.unwrap();
        let name = String::from_utf8(record.file_path().as_ref().to_vec()).unwrap();
        let Tensor(_, _, _, expected) = tensors.iter().find(|t| format!("{}.npy", t.0) == name).unwrap();
        let data = archive.get_entry(record.wayfinder()).unwrap();
        let npy = data.data();
        assert_eq!(data.claim_verifier().crc, crc32fast::hash(npy));
        assert_eq!((&npy[..8], npy.len() - expected.len()), (&b"\x93NUMPY\x01\x00"[..], 128), "{name}");
        assert!(npy.ends_with(expected), "{name}");
        found += 1;
    }
    assert_eq!(found, tensors.len());
}

#[test]
fn what_cannot_be_held_is_refused_by_name() {
    let (folder, path) = folder();
    for (target, dtype) in [
        (Target::Safetensors, DType::Q4_0),
        (Target::Apr, DType::U16),
        (Target::Apr, DType::Q4_0),
        (Target::Npz, DType::BF16),
    ] {
        let tensors = [Tensor("the.one", dtype, &[32], vec![0; 64])];
        let error = write(target, &path, entries(&tensors), &Map::new()).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("the.one") && error.to_string().contains(dtype.name()), "{error}");
    }
    write(Target::Npz, &path, vec![], &metadata()).unwrap_err();
    for name in ["../up", "/root", "a\\b"] {
        let tensors = [Tensor(name, DType::U8, &[1], vec![0])];
        write(Target::Npz, &path, entries(&tensors), &Map::new()).unwrap_err();
    }
    let twice = [Tensor("a", DType::U8, &[1], vec![0]), Tensor("a", DType::U8, &[1], vec![0])];
    for target in [Target::Safetensors, Target::Apr, Target::Npz] {
        let error = write(target, &path, entries(&twice), &Map::new()).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Duplicate { .. }));
    }
    assert_eq!(left_behind(&folder), 0);
}

#[test]
fn an_error_leaves_what_was_there() {
    let (folder, path) = folder();
    fs::write(&path, "before").unwrap();
    for target in [Target::Safetensors, Target::Apr, Target::Npz] {
        // Fewer bytes than the shape promises.
        let tensors = [Tensor("short", DType::F32, &[100], vec![0; 399])];
        write(target, &path, entries(&tensors), &Map::new()).unwrap_err();
        let fails: Provider<'_> = Box::new(|_| Err(Error::new("input", std::io::Error::other("gone"))));
        let entry = Entry { name: "a".into(), dtype: DType::F32, shape: vec![1], bytes: fails };
        let error = write(target, &path, vec![entry], &Map::new()).unwrap_err();
        assert_eq!(error.file, Path::new("input"));
    }
    assert_eq!(fs::read(&path).unwrap(), b"before");
    assert_eq!(left_behind(&folder), 1);
}
