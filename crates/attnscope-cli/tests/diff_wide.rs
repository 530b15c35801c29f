//! `diff` at the width of a real model: a BART of base width, its weights drawn from seeds, against what hooks on Hugging
//! Face's code left of it. `bench/diff` does the same for whole models; this is the part of it that fits in a test.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::path::Path;

use attnscope::checkpoint::{DType, Entry, Target, write};
use attnscope::run::SplitMix;
use common::{attnscope, expected, fixture, stderr, stdout};
use serde_json::{Map, Value};

/// The model's folder and our trace of it.
struct Wide {
    folder: tempfile::TempDir,
    expected: Value,
}

impl Wide {
    fn new() -> Self {
        let (folder, expected) = (tempfile::tempdir().unwrap(), expected("wide"));
        let drawn: Vec<(String, Vec<usize>, Vec<u8>)> =
            expected["tensors"].as_array().unwrap().iter().enumerate().map(tensor).collect();
        let entries = drawn.into_iter().map(|(name, shape, bytes)| Entry {
            name,
            dtype: DType::F32,
            shape,
            bytes: Box::new(move |sink| sink(&bytes)),
        });
        let file = folder.path().join("model.safetensors");
        write(Target::Safetensors, &file, entries.collect(), &Map::new()).unwrap();
        std::fs::write(folder.path().join("config.json"), expected["config"].to_string()).unwrap();
        let made = Self { folder, expected };
        made.trace();
        made
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn trace(&self) {
        let ids = |key: &str| {
            let row = self.expected[key][0].as_array().unwrap();
            row.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
        };
        let model = self.folder.path().display().to_string();
        let (source, target, save) = (ids("source"), ids("target"), self.path("trace"));
        let made =
            attnscope(&["trace", &model, "--src-ids", &source, "--tgt-ids", &target, "--save", &save, "-q"]);
        assert!(made.status.success(), "{}", stderr(&made));
    }

    /// `diff` of our trace and a stored dump: the exit code and the report.
    fn diff(&self, dump: &str) -> (i32, Value) {
        let theirs = fixture(&format!("wide/{dump}.safetensors"));
        assert!(Path::new(&theirs).exists(), "{theirs}");
        let output = attnscope(&["diff", &self.path("trace"), &theirs, "--format", "json", "-q"]);
        let code = output.status.code().unwrap();
        assert!(code != 2, "{dump}: {}", stderr(&output));
        (code, serde_json::from_str(&stdout(&output)).unwrap())
    }
}

/// A tensor as `fixtures/wide/make.py` draws it: its place in the list is the seed.
fn tensor((seed, listed): (usize, &Value)) -> (String, Vec<usize>, Vec<u8>) {
    let shape: Vec<usize> =
        listed["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    let number = |key: &str| listed[key].as_f64().unwrap() as f32;
    let (amplitude, middle) = (number("amplitude"), number("middle"));
    let mut random = SplitMix::new(seed as u64);
    let mut values: Vec<f32> =
        (0..shape.iter().product()).map(|_| random.unit() * amplitude + middle).collect();
    values[0] += listed["added_to_the_first"].as_f64().unwrap_or(0.0) as f32;
    let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    (listed["name"].as_str().unwrap().to_owned(), shape, bytes)
}

#[test]
fn only_the_bugs_are_accused_at_real_width() {
    let wide = Wide::new();
    let (code, report) = wide.diff("f32");
    assert_eq!(code, 0, "no bug, f32: {}", report["first_divergence"]);
    assert!(report["nodes"].as_array().unwrap().len() >= 30);

    let (code, report) = wide.diff("bf16");
    assert_eq!(code, 0, "no bug, bf16: {}", report["first_divergence"]);

    let (code, report) = wide.diff("other_ids");
    assert_eq!((code, report["inputs"].as_str()), (1, Some("different")), "{}", report["first_divergence"]);
    assert!(report["first_divergence"].is_null());

    for (name, node) in wide.expected["planted"].as_object().unwrap() {
        let (code, report) = wide.diff(name);
        let first = &report["first_divergence"];
        assert_eq!((code, &first["node"], first["kind"].as_str()), (1, node, Some("bug")), "{name}: {first}");
    }
}
