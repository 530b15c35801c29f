//! Reads a worked example, judges it and prints it both ways.

use attnscope_diagnose::worked::{Verdict, judge, parse};
use attnscope_render::worked::{example_json, example_text};
use attnscope_render::{Options, Style};

/// More columns than this do not show more code.
const WIDTH: usize = 60;

/// The whole way from text to verdicts.
pub fn judge_and_print(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(example) = parse(&text) else { return };
    let judgement = judge(&example);
    assert_eq!(judgement.claims.len(), example.claims.len());
    let wrong = judgement.claims.iter().any(|judged| matches!(judged.verdict, Verdict::Wrong(_)));
    assert!(!wrong || judgement.first_mistake().is_some());
    assert_eq!(judgement.is_right(), judgement.first_mistake().is_none());
    let printed = example_text("fuzz", &example, &judgement, Options { width: WIDTH, ..Options::default() }, Style::default());
    assert!(!printed.is_empty());
    let _ = example_json("fuzz", &example, &judgement).to_string();
}
