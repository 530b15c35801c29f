//! What the README shows is what the program prints.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::path::Path;
use std::process::Command;

use common::{attnscope, root, stdout};

#[test]
fn every_example_prints_what_it_says() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_attnscope")).parent().unwrap().display().to_string();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let mut shown = 0;
    for block in readme.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let Some(("", rest)) = block.split_once("$ attnscope") else { continue };
        let (args, expected) = rest.split_once('\n').unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("attnscope{args}")]).current_dir(root());
        let output = shell.env("PATH", &path).env("LC_ALL", "C.UTF-8").output().unwrap();
        assert_eq!(stdout(&output), expected, "attnscope{args}");
        shown += 1;
    }
    assert!(shown > 0, "the README shows no output");
}

#[test]
fn the_picture_is_what_flow_draws() {
    let picture = std::fs::read_to_string(root().join("docs/flow.svg")).unwrap();
    let drawn = stdout(&attnscope(&["flow", "--format", "svg"]));
    assert!(
        picture == drawn,
        "write it again: cargo run --release -- flow --format svg --output docs/flow.svg"
    );
}
