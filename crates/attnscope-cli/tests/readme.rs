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
        let printed = stdout(&output);
        assert!(same(&printed, expected), "attnscope{args}\n{printed}");
        shown += 1;
    }
    assert!(shown > 0, "the README shows no output");
}

/// Word by word; numbers of a run may differ in f32's last digit from machine to machine.
fn same(printed: &str, expected: &str) -> bool {
    let number = |word: &str| word.parse::<f64>().ok();
    let word =
        |(a, b): (&str, &str)| a == b || number(a).zip(number(b)).is_some_and(|(a, b)| (a - b).abs() <= 2e-6);
    let line = |(a, b): (&str, &str)| {
        let (a, b): (Vec<_>, Vec<_>) = (a.split_whitespace().collect(), b.split_whitespace().collect());
        a.len() == b.len() && a.into_iter().zip(b).all(word)
    };
    printed.lines().count() == expected.lines().count() && printed.lines().zip(expected.lines()).all(line)
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
