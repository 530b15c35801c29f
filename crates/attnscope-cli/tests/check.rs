//! `check`: the published examples with their published mistakes, and everything that can be wrong with a file.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::{attnscope, fixture, root, stderr, stdout};
use serde_json::{Value, json};

fn example(name: &str) -> String {
    root().join("examples/worked").join(name).display().to_string()
}

/// What `check` says of an example, and with which code.
fn check(file: &str) -> (Value, Option<i32>) {
    let output = attnscope(&["check", file, "--format", "json"]);
    let value: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{file}: {e}: {}", stderr(&output)));
    (value["examples"][0].clone(), output.status.code())
}

fn claim<'a>(example: &'a Value, name: &str) -> &'a Value {
    example["claims"].as_array().unwrap().iter().find(|claim| claim["claim"] == name).unwrap()
}

fn verdicts(example: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    example["claims"].as_array().unwrap().iter().map(|c| (text(&c["claim"]), text(&c["verdict"]))).collect()
}

/// The claims of an example that are not right.
fn wrong(example: &Value) -> Vec<(String, String)> {
    verdicts(example).into_iter().filter(|(_, verdict)| !verdict.starts_with("right")).collect()
}

fn step<'a>(example: &'a Value, name: &str) -> &'a Value {
    let steps = example["steps"].as_array().unwrap();
    &steps.iter().find(|step| step["step"] == name).unwrap()["values"]
}

fn assert_near(found: &Value, expected: &[&[f64]], digits: i32, what: &str) {
    for (r, row) in expected.iter().enumerate() {
        for (c, x) in row.iter().enumerate() {
            let found = found[r][c].as_f64().unwrap();
            assert!((found - x).abs() <= 0.5001 * 10f64.powi(-digits), "{what}[{r}][{c}]: {found}, not {x}");
        }
    }
}

#[test]
fn the_published_truth_is_what_the_examples_come_to() {
    type Published = (&'static str, &'static str, &'static [&'static [f64]], i32);
    let published: &[Published] = &[
        ("one-word", "context", &[&[-0.164, -0.085, -0.056]], 3),
        ("one-word", "output", &[&[0.0389, 0.0246, -0.0680]], 4),
        ("two-words", "V", &[&[-0.164, -0.085, -0.056], &[0.441, 0.272, 0.201]], 3),
        ("two-words", "weights", &[&[0.4944, 0.5056], &[0.5220, 0.4780]], 4),
        ("two-words", "output", &[&[-0.0290, -0.0273, 0.0634], &[-0.0253, -0.0244, 0.0562]], 4),
        ("masked", "weights", &[&[1.0, 0.0], &[0.5220, 0.4780]], 4),
        ("masked", "output", &[&[0.0389, 0.0246, -0.0680], &[-0.0253, -0.0244, 0.0562]], 4),
        ("cross", "weights", &[&[0.4880, 0.5120], &[0.5049, 0.4951]], 4),
        ("cross", "output", &[&[-0.0298, -0.0279, 0.0651], &[-0.0276, -0.0262, 0.0607]], 4),
        ("encoder-decoder", "products", &[&[0.6, 1.4, 2.2], &[0.5, 1.14, 1.78]], 4),
        ("encoder-decoder", "weights", &[&[0.212, 0.316, 0.472], &[0.234, 0.322, 0.444]], 3),
        (
            "encoder-decoder",
            "context",
            &[&[0.6039, 0.7039, 0.8039, 0.9039], &[0.5839, 0.6839, 0.7839, 0.8839]],
            4,
        ),
        ("decoder-self", "weights", &[&[1.0, 0.0], &[0.450, 0.550]], 3),
    ];
    for (name, part, values, digits) in published {
        let (example, _) = check(&example(&format!("{name}.toml")));
        assert_near(step(&example, part), values, *digits, &format!("{name} {part}"));
    }
}

