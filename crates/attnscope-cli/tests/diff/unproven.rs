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
    assert!(
        text.contains("matched by their values and not by name, so that their agreement is no evidence"),
        "{text}"
    );
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
    assert!(text.contains("The given model does not fit and was not used: it has "), "{text}");
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
        text.contains("past the tolerance: the difference begins here") && !text.contains("has grown"),
        "{text}"
    );
}

/// Where the order of calls is all that is known, keys of a cross-attention come after queries and are computed from the
/// encoder: what is new in them may have begun there.
#[test]
fn a_small_bug_of_the_encoder_is_not_told_at_the_decoder() {
    let dir = tempfile::tempdir().unwrap();
    let right = ran(&hooked, |_| {});
    let mut wrong = right.clone();
    let begins = wrong.iter().position(|(path, ..)| path == "encoder.1.ffn.hidden").unwrap();
    for (i, (path, _, values)) in wrong.iter_mut().enumerate() {
        let largest = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let moved = match path.as_str() {
            _ if i < begins => continue,
            _ if i == begins => 3e-5,
            path if path.starts_with("encoder") => 8e-5,
            "decoder.0.cross_attn.k" | "decoder.0.cross_attn.v" => 4e-4,
            path if path.starts_with("decoder.0.self_attn") => continue,
            _ => 2e-4,
        };
        values[0] += moved * largest;
    }
    let [a, b] = [("a.json", &right), ("b.json", &wrong)]
        .map(|(file, run)| saved(&dir.path().join(file), run, &|_, path| path.to_owned(), false));
    let (code, report) = diff(&[&a, &b]);
    let found = &report["first_divergence"];
    assert_eq!((code, first(&report).as_str()), (1, "encoder.1.ffn.hidden drift –"), "{report:#}");
    assert_eq!((report["order"].as_str(), found["jumps"].as_bool()), (Some("written"), Some(true)));
    assert!(found["past_tolerance_at"].as_str().is_some_and(|node| node.starts_with("decoder.")), "{found}");
    let text = text_of(&[&a, &b]);
    assert!(text.contains("begins here and grows past the tolerance later"), "{text}");
}

/// Values that are a little apart have a factor by chance: with it they would not be the dump's own.
#[test]
fn a_tensor_that_is_found_by_its_values_is_not_rescaled() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, input) = traced_ids("demo", &[54, 231, 8, 77, 310, 0], &[3999, 60, 12, 400, 7], dir.path());
    let mut run = ran_on(&input, &hooked, |_| {});
    let (_, _, values) = run.iter_mut().find(|(path, ..)| path == "encoder.1.ffn.out").unwrap();
    let largest = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    values.iter_mut().for_each(|x| *x *= 1.000_05);
    let name = |_: usize, path: &str| match path {
        "encoder.1.ffn.out" => "mine/x".to_owned(),
        _ => path.to_owned(),
    };
    let theirs = saved(&dir.path().join("b.safetensors"), &run, &name, true);
    let (_, report) = diff(&[&ours, &theirs]);
    let nodes = report["nodes"].as_array().unwrap();
    let found = nodes.iter().find(|node| node["b"] == "mine/x").unwrap();
    assert_eq!(found["seen_as"], "by its values");
    let apart = found["max_abs"].as_f64().unwrap();
    assert!((apart / f64::from(largest) / 5e-5 - 1.0).abs() < 0.1, "{apart} of {largest}");
}

#[test]
fn traces_of_two_families_are_called_that_first() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (DEMO.traced(dir.path(), "demo", &[]), T5.traced(dir.path(), "t5", &[]));
    let (code, report) = diff(&[&ours, &theirs]);
    assert_eq!((code, &report["other_models"]), (1, &serde_json::json!(["marian", "t5"])), "{report:#}");
    let text = text_of(&[&ours, &theirs]);
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(
        at("different models: A is a trace of family marian, B of family t5")
            < at("did not read the same input")
    );
    assert_eq!(diff(&[&ours, &ours]).1["other_models"], Value::Null);
}
