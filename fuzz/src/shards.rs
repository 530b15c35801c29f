//! Opens the index of a sharded model beside two shards.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use attnscope_checkpoint::Checkpoint;

use crate::files;

const INDEX: &str = "model.safetensors.index.json";

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let one = files::safetensors(&[("a", &[2, 3]), ("b", &[4])]);
    let two = files::safetensors(&[("c", &[1])]);
    files::folder("shards", &[("1.safetensors", &one), ("2.safetensors", &two)])
});

/// By the folder, as it is mostly given.
pub fn open(bytes: &[u8]) {
    files::write(&FOLDER.join(INDEX), bytes);
    let Ok(checkpoint) = Checkpoint::open(&FOLDER) else { return };
    let names: HashSet<&str> = checkpoint.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert!(names.iter().all(|name| ["a", "b", "c"].contains(name)), "{names:?}");
    for tensor in checkpoint.tensors() {
        assert!(checkpoint.read_f32(tensor).is_ok_and(|values| values.len() == tensor.elements()));
    }
}
