//! What is said where little is proven: tensors that were found by their values alone, models that do not fit, shapes that differ,
//! differences that are rounding although they come after a bug.

use super::names::{Ran, hooked, move_weight, ran, ran_on, saved};
use super::*;

fn text_of(args: &[&str]) -> String {
    // In lines of any width.
    stdout(&attnscope(&[&["diff"], args].concat())).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Names that mean nothing are paired by equal values: that those agree is no proof, and what differs is left over.
#[test]
fn tensors_that_were_found_by_their_values_prove_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // Without padding, at which programs differ.
    let (ours, input) = traced_ids("demo", &[54, 231, 8, 77, 310, 0], &[3999, 60, 12, 400, 7], dir.path());
    let opaque = |i: usize, _: &str| format!("thing_{i}");
    let wrong = ran_on(&input, &hooked, move_weight("decoder.1.ffn.hidden.weight"));
    let theirs = saved(&dir.path().join("wrong.json"), &wrong, &opaque, false);
    let (code, report) = diff(&[&ours, &theirs]);
    let left = report["not_compared"]["b"].as_array().unwrap().len();
    assert!(left >= 3 && left < wrong.len() / 2, "{left} of {}", wrong.len());
    assert_eq!((code, &report["first_divergence"]), (1, &Value::Null));
    assert_eq!(report["only_by_values"].as_u64(), Some(left as u64));
    assert!(report["nodes"].as_array().unwrap().iter().all(|node| node["by_values"] == true), "{report:#}");
    let text = text_of(&[&ours, &theirs]);
    let heading = format!("what was compared agrees; {left} tensors of theirs were not compared");
    assert!(text.contains(&heading) && !text.contains("no difference"), "{text}");
    // Everything of theirs is somewhere in ours: nothing is left that could be wrong.
    let right = ran_on(&input, &hooked, |_| {});
    let theirs = saved(&dir.path().join("right.json"), &right, &opaque, false);
    let (code, report) = diff(&[&ours, &theirs]);
    assert_eq!((code, &report["only_by_values"]), (0, &Value::Null), "{report:#}");
    let text = text_of(&[&ours, &theirs]);
    assert!(text.contains("found by values alone, not by name: that they agree proves nothing"), "{text}");
}

#[test]
fn a_model_that_does_not_fit_is_said_to_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let ours = DEMO.trace(dir.path());
    let theirs = saved(&dir.path().join("b.json"), &ran(&hooked, |_| {}), &|_, path| path.to_owned(), false);
    let other = fixture("t5");
    let (code, report) = diff(&[&ours, &theirs, "--model", &other]);
    assert_eq!((code, report["judged"].as_str()), (0, Some("without_weights")));
    assert!(report["unused_model"].as_str().unwrap().contains(" where the trace has "), "{report:#}");
    let text = text_of(&[&ours, &theirs, "--model", &other]);
    assert!(text.contains("The model that was given does not fit and was not used: it has "), "{text}");
    // Two dumps that do not hold what the model reads.
    let (_, report) = diff(&[&theirs, &theirs, "--model", "demo"]);
    assert!(report["unused_model"].as_str().unwrap().contains("do not hold what it reads"), "{report:#}");
    let (_, report) = diff(&[&ours, &theirs, "--model", "demo"]);
    assert_eq!((report["judged"].as_str(), &report["unused_model"]), (Some("all"), &Value::Null));
}

#[test]
fn other_shapes_are_called_that() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, width: usize| {
        let path = dir.path().join(name);
        save(&path, vec![("w".to_owned(), vec![2, width], vec![0; 8 * width])]);
        path.display().to_string()
    };
    let (narrow, wide) = (file("narrow.safetensors", 3), file("wide.safetensors", 4));
    let (code, report) = checkpoints(&narrow, &wide);
    assert_eq!((code, first(&report).as_str()), (1, "w bug other_shape"));
    let sentence = report["first_divergence"]["sentence"].as_str().unwrap();
    assert_eq!(sentence, "B has another shape: (2,4) where (2,3) was expected");
    let output = attnscope(&["diff", &narrow, &wide]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("none of a shape that fits: w has the shape [2, 3] in one and [2, 4]"), "{said}");
}

