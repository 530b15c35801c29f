//! Files that lie beside an input, and the folder they lie in.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

/// A folder of this process. `scripts/fuzz` removes the temporary folder that it is in.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("attnscope-fuzz-{}", std::process::id()));
    assert!(std::fs::create_dir_all(&folder).is_ok(), "no folder for files");
    folder
});

/// A folder in the process's own, with files in it.
pub(crate) fn folder(name: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let folder = FOLDER.join(name);
    assert!(std::fs::create_dir_all(&folder).is_ok(), "no folder {name}");
    for (name, bytes) in files {
        write(&folder.join(name), bytes);
    }
    folder
}

/// Writes an input to where a reader looks for it.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    assert!(std::fs::write(path, bytes).is_ok(), "no room for {}", path.display());
}

/// A safetensors file of f32 tensors of these names and shapes, whose values are 0, 1, 2, …
pub(crate) fn safetensors(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let mut entries = Map::new();
    let mut values = Vec::new();
    for (name, shape) in tensors {
        let start = values.len();
        for i in 0..shape.iter().product::<usize>() {
            values.extend((i as f32).to_le_bytes());
        }
        let place = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, values.len()] });
        entries.insert((*name).to_owned(), place);
    }
    let header = Value::Object(entries).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &values].concat()
}
