//! The library speaks of no flag: an error carries an `Argument` and a `Remedy`, and the command line has the words.

#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

mod common;

use std::path::{Path, PathBuf};

use common::{attnscope, fixture, root, stderr};

const LIBRARIES: [&str; 5] =
    ["attnscope", "attnscope-checkpoint", "attnscope-graph", "attnscope-run", "attnscope-diagnose"];

/// Where a flag or a command may stand in a string, and why.
const ALLOWED: [(&str, &str, &str); 9] = [
    ("checkpoint/src", "hf download", "another program's flag"),
    (
        "diagnose/src/rules/",
        "",
        "the pages of rules, which `explain RULE` and docs/rules.md print as they are",
    ),
    ("attnscope/src/explain/", "", "the pages of explain"),
    ("diagnose/src/diff/relation.rs", "(`--checkpoint`)", "the table of relations in docs/diff.md"),
    ("diagnose/src/rule_context.rs", "--repair-time is 0", "a value of `why` in JSON"),
    ("graph/src/", "\"--heads\"", "a value of `source` in JSON"),
    ("graph/src/rewire.rs", "\"--wiring\"", "a value of `source` in JSON"),
    ("graph/src/recognise.rs", "give it with --heads", "a value of `obstacles` in JSON"),
    ("run/src/generate/settings.rs", "only with --max-length", "a value of `not_done` in JSON"),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(of).filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

/// Whether a line of code names a flag or one of our commands.
fn names_a_flag(line: &str) -> bool {
    let flag = line.match_indices("--").any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + 2..].chars().next();
        before != Some('-') && after.is_some_and(|c| c.is_ascii_lowercase())
    });
    let is_code = line.trim_start();
    (flag || line.contains("`attnscope ")) && !is_code.starts_with("//")
}

#[test]
fn no_string_of_a_library_names_a_flag() {
    assert!(names_a_flag("    \"give it with --heads\",") && !names_a_flag("/// With `--heads`."));
    let mut found = Vec::new();
    let mut used = [false; ALLOWED.len()];
    for library in LIBRARIES {
        for file in sources(&root().join("crates").join(library).join("src")) {
            let name = file.display().to_string();
            let is_test = name.ends_with("tests.rs");
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().filter(|line| !is_test && names_a_flag(line)) {
                let allowed =
                    ALLOWED.iter().position(|(place, part, _)| name.contains(place) && line.contains(part));
                match allowed {
                    Some(at) => used[at] = true,
                    None => found.push(format!("{name}: {}", line.trim())),
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    let unused: Vec<&str> = ALLOWED.iter().zip(used).filter(|(_, used)| !used).map(|(a, _)| a.0).collect();
    assert!(unused.is_empty(), "no longer needed: {unused:?}");
}

/// The words of the command line around what the library says.
#[test]
fn errors_name_the_flag_that_they_are_about() {
    let marian = fixture("marian");
    for (args, error, help) in [
        (
            &["trace", "demo", "--row", "3"][..],
            "error: --row 3: the batch has 1 row\n",
            "help: rows are counted from 0\n",
        ),
        (
            &["trace", "demo", "--layer", "nosuch"],
            "error: --layer \"nosuch\" picks none of the 133 nodes\n",
            "help: the nearest",
        ),
        (
            &["trace", "demo", "--snapshots", "99"],
            "error: --snapshots: expected numbers from 1 to 43, found \"99\"\n",
            "help: write",
        ),
        (
            &["trace", "demo", "--head", "9"],
            "error: --head 9: decoder.0.cross_attn.weights has 4 heads\n",
            "help: heads",
        ),
        (&["explain", "softmax", "--at", "0"], "error: --at: the topic has no cells\n", "help: name a node"),
        (
            &["explain", "--walk", "--layer-index", "9"],
            "error: --layer-index 9: the model has 2 encoder and 2 decoder layers\n",
            "help:",
        ),
        (
            &["flow", "demo", "--wiring", "x"],
            "error: --wiring x: expected FIELD=VALUE, found no =\n",
            "help: write it as in --wiring",
        ),
        (
            &["trace", "demo", "--audio", "x.wav"],
            "error: demo: --audio is for audio models",
            "help: give --src TEXT",
        ),
        (
            &["generate", "demo", "--align-heads", "9.9"],
            "error: --align-heads ",
            "help: `attnscope trace --head all`",
        ),
        (
            &["trace", &marian],
            &format!("error: {marian}: nothing to read\n"),
            "help: give a text with --src TEXT",
        ),
        (
            &["summary", &fixture("torch-nn/model.pt")],
            "error: ",
            "help: give the number of heads with --heads",
        ),
    ] {
        let output = attnscope(args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(error) && said.contains(help), "{args:?}: {said}");
    }
}
