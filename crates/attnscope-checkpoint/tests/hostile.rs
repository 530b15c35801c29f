//! Files that mean harm, or were cut on the way. None may panic, hang or be believed.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are tests too.

mod common;

use std::time::Instant;

use attnscope_checkpoint::{Checkpoint, Dump, Error};
use common::{Zip, fixture, safetensors, tensor, torch};

fn open(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
    let started = Instant::now();
    let opened = Checkpoint::from_memory("test", vec![("model.bin", bytes.into())]);
    assert!(started.elapsed().as_secs() < 20, "took {:?}", started.elapsed());
    opened
}

fn refused(bytes: Vec<u8>, because: &str) {
    let error = open(bytes).unwrap_err();
    assert!(error.to_string().contains(because), "{error} does not mention {because:?}");
    assert!(!error.remedy().to_string().is_empty());
}

#[test]
fn cut_anywhere() {
    let stored = safetensors(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 8);
    let mut files = vec![stored];
    for name in ["pytorch/mixed.pt", "pytorch/deflated.pt", "npz/stored.npz", "npz/deflated.npz"] {
        files.push(std::fs::read(fixture(name)).unwrap());
    }
    for bytes in files {
        assert!(open(bytes.clone()).is_ok());
        for end in 0..bytes.len() {
            assert!(open(bytes[..end].to_vec()).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn one_byte_changed() {
    for name in ["pytorch/mixed.pt", "pytorch/script.pt", "npz/deflated.npz"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        for at in 0..bytes.len() {
            for flip in [0xff, 0x80, 0x01] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                let _ = open(changed); // Any answer but a panic.
            }
        }
    }
}

#[test]
fn safetensors_that_lie() {
    let info = |shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    refused(safetensors(&info("[18446744073709551615,2]", "[0,8]"), 8), "\"a\"");
    refused(safetensors(&info("[2]", "[0,12]"), 12), "\"a\"");
    refused(safetensors(&info("[2]", "[4,12]"), 12), "\"a\"");
    refused(safetensors(&info("[2]", "[0,8]"), 4), "needs 8 bytes");
    refused(safetensors(&info("[2]", "[0,8]"), 16), "8 bytes after");
    let twice = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    refused(safetensors(twice, 1), "given twice");
    let overlap = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#;
    refused(safetensors(overlap, 6), "\"b\"");
    refused(safetensors(&format!(r#"{{"a":[{}0]}}"#, "0,".repeat(3 << 20)), 0), "values");
    let mut huge = u64::MAX.to_le_bytes().to_vec();
    huge.extend(b"{\"a\"");
    refused(huge, "more than");
    refused(safetensors(&"[".repeat(100_000).replacen('[', "{\"a\":[", 1), 0), "header");
}

#[test]
fn tensors_outside_their_storage() {
    let ok = tensor("I0\n", "I2\nI2\n", "I2\nI1\n");
    assert_eq!(open(torch(format!("{ok}.").as_bytes())).unwrap().tensors()[0].shape, [2, 2]);
    let max = format!("I{}\n", i64::MAX);
    for (offset, shape, strides) in [
        ("I1\n", "I2\nI2\n", "I2\nI1\n"),
        ("I0\n", "I2\nI2\n", "I9\nI1\n"),
        ("I-1\n", "I2\n", "I1\n"),
        ("I0\n", "I-2\n", "I1\n"),
        ("I0\n", "I2\n", "I2\nI1\n"),
        (max.as_str(), "I2\n", "I1\n"),
        ("I0\n", max.as_str(), max.as_str()),
        ("I0\n", &format!("{max}{max}"), "I0\nI0\n"),
        ("I0\n", &max, "I0\n"),
    ] {
        let pickle = format!("(dS'w'\n{}s.", tensor(offset, shape, strides));
        refused(torch(pickle.as_bytes()), "\"w\"");
    }
}

/// A kilobyte that claims gigabytes: each tensor alone would be allowed.
#[test]
fn repeated_tensors_are_counted_together() {
    let half = tensor("I0\n", &format!("I{}\n", 150 << 20), "I0\n");
    let one = format!("(dS'a'\n{half}s.");
    assert!(open(torch(one.as_bytes())).is_ok());
    let two = format!("(dS'a'\n{half}sS'b'\n{half}s.");
    refused(torch(two.as_bytes()), "\"b\"");
}

#[test]
fn a_call_is_listed_and_not_made() {
    let model = open(torch(b"cos\nsystem\n(S'touch /tmp/attnscope-was-run'\ntR0(d.")).unwrap();
    let [held] = model.placeholders() else { panic!("{:?}", model.placeholders()) };
    assert_eq!((held.global.as_str(), held.called), ("os.system", true));
    assert!(!std::path::Path::new("/tmp/attnscope-was-run").exists());
    // A tensor that needs it is refused by name.
    let pickle = "(dS'w'\nctorch._utils\n_rebuild_tensor_v2\n(cos\nsystem\n(tRI0\n(I1\nt(I1\ntI00\nNtRs.";
    refused(torch(pickle.as_bytes()), "\"w\"");
}

#[test]
fn pickles_without_end() {
    // A list inside itself, beside a tensor.
    let model = open(torch(format!("(lp0\ng0\na{}a.", tensor("I0\n", "I4\n", "I1\n")).as_bytes())).unwrap();
    assert_eq!(model.tensors().len(), 1);
    // Deep nesting.
    let deep = [b"(".repeat(100_000), b"l".repeat(100_000), b".".to_vec()].concat();
    refused(torch(&deep), "nested");
    let deep = [b"]".repeat(100_000), b"a".repeat(99_999), b".".to_vec()].concat();
    refused(torch(&deep), "nested");
    // Pairs of pairs: 2^60 paths.
    let mut bomb = b"]p0\n".to_vec();
    for n in 1..60 {
        bomb.extend(format!("(g{0}\ng{0}\nlp{n}\n", n - 1).bytes());
    }
    bomb.extend(b".");
    refused(torch(&bomb), "values");
    // Counts that the file cannot hold.
    refused(torch(b"X\xff\xff\xff\xff."), "needs 4294967295 bytes");
    refused(torch(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), "needs 18446744073709551615 bytes");
    refused(torch(&[b"N0".repeat(5 << 20), b".".to_vec()].concat()), "opcodes");
    refused(torch(&[b"]".repeat(8 << 20), b".".to_vec()].concat()), "values of at most");
    // Few bytes that say a great deal: names of globals put together, one tensor under many names.
    let texts: String = (0..100).map(|n| format!("U\x7f{n:0>127}q{}", char::from(n))).collect();
    let pairs = (0..100).flat_map(|a| (0..100).flat_map(move |b| [b'h', a, b'h', b, 0x93]));
    let pairs = pairs.collect::<Vec<u8>>().repeat(30);
    let model = open(torch(&[texts.as_bytes(), &pairs, b"."].concat())).unwrap();
    assert_eq!(model.placeholders().len(), 100 * 100);
    let (one, many) = (tensor("I0\n", "I4\n", "I1\n"), "h\0".repeat(3000));
    let many = format!("({one}p0\n{many}lp1\n0({}l.", "h\x01".repeat(3000));
    refused(torch(many.as_bytes()), "a listing of at most");
    for bad in [b"." as &[u8], b"t.", b"R.", b"(u.", b"g7\n.", b"\x80\x09.", b"\x82\x01.", b"((.", b"", b"ab"]
    {
        assert!(open(torch(bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn zips_that_lie() {
    let pickle = format!("{}.", tensor("I0\n", "I4\n", "I1\n"));
    let archive = || Zip::default().entry("a/data.pkl", pickle.as_bytes());
    assert!(open(archive().entry("a/data/0", &[0; 16]).finish()).is_ok());
    refused(archive().finish(), "a/data/0");
    refused(archive().entry("a/data/0", &[0; 16]).entry("a/data/0", &[0; 16]).finish(), "twice");
    refused(archive().entry("b/data.pkl", b".").finish(), "one data.pkl");
    refused(archive().raw("a/data/0", &[0; 16], 0, 16, 1 << 30).finish(), "equal sizes");
    refused(archive().raw("a/data/0", &[0; 16], 0, 1 << 30, 1 << 30).finish(), "needs");
    refused(archive().raw("a/data/0", &[3, 0], 8, 2, 1 << 30).finish(), "at most");
    refused(archive().raw("a/data/0", &[0; 16], 99, 16, 16).finish(), "method 99");
    refused(archive().entry("a/data/0", &[0; 8]).finish(), "needs 16 bytes");
    refused(archive().entry("a/byteorder", b"big").finish(), "big-endian");
    refused(Zip::default().raw("a/data.pkl", b"", 0, 1 << 30, 1 << 30).finish(), "more than");
    refused(Zip::default().entry("readme.txt", b"").finish(), "readme.txt");
    // Two entries on the same bytes, which is how a few kilobytes claim to be terabytes.
    let shared = archive().entry("a/data/0", &[0; 16]).overlapping("a/data/1").finish();
    refused(shared, "bytes of its own");
}

/// An archive of files is unpacked into a folder of its own, and nowhere else.
#[test]
fn archives_stay_in_their_folder() {
    let one = safetensors(r#"{"data":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 4);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump.zip");
    let opened = |name: &str| {
        let archive = Zip::default().entry("x.safetensors", &one).entry(name, &one).finish();
        std::fs::write(&file, archive).unwrap();
        Dump::open(&file)
    };
    assert_eq!(opened("in/y.safetensors").unwrap().tensors().len(), 2);
    for name in ["../y.safetensors", "in/../../y.safetensors", "/y.safetensors"] {
        let error = opened(name).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("leads out"), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn arrays_that_lie() {
    let npy = |header: &str| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend([0; 16]);
        Zip::default().entry("w.npy", &bytes).finish()
    };
    let of = |descr: &str, shape: &str| {
        npy(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"))
    };
    assert!(open(of("'<f4'", "(2, 2)")).is_ok());
    assert!(open(of("'|V2'", "(2, 2)")).is_ok());
    refused(of("'<f4'", "(2, 3)"), "needs 24 bytes");
    refused(of("'<f4'", "(18446744073709551615, 2)"), "\"w\"");
    refused(of("'<f4'", "(-1,)"), "shape");
    refused(of("'|O'", "(1,)"), "pickle");
    refused(of("[('a', '<f4')]", "(1,)"), "structured");
    refused(of("'>f4'", "(1,)"), "big-endian");
    refused(of("'<f4'", &format!("({})", "1,".repeat(65))), "64 dimensions");
    refused(npy("nothing"), "descr");
}

#[test]
fn what_is_no_checkpoint_is_named() {
    for (bytes, name) in [
        (b"<!DOCTYPE html><html>" as &[u8], "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"{\"a\": 1}", "JSON"),
        (b"# A read me file", "begins \"# A read me file\""),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"%PDF-1.7\n%\xe2", "PDF"),
        (&[0; 64], "zero"),
        (b"APRN\x01", "version 1"),
        (b"\x08\x07\x12\x07pytorch", "ONNX"),
        (b"\x80\x04K\x01.", "pickle"),
        (b"\xfe\xdc\xba", "fe dc ba"),
        (b"", "empty"),
    ] {
        refused(bytes.to_vec(), name);
    }
}
