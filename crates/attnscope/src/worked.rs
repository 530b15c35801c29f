//! Worked examples of attention, checked claim by claim.

use attnscope_checkpoint::Remedy;
use attnscope_diagnose::worked::{ExampleError, UnknownName, judge, parse};

use crate::answer::JudgedExample;
use crate::failure::Failure;
use crate::near::nearest;

/// Computes an example and judges its claims. `file` is its name in errors and answers.
///
/// ```
/// let example = "[given]\nscores = [[0, 0]]\n[claims]\nweights = [[0.5, 0.5]]";
/// let judged = attnscope::check_example("halves.toml", example)?;
/// assert!(judged.judgement.is_right());
/// # Ok::<(), attnscope::Failure>(())
/// ```
///
/// # Errors
/// Where it is not a worked example in TOML.
pub fn check_example(file: &str, text: &str) -> Result<JudgedExample, Failure> {
    let example = parse(text).map_err(|e| failure(file, &e))?;
    let judgement = judge(&example);
    Ok(JudgedExample { file: file.to_owned(), example, judgement })
}

/// An example's error with its file, and for a name that is not known the nearest one.
fn failure(file: &str, e: &ExampleError) -> Failure {
    let line = e.line.map(|line| format!(":{line}")).unwrap_or_default();
    let near = |unknown: &UnknownName| {
        let near = nearest(&unknown.name, unknown.known.iter().copied());
        Some(format!("is it {}? {}", near.first()?, e.remedy).into())
    };
    let remedy: Remedy = e.unknown.as_deref().and_then(near).unwrap_or_else(|| e.remedy.clone());
    Failure::new(format!("{file}{line}: {e}"), remedy)
}
