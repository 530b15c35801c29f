//! A recipe as a model: what training would write, without a value of it.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::{attnscope, json, root, stderr, stdout};

fn refused(args: &[&str]) -> String {
    let output = attnscope(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stdout(&output));
    stderr(&output)
}

/// The figures that the lecture printed with torchsummary and torchinfo.
#[test]
fn the_summaries_of_the_lecture() {
    let figures = [
        ("imdb-mlp", "68,228,482", "68.23", None),
        ("imdb-conv", "4,641,538", "35.38", None),
        ("imdb-conv-maxpool", "2,806,402", "27.58", Some(["0.12", "0.70", "10.71", "11.53"])),
    ];
    for (recipe, parameters, multiply_adds, megabytes) in figures {
        let output = attnscope(&["summary", recipe]);
        assert!(output.status.success(), "{recipe}: {}", stderr(&output));
        let text = stdout(&output);
        for expected in [parameters, multiply_adds].into_iter().chain(megabytes.into_iter().flatten()) {
            assert!(text.contains(expected), "{recipe}: no {expected} in\n{text}");
        }
    }
}

#[test]
fn every_recipe_is_drawn_and_inspected() {
    for file in std::fs::read_dir(root().join("recipes")).unwrap() {
        let path = file.unwrap().path().display().to_string();
        for command in ["summary", "flow", "inspect"] {
            let output = attnscope(&[command, &path]);
            assert!(output.status.success(), "{command} {path}: {}", stderr(&output));
        }
        let inspection = json(&["inspect", &path, "--format", "json"]);
        assert_eq!(inspection["format"], "recipe", "{path}");
    }
    // The model that the program carries was trained by this recipe.
    let parameters =
        |model: &str| json(&["summary", model, "--format", "json"])["totals"]["parameters"].clone();
    assert_eq!(parameters("multi30k-en-de"), parameters("demo"));
}

#[test]
fn what_needs_values_says_that_there_are_none() {
    for args in [
        &["trace", "imdb-conv", "--src-ids", "5,6,7"][..],
        &["inspect", "imdb-conv", "--stats"],
        &["convert", "imdb-conv", "out.safetensors"],
        &["generate", "multi30k-en-de", "--src-ids", "5,1"],
    ] {
        let said = refused(args);
        assert!(said.contains("a recipe") && said.contains("attnscope train"), "{args:?}: {said}");
    }
}

#[test]
fn a_recipe_that_leaves_its_size_to_the_data_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(root().join("recipes/imdb-conv.toml")).unwrap();
    let file = dir.path().join("open.toml");
    std::fs::write(&file, text.replace("size = 20000\n", "")).unwrap();
    let said = refused(&["summary", file.to_str().unwrap()]);
    assert!(said.contains("tokens.size"), "{said}");
    std::fs::write(&file, "seed = one").unwrap();
    let said = refused(&["flow", file.to_str().unwrap()]);
    assert!(said.contains("open.toml:1:8"), "{said}");
}
