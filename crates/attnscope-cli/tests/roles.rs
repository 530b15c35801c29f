//! Only the graph is asked: outside of `attnscope-graph` no code knows a node by the text of its path, and nobody reads the
//! wiring but to show or to edit it. A node has a `Role`, a weight a `WeightRole`, and `Graph` and `Model` have the facts.

#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::root;

/// The crates that ask the graph.
const CRATES: [&str; 8] = [
    "attnscope",
    "attnscope-corpus",
    "attnscope-run",
    "attnscope-train",
    "attnscope-diagnose",
    "attnscope-render",
    "attnscope-cli",
    "attnscope-server",
];

/// Where the text of a path, or the wiring, may stand, and why: a place, a part of the line, the reason.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("diagnose/src/diff/names.rs", "", "the table of other programs' names"),
    ("diagnose/src/diff/order.rs", "", "names by which an order of computation is recognised"),
    ("diagnose/src/diff/side.rs", "", "names by which dumps hold what a model reads"),
    ("diagnose/src/diff/swapped_layers.rs", "", "tensors of a file, whose model need not be known"),
    ("diagnose/src/diff/candidate/mod.rs", "rsplit_once", "a step beside another one, by the last segment"),
    ("diagnose/src/diff/candidate/attention.rs", "rsplit_once", "a step beside another one"),
    ("corpus/src/reading/", "", "columns within columns of a user's corpus"),
    ("run/src/audio/array.rs", "NAMES", "names by which files hold features"),
    ("attnscope/src/toy.rs", "", "tensor names of the toy's file"),
    ("cli/src/command/tour.rs", "Pick::Nodes", "a selector, as a user would write it"),
    ("attnscope/src/explain/topic.rs", "", "paths that a user writes, and examples of them"),
    ("attnscope/src/explain/alias.rs", "", "words that a user writes"),
    ("attnscope/src/explain/node.rs", "path.leaf()", "shown"),
    ("attnscope/src/layers.rs", "", "shown: a path with N for its layer"),
    ("attnscope/src/traced_nodes.rs", "", "shown: a path without what the one before it says"),
    ("diagnose/src/cell/mod.rs", "path.leaf()", "shown"),
    ("render/src/flow/block.rs", "path.leaf()", "shown"),
    ("attnscope/src/answer/flow.rs", "path.leaf()", "shown"),
    ("attnscope/src/summary.rs", "split('.')", "shown: a row for each segment"),
    ("attnscope/src/kept_run.rs", "strip_prefix(GRADIENT)", "the name of a gradient, which a user writes"),
    ("attnscope/src/report/cells.rs", "attention.path", "an answer's attention, which has only its path"),
    ("attnscope/src/answer/summary.rs", "rsplit('.')", "shown: the last segment"),
    ("diagnose/src/wiring/", "wiring", "hypotheses are edits of the wiring"),
    ("diagnose/src/rules/dead_head.rs", "rewired(", "the model built again"),
    ("diagnose/src/score/mod.rs", "rewired(", "the model built again"),
    ("diagnose/src/misconversion/judge.rs", "wiring.scores", "a trial of another wiring"),
    ("train/src/", "wiring", "dropout is an edit; a new model is planned by its family's wiring"),
    ("attnscope/src/inspect.rs", "to_value(model.wiring)", "shown"),
    ("attnscope/src/kept_run.rs", "self.wiring", "shown"),
    ("attnscope/src/answer/", ".wiring", "shown"),
    ("attnscope/src/explain/concept/stream.rs", "wiring", "shown: the page puts the wiring into words"),
    ("cli/src/command/", ".wiring", "what the user gave"),
];

/// Methods that look into a text.
const LOOKS: [&str; 11] = [
    "starts_with(",
    "ends_with(",
    "contains(",
    "strip_prefix(",
    "strip_suffix(",
    "trim_end_matches(",
    "split(",
    "split_once(",
    "rsplit(",
    "rsplit_once(",
    "replacen(",
];

