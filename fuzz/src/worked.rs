//! Reads a worked example, judges it and prints it both ways.

use attnscope::answer::WorkedExamples;
use attnscope::check_example;
use attnscope_diagnose::worked::Verdict;
use attnscope_render::worked;
use attnscope_render::{Options, Style};

/// More columns than this do not show more code.
const WIDTH: usize = 60;

/// The whole way from text to verdicts.
pub fn judge_and_print(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(judged) = check_example("fuzz", &text) else { return };
    let (example, judgement) = (&judged.example, &judged.judgement);
    assert_eq!(judgement.claims.len(), example.claims.len());
    let wrong = judgement.claims.iter().any(|judged| matches!(judged.verdict, Verdict::Wrong(_)));
    assert!(!wrong || judgement.first_mistake().is_some());
    assert_eq!(judgement.is_right(), judgement.first_mistake().is_none());
    let answer = WorkedExamples { examples: vec![judged], of_many: false };
    let printed = worked::text(&answer, Options { width: WIDTH, ..Options::default() }, Style::default());
    assert!(!printed.is_empty());
    assert!(serde_json::to_string(&answer).is_ok());
}
