//! Which files an output may replace.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::error::{Error, ErrorKind};
use crate::{format, inputs};

/// What of the files that are there an output may replace. Empty files always; inputs of this process, models and tensors never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// None.
    Nothing,
    /// Results of before that say whose they are: JSON of an answer, SARIF, SVG, a page, DOT or Mermaid.
    Results,
    /// Any other, because the user said so.
    Anything,
}

/// What makes a file a result: how it begins, without blank characters, and what follows soon. Text has no such mark: what
/// looks like it can be anybody's.
const MARKS: [(&str, &str); 6] = [
    // Every answer begins with the version of its schema.
    ("{\"schema\":", ""),
    // SARIF names the tool.
    ("{\"$schema\":", "\"name\":\"attnscope\""),
    ("<!DOCTYPEhtml>", "<metaname=\"generator\"content=\"attnscope\">"),
    ("<svg", "class=\"attnscope\""),
    ("digraphattnscope{", ""),
    ("---title:\"", "\"---flowchartTBsubgraphd0["),
];

/// The bytes in which the marks of a result are.
const START: u64 = 2048;

/// A saved trace has such a description beside its tensors: a part of it, not a result by itself.
const TRACE_DESCRIPTION: &str = "trace.json";

/// Whether a result may be written to a file.
///
/// # Errors
/// When it may not, or is a folder.
pub fn check_output(path: &Path, replace: Replace) -> Result<(), Error> {
    // A file that does not exist or cannot be read is left to the writer.
    let Ok(meta) = fs::metadata(path) else { return Ok(()) };
    if meta.is_dir() {
        let what = "expected the name of a file, found a folder".into();
        return Err(Error::new(
            path,
            ErrorKind::Unsupported { what, help: "give the name of a file in it".into() },
        ));
    }
    // Writing to a pipe or a device replaces nothing.
    if !meta.is_file() || meta.len() == 0 {
        return Ok(());
    }
    let kept =
        |what: String, may_be_replaced| Err(Error::new(path, ErrorKind::Kept { what, may_be_replaced }));
    if inputs::is_input(path, &meta) {
        return kept("it is an input of this command or a file of its model".into(), false);
    }
    if let Some(format) = format::tensors_in(path) {
        return kept(format!("it holds a model or tensors ({format})"), false);
    }
    match replace {
        Replace::Anything => Ok(()),
        Replace::Results if is_result(path) => Ok(()),
        Replace::Results => kept("it does not say that it is a result of attnscope".into(), true),
        Replace::Nothing => kept("it exists".into(), false),
    }
}

/// Whether a file says by its content that it is a result of before: JSON of an answer, SARIF, SVG, a page, DOT or Mermaid.
fn is_result(path: &Path) -> bool {
    if path.file_name().is_some_and(|name| name == TRACE_DESCRIPTION) {
        return false;
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(START).read_to_end(&mut start));
    let dense: String = String::from_utf8_lossy(&start).split_whitespace().collect();
    read.is_ok() && MARKS.iter().any(|(first, then)| dense.starts_with(first) && dense.contains(then))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_input;

    #[test]
    fn what_was_read_is_kept_under_every_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("read"), "text").unwrap();
        fs::write(at("other"), "text").unwrap();
        fs::hard_link(at("read"), at("link")).unwrap();
        check_output(&at("read"), Replace::Anything).unwrap();
        open_input(&at("read")).unwrap();
        for name in ["read", "link", "./read"] {
            let error = check_output(&at(name), Replace::Anything).unwrap_err();
            assert!(error.to_string().contains("an input of this command"), "{error}");
        }
        check_output(&at("other"), Replace::Anything).unwrap();
        check_output(&at("absent"), Replace::Nothing).unwrap();
        let error = check_output(folder.path(), Replace::Anything).unwrap_err();
        assert!(error.to_string().contains("a folder"), "{error}");
    }

    #[test]
    fn tensors_of_any_program_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cases: [(&[u8], &str); 5] = [
            (b"GGUF\x03\0\0\0", "gguf"),
            (b"\x93NUMPY\x01\0", "npy"),
            (b"\x89HDF\r\n\x1a\n", "HDF5"),
            (b"\x08\x07\x12\x07pytorch\x3a\x02", "ONNX"),
            (b"APRN\x01\0", "apr"),
        ];
        for (bytes, name) in cases {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let error = check_output(&path, Replace::Anything).unwrap_err();
            assert!(error.to_string().contains(&format!("({name})")), "{error}");
        }
    }

    #[test]
    fn only_results_that_say_so_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cases = [
            ("empty", "", true),
            ("answer.json", "{\n  \"schema\": 1,\n  \"model\": \"demo\"", true),
            (
                "drawing.svg",
                "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"attnscope\" width=\"1\">",
                true,
            ),
            ("drawing.dot", "digraph attnscope {\n", true),
            ("trace.json", "{\"schema\":1,\"model\":\"demo\"", false),
            ("package.json", "{\"name\": \"attnscope\", \"schema\": 1}", false),
            ("metrics.jsonl", "{\"kind\":\"train\",\"step\":1}\n", false),
            ("recipe.toml", "[model]\n", false),
            ("rows.csv", "text,label\n", false),
            ("other.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\">", false),
            ("other.dot", "digraph model {\n", false),
            ("text.txt", "demo: Marian\n", false),
        ];
        for (name, text, is_replaced) in cases {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            assert_eq!(check_output(&path, Replace::Results).is_ok(), is_replaced, "{name}");
            assert_eq!(check_output(&path, Replace::Nothing).is_ok(), text.is_empty(), "{name}");
            check_output(&path, Replace::Anything).unwrap();
        }
    }
}
