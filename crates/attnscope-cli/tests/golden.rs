//! What people read, kept: the drawings of every family at three widths, and the other commands on the demo.
//!
//! To accept a change: `INSTA_UPDATE=always cargo test -p attnscope-cli --test golden`, then read the diff.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::{MODELS, attnscope, fixture, stdout};
use insta::{assert_snapshot, with_settings};

/// The output of a command, with the fixture's folder left out.
fn run(args: &[&str]) -> String {
    let output = attnscope(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", common::stderr(&output));
    stdout(&output).replace(&fixture(""), "fixtures/")
}

#[test]
fn every_family_at_every_width() {
    for (path, _, _) in MODELS {
        let name = path.replace(['/', '.'], "-");
        for width in ["60", "80", "120"] {
            let drawn = run(&["flow", &fixture(path), "--width", width]);
            with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "golden" }, {
                assert_snapshot!(format!("{name}-{width}"), drawn);
            });
        }
    }
}

#[test]
fn every_component_of_the_demo() {
    for component in ["encoder", "decoder", "self_attn", "cross_attn", "ffn"] {
        let drawn = run(&["flow", "--component", component, "--width", "100"]);
        with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "golden" }, {
            assert_snapshot!(format!("demo-{component}"), drawn);
        });
    }
}

#[test]
fn the_demo_in_every_form() {
    let cases: &[(&str, &[&str])] = &[
        ("demo-ascii", &["flow", "--width", "80", "--ascii"]),
        ("demo-symbolic", &["flow", "--width", "80", "--symbolic"]),
        ("demo-layer", &["flow", "--width", "80", "--layer", "decoder.1.cross_attn"]),
        ("demo-svg", &["flow", "--format", "svg"]),
        ("demo-mermaid", &["flow", "--format", "mermaid"]),
        ("demo-dot", &["flow", "--format", "dot"]),
        ("demo-inspect", &["inspect", "--width", "100"]),
        ("demo-tensors", &["inspect", "--width", "120", "--tensors"]),
        ("demo-stats", &["inspect", "--width", "140", "--stats"]),
        ("demo-summary", &["summary", "--width", "100"]),
        ("fairseq-inspect", &["inspect", "FIXTURES/fairseq/checkpoint.pt", "--width", "100"]),
    ];
    for (name, args) in cases {
        let args: Vec<String> = args.iter().map(|a| a.replace("FIXTURES/", &fixture(""))).collect();
        let text = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "golden" }, {
            assert_snapshot!(*name, text);
        });
    }
}

#[test]
fn no_line_is_wider_than_asked() {
    for (path, _, _) in MODELS {
        for width in [60, 61, 72, 80, 97, 120, 160] {
            for component in ["full", "encoder", "decoder"] {
                let text =
                    run(&["flow", &fixture(path), "--component", component, "--width", &width.to_string()]);
                // The first lines name the file, which is as long as it is.
                for line in text.lines().skip(1) {
                    assert!(line.chars().count() <= width, "{path} {component} at {width}: {line}");
                    assert_eq!(line.trim_end(), line, "{path}: spaces at the end");
                }
            }
        }
    }
}