#[test]
fn every_published_mistake_is_found_and_the_first_is_named() {
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    for (name, first, all) in [
        ("one-word", "output", vec![pair("output", "wrong")]),
        ("two-words", "V", vec![pair("V", "wrong")]),
        ("masked", "V", vec![pair("V", "wrong")]),
        ("cross", "V", vec![pair("V", "wrong")]),
        (
            "encoder-decoder",
            "products",
            vec![
                pair("products", "wrong"),
                pair("scores", "follows"),
                pair("weights", "wrong"),
                pair("context", "wrong"),
            ],
        ),
        ("large-scale", "weights", vec![pair("weights", "wrong")]),
        ("decoder-self", "weights", vec![pair("weights", "wrong"), pair("context", "follows")]),
        ("two-heads-masked", "weights.0", vec![pair("weights.0", "wrong"), pair("weights.1", "wrong")]),
    ] {
        let (found, code) = check(&example(&format!("{name}.toml")));
        assert_eq!((found["first_mistake"].as_str(), code), (Some(first), Some(1)), "{name}");
        assert_eq!(wrong(&found), all, "{name}");
        let (corrected, code) = check(&example(&format!("{name}-corrected.toml")));
        assert_eq!((wrong(&corrected), &corrected["right"], code), (vec![], &json!(true), Some(0)), "{name}");
        assert!(!verdicts(&corrected).is_empty());
    }
}

#[test]
fn what_explains_the_published_mistakes() {
    let (one, _) = check(&example("one-word.toml"));
    let output = claim(&one, "output");
    assert_eq!(output["explanations"][0]["kind"], "copied");
    assert_eq!(output["explanations"][0]["sentence"], "copied: row 1 is row 1 of context");
    let (two, _) = check(&example("two-words.toml"));
    assert_eq!(claim(&two, "V")["rows"], json!([1]));
    assert_eq!(claim(&two, "V")["explanations"][0]["sentence"], "copied: row 2 is row 2 of output");
    // The lecture says sigmoid and has taken a softmax.
    assert_eq!((&two["words"][0]["claim"], &two["words"][0]["verdict"]), (&json!("squash"), &json!("wrong")));
    assert!(two["words"][0]["sentence"].as_str().unwrap().contains("only the word is wrong"));
    let (decoder, _) = check(&example("decoder-self.toml"));
    let coarse = &claim(&decoder, "weights")["explanations"][0];
    assert_eq!(coarse["kind"], "too_coarse");
    // [0.4, 0.6] is neither what [0.4502, 0.5498] is rounded to nor what is left when it is cut.
    assert!(coarse["sentence"].as_str().unwrap().ends_with("row 2 is 0.5 0.5"), "{coarse}");
    let (cross, _) = check(&example("encoder-decoder.toml"));
    // The first row is scaled before it is said to be; the second context row follows from nothing.
    assert_eq!(claim(&cross, "products")["explanations"][0]["kind"], "scaled_early");
    assert_eq!(claim(&cross, "products")["explanations"][0]["rows"], json!([0]));
    let context = claim(&cross, "context");
    assert_eq!((&context["rows"], &context["explanations"]), (&json!([1]), &json!([])));
    assert_near(&json!([[context["worst"]["from_claims"]]]), &[&[0.86]], 4, "from the claimed weights");
    // √d_model is √d_head where there is one head.
    assert!(cross["words"][0]["sentence"].as_str().unwrap().contains("in general it is √d_head"));
}

/// The example of the documentation, with other rules and claims.
fn two_words(rules: &str, claims: &str) -> (Value, Option<i32>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let given = std::fs::read_to_string(example("work-out.toml")).unwrap();
    let given = given.split_once("[given]").unwrap().1;
    std::fs::write(file.path(), format!("{rules}\n[given]{given}\n[claims]\n{claims}\n")).unwrap();
    check(&file.path().display().to_string())
}

