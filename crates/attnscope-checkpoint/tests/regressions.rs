//! Inputs that once crashed the fuzzer, opened again. They are in `fuzz/regressions`, a folder for each target.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests too.

use std::path::Path;

#[path = "../../../fuzz/src/checkpoint.rs"]
#[allow(clippy::indexing_slicing, clippy::panic, unreachable_pub, missing_docs)]
mod checkpoint;

fn replay(target: &str, open: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions").join(target);
    // A target that never crashed has no folder.
    for file in std::fs::read_dir(folder).into_iter().flatten() {
        let path = file.unwrap().path();
        println!("{}", path.display());
        open(&std::fs::read(path).unwrap());
    }
}

#[test]
fn files() {
    for target in ["safetensors", "pytorch", "gguf", "ggml", "npz"] {
        replay(target, checkpoint::open);
    }
}

#[test]
fn pickles() {
    replay("pickle", checkpoint::pickle);
}

#[test]
fn apr_files_with_their_checksums_put_right() {
    replay("apr", checkpoint::apr);
}