/// Segments that only our paths have.
const PARTS: [&str; 3] = ["self_attn", "cross_attn", "ffn"];
/// Segments that paths begin with, and those that they go on with.
const BEGIN: [&str; 6] = ["src", "tgt", "audio", "encoder", "decoder", ""];
const GO_ON: [&str; 26] = [
    "ids",
    "embed",
    "embed_pos",
    "positions",
    "mel",
    "conv1",
    "conv2",
    "in",
    "out",
    "q",
    "k",
    "v",
    "q_heads",
    "k_heads",
    "v_heads",
    "scores",
    "bias",
    "mask",
    "masked_scores",
    "weights",
    "weight",
    "context",
    "norm",
    "residual",
    "hidden",
    "gate",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(of).filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

/// Whether a text is a path of a node or of a weight, or a part of one.
fn is_path(text: &str) -> bool {
    let is_of_paths = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.*{}<".contains(c);
    let segments: Vec<&str> = text.trim_start_matches('<').split('.').collect();
    let is_ours = |segment: &&str| PARTS.contains(segment) || segment.ends_with("_attn");
    let begins = |first: &str| BEGIN.contains(&first) || first.starts_with('{');
    let goes_on = || segments[1..].iter().any(|segment| GO_ON.contains(segment));
    !text.is_empty()
        && text.chars().all(is_of_paths)
        && (segments.iter().any(is_ours) || (segments.len() > 1 && begins(segments[0]) && goes_on()))
}

/// The texts between quotes of a line.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// Whether a line looks into a path: `node.path.leaf() == …`, `path.as_str().ends_with(…)`.
fn looks_into_a_path(line: &str) -> bool {
    let names = ["path.leaf()", "path.part()", "path.within_layer()"];
    let after = |at: usize| line[at..].trim_start_matches(".as_str()").strip_prefix('.');
    let looks = |rest: &str| LOOKS.iter().any(|method| rest.starts_with(method));
    names.iter().any(|name| line.contains(name))
        || line.match_indices("path").any(|(at, word)| after(at + word.len()).is_some_and(looks))
}

/// Whether a line reads a wiring: `model.wiring`, `wiring.norm_place`.
fn reads_a_wiring(line: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices("wiring").any(|(at, word)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let is_field = before.ends_with('.') && !before.ends_with("..") && !after.starts_with(is_word);
        let has_field = after.strip_prefix('.').is_some_and(|rest| rest.starts_with(char::is_lowercase));
        let is_call = after.starts_with('(');
        !is_call && (is_field || (has_field && !before.ends_with(is_word)))
    })
}

fn is_suspect(line: &str) -> bool {
    let is_comment = line.trim_start().starts_with("//");
    !is_comment && (literals(line).any(is_path) || looks_into_a_path(line) || reads_a_wiring(line))
}

#[test]
fn suspects_are_seen() {
    for line in [
        r#"if node.path.leaf() == "out" {"#,
        r#"weight.path.ends_with("norm.weight")"#,
        r#"graph.find(&format!("decoder.{layer}.cross_attn.{stage}"))"#,
        r#"format!("{module}.weight")"#,
        r#"path.as_str().split('.')"#,
        r#".find("src.embed_pos")"#,
        r#"part == "ffn""#,
        "model.wiring.padding_mask == Switch::Off",
        "let w = &setup.wiring;",
        "match wiring.norm_place {",
    ] {
        assert!(is_suspect(line), "{line}");
    }
    for line in [
        r#"/// `decoder.0.cross_attn.q`"#,
        r#"page.words("q from the decoder, k and v from encoder.out");"#,
        "node.role.part() == Some(part)",
        "thresholds.wiring_p",
        "use crate::wiring::Search;",
        "model.with_wiring(&edits)",
        r#""the wiring. Other words""#,
    ] {
        assert!(!is_suspect(line), "{line}");
    }
}

#[test]
fn only_the_graph_is_asked() {
    let (mut found, mut used) = (Vec::new(), BTreeSet::new());
    for name in CRATES {
        for file in sources(&root().join("crates").join(name).join("src")) {
            let name = file.display().to_string();
            if name.ends_with("tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().filter(|line| is_suspect(line)) {
                let allowed =
                    ALLOWED.iter().position(|(place, part, _)| name.contains(place) && line.contains(part));
                match allowed {
                    Some(at) => drop(used.insert(at)),
                    None => found.push(format!("{name}: {}", line.trim())),
                }
            }
        }
    }
    assert!(found.is_empty(), "ask the graph, or say in ALLOWED why not: {found:#?}");
    let unused: Vec<_> = (0..ALLOWED.len()).filter(|at| !used.contains(at)).map(|at| ALLOWED[at]).collect();
    assert!(unused.is_empty(), "no longer needed: {unused:#?}");
}