/// One cell of a tensor written over with `value`.
fn spoilt(mut run: Vec<Ran>, path: &str, cell: usize, value: f32) -> Vec<Ran> {
    let tensor = run.iter_mut().find(|(own, ..)| own == path).unwrap();
    tensor.2[cell] = value;
    run
}

#[test]
fn one_cell_and_an_infinity_have_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let ours = DEMO.trace(dir.path());
    let whole = |value: f32| {
        // [2, 6, 256], position 1 of the first row, feature 3
        let run = spoilt(ran(&hooked, |_| {}), "encoder.1.ffn.hidden", 256 + 3, value);
        saved(&dir.path().join("b.safetensors"), &run, &|_, path| path.to_owned(), true)
    };
    let (code, report) = diff(&[&ours, &whole(7.5)]);
    assert_eq!((code, first(&report).as_str()), (1, "encoder.1.ffn.hidden bug some_cells"));
    assert_eq!(report["first_divergence"]["sentence"].as_str(), Some("only the cell (0,1,3) differs"));
    let theirs = whole(f32::INFINITY);
    let (code, report) = diff(&[&ours, &theirs]);
    assert_eq!((code, report["first_divergence"]["not_finite"]["b"].as_str()), (1, Some("∞")), "{report:#}");
    let text = text_of(&[&ours, &theirs]);
    assert!(text.contains("1 cell is NaN or infinite on one side alone, the first at (0,1,3): A "), "{text}");
}

/// The decoder's first self-attention does not read the encoder: a fault there leaves it as it was.
#[test]
fn rounding_after_a_bug_is_still_rounding() {
    let dir = tempfile::tempdir().unwrap();
    let ours = DEMO.traced(dir.path(), "ours", &["--reference"]);
    let mut wrong = ran(&hooked, move_weight("encoder.1.ffn.out.weight"));
    // As another order of summation would leave them: 10 units of rounding, where the bound is over a hundred.
    for (path, _, values) in &mut wrong {
        if ["q", "k", "v"].iter().any(|leaf| *path == format!("decoder.0.self_attn.{leaf}")) {
            values.iter_mut().for_each(|x| *x *= 1.0 + 6e-7);
        }
    }
    let theirs = saved(&dir.path().join("b.safetensors"), &wrong, &|_, path| path.to_owned(), true);
    let (code, report) = diff(&[&ours, &theirs]);
    assert_eq!((code, report["first_divergence"]["node"].as_str()), (1, Some("encoder.1.ffn.out")));
    let nodes = report["nodes"].as_array().unwrap();
    let state = |part: &str| -> Vec<&str> {
        let of = nodes.iter().filter(|node| node["node"].as_str().unwrap().starts_with(part));
        of.map(|node| node["state"].as_str().unwrap()).collect()
    };
    let independent = state("decoder.0.self_attn.");
    assert!(independent.len() > 3 && independent.iter().all(|state| *state == "rounding"), "{independent:?}");
    assert!(state("decoder.0.cross_attn.k").iter().all(|state| *state == "after"), "{report:#}");
    // Of the independent nodes, some are further apart than the smallest differences that count.
    let largest = nodes
        .iter()
        .filter(|node| node["node"].as_str().unwrap().starts_with("decoder.0.self_attn."))
        .map(|node| node["relative"].as_f64().unwrap())
        .fold(0.0, f64::max);
    assert!(largest > 4.0 * 0.5f64.powi(24), "{largest:e}");
}

#[test]
fn a_jump_past_a_tolerance_is_not_called_growth() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, exact) = (DEMO.trace(dir.path()), DEMO.traced(dir.path(), "exact", &["--reference"]));
    let args = [ours.as_str(), exact.as_str(), "--tolerance", "1e-12"];
    let (code, report) = diff(&args);
    let found = &report["first_divergence"];
    assert_eq!((code, found["kind"].as_str(), found["jumps"].as_bool()), (1, Some("drift"), Some(true)));
    let text = text_of(&args);
    assert!(
        text.contains("past the tolerance: the difference is new here") && !text.contains("has grown"),
        "{text}"
    );
}