#[test]
fn common_mistakes_are_explained() {
    // Computed in Python from X, W_Q and W_K; the true weights are [[0.4944, 0.5056], [0.5220, 0.4780]].
    for (mask, weights, kind) in [
        ("none", "[[0.4904, 0.5096], [0.5381, 0.4619]]", "scale"),
        ("none", "[[0.4951, 0.5007], [0.5108, 0.4887]]", "sigmoid"),
        ("none", "[[0.4844, 0.5120], [0.5156, 0.4880]]", "softmax_over_columns"),
        ("causal", "[[0.4944, 0], [0.5220, 0.4780]]", "mask_multiplied_after"),
        ("causal", "[[0.4951, 0.5049], [0.5220, 0.4780]]", "mask_multiplied_before"),
        ("causal", "[[0.4944, 0.5056], [0.5220, 0.4780]]", "mask_ignored"),
    ] {
        let (found, code) =
            two_words(&format!("mask = {mask:?}\ndecimals = 4"), &format!("weights = {weights}"));
        assert_eq!((code, &found["first_mistake"]), (Some(1), &json!("weights")));
        let kinds: Vec<&str> = claim(&found, "weights")["explanations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["kind"].as_str().unwrap())
            .collect();
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
}

#[test]
fn without_claims_everything_is_worked_out() {
    let output = attnscope(&["check", &example("work-out.toml"), "--width", "80"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    for part in [
        "Q = X·W_Q   [2×3]·[3×3] = [2×3]",
        "scores = Q·Kᵀ / √d_head",
        "⎡0.4944 0.5056⎤",
        "output = context·W_O",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let mut lines = text.lines().filter(|line| !line.ends_with(".toml"));
    assert!(lines.all(|line| line.chars().count() <= 80), "{text}");
    let ascii = stdout(&attnscope(&["check", &example("work-out.toml"), "--width", "80", "--ascii"]));
    assert!(ascii.is_ascii() && ascii.contains("Q.K^T / sqrtd_head"), "{ascii}");
}

#[test]
fn the_first_mistake_comes_first_in_print() {
    let output = attnscope(&[
        "check",
        &example("two-words.toml"),
        &example("one-word-corrected.toml"),
        "--width",
        "80",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("First mistake: V (line 15): row 2 is not X·W_V"), "{text}");
    assert!(text.contains("Every claim is right."), "{text}");
    // The name of the file is as long as it is.
    let mut lines = text.lines().filter(|line| !line.ends_with(".toml"));
    assert!(lines.all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_is_no_example_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    let name = file.display().to_string();
    for (text, said) in [
        ("[given]\nX = [[1, 2]", "x.toml:"),
        (
            "[given]\nX = [[1, 2]]\nW_Q = [[1]]",
            "x.toml:3: given: X is 1×2 and W_Q is 1×1: 2 columns cannot meet 1 rows",
        ),
        ("[given]\nX = [[1, 2], [3]]", "x.toml:2: given.X: row 2 has 1 numbers, row 1 has 2"),
        ("[given]\nWQ = [[1]]", "is it W_Q?"),
        ("titel = \"\"", "is it title?"),
        ("[claims]\nwights = [[1]]", "is it weights?"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = attnscope(&["check", &name]);
        let found = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{text}");
        assert!(found.contains(said) && found.contains("help: "), "{found}");
    }
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(stderr(&attnscope(&["check", &name])).contains("UTF-8"));
    assert_eq!(attnscope(&["check", "/nowhere.toml"]).status.code(), Some(2));
    assert_eq!(attnscope(&["check", dir.path().to_str().unwrap()]).status.code(), Some(2));
    assert_eq!(attnscope(&["check"]).status.code(), Some(2));
}

/// Whatever gives the bytes: a pipe does not say how many there are, and a device has no end.
#[cfg(unix)]
#[test]
fn text_comes_from_pipes_and_has_an_end() {
    use std::process::Stdio;
    let file = std::fs::File::open(example("masked.toml")).unwrap();
    let mut cat = std::process::Command::new("cat").stdin(file).stdout(Stdio::piped()).spawn().unwrap();
    let piped = cat.stdout.take().unwrap();
    let output = common::command(&["check", "/dev/stdin", "--format", "json"]).stdin(piped).output().unwrap();
    cat.wait().unwrap();
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(found["examples"][0]["claims"], check(&example("masked.toml")).0["claims"]);
    for args in [&["check", "/dev/zero"][..], &["doctor", "toy", "--thresholds", "/dev/zero"]] {
        let output = attnscope(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains("/dev/zero: expected at most 1048576 bytes, found more"));
    }
}

/// Lines are counted once, not again for each row.
#[test]
fn a_file_of_many_rows_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    std::fs::write(&file, format!("[given]\nX = [{}]\n", "[1],\n".repeat(200_000))).unwrap();
    let start = std::time::Instant::now();
    let output = attnscope(&["check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected 1 to 16384 numbers, found 200000"), "{}", stderr(&output));
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn a_head_has_one_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    let text = "[given]\nscores.0 = [[1, 2]]\nscores.00 = [[3, 4]]\n[claims]\nweights = [[9, 9]]\n";
    std::fs::write(&file, text).unwrap();
    let output = attnscope(&["check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("x.toml:3: given.scores: head \"00\""), "{}", stderr(&output));
}

#[test]
fn a_file_that_is_no_example_takes_nothing_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml").display().to_string();
    std::fs::write(&file, "[given]\nX = [[1, 2], [3]]").unwrap();
    let output = attnscope(&["check", &file, &example("one-word-corrected.toml")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("one-word-corrected.toml\n"), "{}", stdout(&output));
    assert!(stdout(&output).contains("Every claim is right."), "{}", stdout(&output));
    assert!(stderr(&output).contains("x.toml:2: given.X: row 2"), "{}", stderr(&output));
}

#[test]
fn orders_of_heads_and_of_values_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml").display().to_string();
    let given =
        "[given]\nweights.0 = [[0.9, 0.1]]\nweights.1 = [[0.2, 0.8]]\nV = [[1.5, 2, 3, 4], [5, 6, 7, 8.5]]";
    for (context, kind, said) in [
        ("[[6.2, 7.6, 1.85, 2.4]]", "heads_reordered", "in another order: 1, 0"),
        ("[[4.65, 5.6, 3.8, 4.9]]", "values_reordered", "V's rows in another order: 2, 1"),
    ] {
        std::fs::write(&file, format!("heads = 2\n{given}\n[claims]\ncontext = {context}")).unwrap();
        let (found, code) = check(&file);
        let fits = &claim(&found, "context")["explanations"];
        assert_eq!((code, &fits[0]["kind"]), (Some(1), &json!(kind)), "{fits}");
        assert!(fits[0]["sentence"].as_str().unwrap().ends_with(said), "{fits}");
    }
}

/// A trace of a model in a folder of its own.
fn trace(args: &[&str]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t").display().to_string();
    let output = attnscope(&[&["trace"], args, &["--save", &folder, "--quiet"]].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    (dir, folder)
}

fn trace_check(args: &[&str]) -> (Value, Option<i32>) {
    let output = attnscope(&[&["check", "--format", "json", "--trace"], args].concat());
    let value = serde_json::from_str(&stdout(&output))
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", stderr(&output)));
    (value, output.status.code())
}

#[test]
fn a_run_passes_its_own_check() {
    let (t5, bart) = (fixture("t5"), fixture("bart"));
    for args in [
        vec!["toy"],
        vec!["toy", "--src", "a b c a", "--tgt", "x y"],
        vec!["toy", "--reference"],
        vec!["demo", "--src", "A man.", "--src", "Two dogs run over the grass."],
        vec![&t5, "--src-ids", "3,4,5;6,7", "--tgt-ids", "0,8;0,9"],
        vec![&bart, "--src-ids", "3,4,5,6", "--tgt-ids", "2,8,7"],
    ] {
        let (_dir, folder) = trace(&args);
        let (found, code) = trace_check(&[&folder]);
        assert_eq!((&found["right"], code), (&json!(true), Some(0)), "{args:?}: {found}");
        let checked = found["checked"].as_array().unwrap();
        let shares: Vec<f64> = checked.iter().map(|c| c["share"].as_f64().unwrap()).collect();
        let most = shares.iter().copied().fold(0.0, f64::max);
        // Two executors differ; one against itself does not.
        assert_eq!(most > 0.0, !args.contains(&"--reference"), "{args:?}: {most}");
        assert_eq!(found["unchecked"], json!([]), "{args:?}");
    }
}

#[test]
fn a_tensor_that_was_tampered_with_is_found() {
    let (_dir, folder) = trace(&["toy"]);
    let path = std::path::Path::new(&folder).join("trace.safetensors");
    let whole = std::fs::read(&path).unwrap();
    let header = usize::try_from(u64::from_le_bytes(whole[..8].try_into().unwrap())).unwrap();
    let entries: Value = serde_json::from_slice(&whole[8..8 + header]).unwrap();
    for node in [
        "encoder.0.ffn.hidden",
        "encoder.1.self_attn.norm",
        "decoder.0.cross_attn.weights",
        "logits",
        "src.ids",
    ] {
        let at = 8 + header + usize::try_from(entries[node]["data_offsets"][0].as_u64().unwrap()).unwrap();
        let mut bytes = whole.clone();
        // A high bit of the mantissa, or of a token id.
        bytes[at + if node == "src.ids" { 0 } else { 2 }] ^= if node == "src.ids" { 1 } else { 0x40 };
        std::fs::write(&path, bytes).unwrap();
        let (found, code) = trace_check(&[&folder]);
        assert_eq!((&found["first_mistake"], code), (&json!(node), Some(1)), "{node}");
        let text = stdout(&attnscope(&["check", "--trace", &folder, "--width", "80"]));
        assert!(
            text.contains("further off than rounding explains") && text.contains(&format!("! {node}")),
            "{text}"
        );
    }
}

#[test]
fn a_part_of_a_run_is_checked_as_far_as_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t").display().to_string();
    assert!(attnscope(&["trace", "toy", "--layer", "encoder.0.ffn", "--save", &folder]).status.success());
    let (found, code) = trace_check(&[&folder]);
    let checked: Vec<&str> =
        found["checked"].as_array().unwrap().iter().map(|c| c["node"].as_str().unwrap()).collect();
    assert!(checked.contains(&"encoder.0.ffn.act") && !checked.contains(&"encoder.0.ffn.in"), "{checked:?}");
    assert_eq!(code, Some(0));
    let why = |name: &str| {
        found["unchecked"].as_array().unwrap().iter().find(|u| u["node"] == name).unwrap()["why"].clone()
    };
    assert_eq!((why("logits"), why("encoder.0.ffn.in")), (json!("not_saved"), json!("input_not_saved")));
    // Logits without what they are made of: nothing to check is nothing found right.
    let alone = dir.path().join("alone").display().to_string();
    assert!(attnscope(&["trace", "toy", "--layer", "logits", "--save", &alone]).status.success());
    let nothing = attnscope(&["check", "--trace", &alone]);
    assert_eq!((nothing.status.code(), stdout(&nothing).as_str()), (Some(2), ""));
    assert!(stderr(&nothing).contains("nothing could be checked"), "{}", stderr(&nothing));
    // Only of the model that was traced.
    let refused = attnscope(&["check", "--trace", &folder, "demo"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("not those that were traced"), "{}", stderr(&refused));
    assert_eq!(trace_check(&[&folder, "toy"]).1, Some(0));
    assert_eq!(attnscope(&["check", "--trace", "/nowhere"]).status.code(), Some(2));
    assert_eq!(attnscope(&["check", "--trace", &folder, "toy", "toy"]).status.code(), Some(2));
}
