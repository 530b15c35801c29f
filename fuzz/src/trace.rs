//! Opens a saved trace whose `trace.json` is the input, asks it everything, and compares it with itself.

use std::path::PathBuf;
use std::sync::LazyLock;

use attnscope_diagnose::diff::{Options, Side, compare};
use attnscope_graph as graph;
use attnscope_run::trace::Trace;

use crate::files;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    // Of a toy that reads two words and writes two.
    let tensors: [(&str, &[usize]); 3] = [
        ("encoder.0.self_attn.weights", &[1, 4, 2, 2]),
        ("decoder.0.self_attn.weights", &[1, 4, 2, 2]),
        ("logits", &[1, 2, 2]),
    ];
    files::folder("trace", &[("trace.safetensors", &files::safetensors(&tensors))])
});

/// What `diff` and `check --trace` ask of a trace.
pub fn open_and_compare(bytes: &[u8]) {
    files::write(&FOLDER.join("trace.json"), bytes);
    let Ok(trace) = Trace::open(&FOLDER) else { return };
    for node in trace.nodes.iter().filter(|node| node.saved) {
        let kept = trace.read(&node.path).ok().flatten();
        assert_eq!(kept.map(|kept| kept.shape), Some(node.shape.clone()), "{}", node.path);
    }
    for side in [graph::Side::Source, graph::Side::Target] {
        if let Ok(rows) = trace.tokens(side) {
            assert_eq!(rows.ids().len(), rows.open().len());
        }
        drop(trace.sentences(side));
    }
    drop((trace.model(), trace.checksums(), trace.heads()));
    let Ok(side) = Side::open(&FOLDER) else { unreachable!("it was open a moment ago") };
    if let Ok(report) = compare(&side, &side, None, &Options::default()) {
        assert!(!report.differs());
    }
}
