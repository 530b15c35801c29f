use super::scan::{Item, numbers, scan};
use super::*;

fn shape(text: &str) -> Option<Vec<usize>> {
    match scan(text.as_bytes()).ok()? {
        Item::Numbers { shape, .. } => Some(shape),
        _ => None,
    }
}

#[test]
fn nested_lists_have_shapes() {
    assert_eq!(shape("[[1, 2.5e3], [-Infinity, null], [NaN, true]]"), Some(vec![3, 2]));
    assert_eq!(shape("[[1], [2, 3]]"), None);
    assert_eq!(shape(" [ ] "), Some(vec![0]));
    assert_eq!(numbers(b"[[1, -2], [3e0,4]]", 4).unwrap(), [1.0, -2.0, 3.0, 4.0]);
    assert!(numbers(b"[1]", 2).is_err());
}

#[test]
fn broken_text_is_an_error() {
    for bad in ["", "[", "[1", "[1,]", "{\"a\" 1}", "{\"a\":}", "[1] 2", "[x]", "\"abc", "{\"a\\", "[--1]"] {
        assert!(scan(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(scan("[".repeat(100_000).as_bytes()).is_err());
    assert!(scan("{\"a\":".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn tensors_of_json_go_by_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump.json");
    let text = r#"{"encoder": {"out": [[1, 2], [3, 4]]}, "nodes": [{"path": "logits", "shape": [1, 2], "values": [5, 6]}], "n": 3}"#;
    std::fs::write(&file, text).unwrap();
    let dump = Dump::open(&file).unwrap();
    let listed: Vec<_> = dump.tensors().iter().map(|t| (t.name.as_str(), t.shape.as_slice())).collect();
    assert_eq!(listed, [("encoder.out", &[2, 2][..]), ("logits", &[1, 2][..])]);
    assert_eq!(dump.read(dump.tensor("logits").unwrap()).unwrap(), [5.0, 6.0]);
    let values = dump.values(dump.tensor("encoder.out").unwrap()).unwrap();
    let mut some = Vec::new();
    values.get(1..3, &mut some).unwrap();
    assert_eq!(some, [2.0, 3.0]);
    values.get(3..9, &mut some).unwrap();
    assert_eq!(some, [4.0]);
}

/// A header of 0x7b20 bytes: its length begins with a space and a brace.
#[test]
fn a_length_that_looks_like_json_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump.safetensors");
    let mut bytes = 0x7b20u64.to_le_bytes().to_vec();
    bytes.extend(br#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#);
    bytes.resize(8 + 0x7b20, b' ');
    bytes.extend(2.5f32.to_le_bytes());
    std::fs::write(&file, bytes).unwrap();
    let dump = Dump::open(&file).unwrap();
    assert_eq!(dump.kind(), DumpKind::Arrays);
    assert_eq!(dump.read(dump.tensor("x").unwrap()).unwrap(), [2.5]);
}

#[test]
fn base64_is_read_and_nothing_else() {
    assert_eq!(base64(b"IQ==").as_deref(), Some(b"!".as_slice()));
    assert_eq!(base64(b"IHRoIQ==").as_deref(), Some(b" th!".as_slice()));
    assert_eq!(base64(b"").as_deref(), Some(b"".as_slice()));
    for bad in ["IQ", "I===", "I!==", "=IQ=", "IQ==IQ=="] {
        assert_eq!(base64(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn a_tree_stays_in_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("M_debug_tree_FULL_TENSORS.json");
    for (value, word) in [
        ("../secret.safetensors", "same folder"),
        ("/etc/passwd", "same folder"),
        ("./gone.safetensors", "gone"),
    ] {
        let text =
            format!(r#"{{"module_path": "M", "outputs": {{"dtype": "torch.float32", "value": "{value}"}}}}"#);
        std::fs::write(&tree, text).unwrap();
        let error = Dump::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    std::fs::write(
        &tree,
        r#"{"module_path": "M", "outputs": {"dtype": "torch.float32", "value": ["tensor(…)"]}}"#,
    )
    .unwrap();
    assert!(Dump::open(dir.path()).unwrap_err().remedy().to_string().contains("use_repr=False"));
}

/// Thirty folders that each hold two links to the next: a billion ways to the last.
#[cfg(unix)]
#[test]
fn a_folder_is_looked_into_once_however_many_links_lead_there() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let at = |n: usize| dir.path().join(format!("{n:02}"));
    for n in 0..30 {
        std::fs::create_dir(at(n)).unwrap();
        for link in ["left", "right"] {
            symlink(at((n + 1) % 30), at(n).join(link)).unwrap();
        }
    }
    std::fs::write(at(5).join("x.npy"), npy("'<f4'", "(1,)", &1f32.to_le_bytes())).unwrap();
    let dump = Dump::open(dir.path()).unwrap();
    assert_eq!(dump.tensors().len(), 1);
}

/// A file in column-major order is read in pieces, in the node's order.
#[test]
fn views_are_read_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let values: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let mut bytes = npy("'<f4'", "(2, 3)", &values);
    let order = bytes.windows(5).position(|w| w == b"False").unwrap();
    bytes[order..order + 5].copy_from_slice(b"True ");
    std::fs::write(dir.path().join("x.npy"), bytes).unwrap();
    let dump = Dump::open(&dir.path().join("x.npy")).unwrap();
    let elements = dump.values(&dump.tensors()[0]).unwrap();
    let mut some = Vec::new();
    elements.get(1..5, &mut some).unwrap();
    assert_eq!(some, [2.0, 4.0, 1.0, 3.0]);
    assert_eq!(dump.read(&dump.tensors()[0]).unwrap(), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
}

/// A NumPy file.
fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), values].concat()
}
