//! Opens an input as what another program left behind, and reads its tensors.

use std::path::PathBuf;
use std::sync::LazyLock;

use attnscope_checkpoint::Dump;

use crate::files;

/// Larger tensors are not read: the rest is the same code again.
const SMALL: usize = 16 << 10;

/// By its name a tree of calls is told from other JSON.
const TREE: &str = "Model_debug_tree_FULL_TENSORS.json";

/// Files that a tree may name, and one that it may leave out.
static BESIDE_TREE: LazyLock<PathBuf> = LazyLock::new(|| {
    let one = files::safetensors(&[("data", &[2, 3])]);
    let names = ["a.safetensors", "Model.b_outputs.safetensors", "Model.c_inputs_args_0.safetensors"];
    files::folder("tree", &names.map(|name| (name, one.as_slice())))
});

static ALONE: LazyLock<PathBuf> = LazyLock::new(|| files::folder("dump", &[]).join("dump"));

/// JSON, Polygraphy's or not, a debugger's tree, a zip, a NumPy array, or a file of tensors: told by content, as always,
/// but for a tree, which is what says `module_path`.
pub fn open(bytes: &[u8]) {
    let is_tree = bytes.windows(11).any(|word| word == b"module_path");
    let path = if is_tree { BESIDE_TREE.join(TREE) } else { ALONE.clone() };
    files::write(&path, bytes);
    let Ok(dump) = Dump::open(&path) else { return };
    assert!(dump.written_in_order() <= dump.tensors().len());
    for tensor in dump.tensors().iter().filter(|tensor| tensor.elements() <= SMALL).take(64) {
        assert!(dump.tensor(&tensor.name).is_some());
        let Ok(values) = dump.values(tensor) else { continue };
        assert_eq!(values.len(), tensor.elements(), "{tensor:?}");
        if let Ok(all) = dump.read(tensor) {
            let mut end = Vec::new();
            let half = all.len() / 2;
            assert!(values.get(half..usize::MAX, &mut end).is_ok());
            let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&end), bits(&all[half..]), "{tensor:?}");
        }
    }
}
