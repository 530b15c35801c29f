//! `--device`: the same commands on another executor.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::{attnscope, fixture, stderr, stdout};

#[test]
fn the_reference_says_what_the_cpu_says() {
    let bart = fixture("bart");
    let ids = ["--src-ids", "5,6,7,8;9,4", "--tgt-ids", "2,5;2,6"];
    let sentence = ["--src", "Two dogs play in the snow."];
    for (command, model, input) in [
        ("generate", &["demo"][..], &sentence[..]),
        ("masks", &[&bart], &ids),
        ("explain", &["decoder.1.cross_attn.weights", "demo"], &sentence),
    ] {
        let on = |device: &str| {
            let args = [&[command], model, input, &["--device", device, "-q"]].concat();
            let ran = attnscope(&args);
            assert!(ran.status.success(), "{args:?}: {}", stderr(&ran));
            // Numbers are rounded where they are printed; a movement may differ in its last digit.
            stdout(&ran).split_whitespace().filter(|word| !word.contains('.')).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(on("cpu"), on("reference"), "{command}");
    }
}

#[test]
fn reference_is_short_for_the_device() {
    let bart = fixture("bart");
    let trace = |more: &[&str]| {
        let args =
            [&["trace", &bart, "--src-ids", "5,6", "--tgt-ids", "2,5", "--format", "json"], more].concat();
        let ran = attnscope(&args);
        assert!(ran.status.success(), "{args:?}: {}", stderr(&ran));
        stdout(&ran)
    };
    let (short, long, cpu) = (trace(&["--reference"]), trace(&["--device", "reference"]), trace(&[]));
    assert!(short == long && long != cpu);
}

#[test]
fn a_device_that_is_not_known_is_refused() {
    let ran = attnscope(&["trace", "demo", "--device", "cuda:9"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(stderr(&ran).contains("expected cpu or reference"), "{}", stderr(&ran));
    let both = attnscope(&["trace", "demo", "--device", "cpu", "--reference"]);
    assert_eq!(both.status.code(), Some(2));
}

/// A cell of a run in f64 is judged by the rounding of f64, and the words say so.
#[test]
fn a_cell_is_judged_by_its_run_s_precision() {
    let bart = fixture("bart");
    let cell = |device: &str| {
        let path = "decoder.0.cross_attn.weights";
        let ids = ["--src-ids", "5,6,7", "--tgt-ids", "2,5", "--at", "0,0,1,2", "--device", device];
        stdout(&attnscope(&[&["explain", path, &bart][..], &ids].concat()))
    };
    assert!(!cell("cpu").contains("f64's rounding"), "{}", cell("cpu"));
    let reference = cell("reference");
    assert!(!reference.contains("f32's rounding") && reference.contains("The run stored"), "{reference}");
}
