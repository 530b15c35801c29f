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
    assert!(Dump::open(dir.path()).unwrap_err().help().contains("use_repr=False"));
}
