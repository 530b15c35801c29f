//! What pages say is what the model is: counts are counted again here, and a model of the other kind reads otherwise.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::diagnose::rules;
use attnscope::graph::Positions;
use attnscope::run::{Input, Rows, Sequence, Weights};
use attnscope::{Opened, Ready};
use common::run::{Keep, run_reference};
use common::{attnscope, fixture, root, stderr, stdout};
use serde_json::Value;

/// A page as one line of words.
fn page(args: &[&str]) -> String {
    let output = attnscope(&[&["explain"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Post-norm with biases, pre-norm with biases, pre-norm without.
fn kinds() -> [String; 3] {
    ["bart", "pegasus", "t5"].map(fixture)
}

#[test]
fn the_widths_of_q6_are_those_of_a_run() {
    for (model, ids) in
        [("demo".to_owned(), vec![]), (fixture("t5"), vec!["--src-ids=5,6,1", "--tgt-ids=0,7"])]
    {
        let mut args = vec!["trace", &model, "--format", "json"];
        args.extend(ids);
        let run: Value = serde_json::from_str(&stdout(&attnscope(&args))).unwrap();
        let nodes = run["nodes"].as_array().unwrap();
        let last = |node: &Value, key: &str| node[key].as_array().unwrap().last().unwrap().clone();
        let embed = nodes.iter().find(|n| n["path"] == "src.embed").unwrap();
        let width = last(embed, "shape");
        let is_length = |dim: &Value| dim == "S" || dim == "T";
        let wide = nodes.iter().filter(|n| last(n, "shape") == width && !is_length(&last(n, "dims"))).count();
        let said = page(&["q6", &model]);
        let expected = format!(
            "of the {} tensors of this model, {wide} are d_model = {width} wide at the end",
            nodes.len()
        );
        assert!(said.contains(&expected), "{expected}: {said}");
    }
    assert!(page(&["q6"]).contains("of the 133 tensors of this model, 74 are d_model = 128 wide"));
}

#[test]
fn the_walk_says_where_it_is_not_in_the_order_of_computation() {
    let [post, pre, _] = kinds();
    for (model, order) in [
        (&post, "here 12 before 10, 27 before 24."),
        (&pre, "here 12 before 10, 15 before 7, 27 before 24, 29 before 21, 36 before 30."),
    ] {
        assert!(page(&["--walk", model]).contains(order), "{model}");
        let args = ["trace", model, "--src-ids", "5,6,2", "--tgt-ids", "2,7"];
        let trace = stdout(&attnscope(&args)).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(trace.contains(order), "{trace}");
    }
    assert!(page(&["12"]).contains("this one is computed before 10, 11"));
    assert!(!page(&["13"]).contains("computed before"));
}

#[test]
fn norms_have_the_bias_and_the_place_that_they_have() {
    let [post, pre, without] = kinds();
    for (model, has, has_not) in [
        (&post, "adds a learned bias", "no bias"),
        (&pre, "adds a learned bias", "no bias"),
        (&without, "it has no bias", "adds a learned bias"),
        (&post, "Every sum is normed", "only through additions"),
        (&pre, "only through additions", "Every sum is normed"),
        (&without, "only through additions", "Every sum is normed"),
    ] {
        let said = page(&["residual-and-norm", model]);
        assert!(said.contains(has) && !said.contains(has_not), "{model}: {said}");
    }
    // Two norms a layer in the encoder, three in the decoder.
    let demo = page(&["residual-and-norm"]);
    assert!(demo.contains("gradients pass through 6 norms in the decoder and 4 in the encoder"), "{demo}");
    assert!(page(&["15"]).contains("× g + b"));
    let rms = page(&["15", &without]);
    assert!(rms.contains("× g") && !rms.contains("+ b"), "{rms}");
}

#[test]
fn what_heads_cost_is_counted() {
    let demo = page(&["heads"]);
    assert!(demo.contains("4 × 32 = 128 per pair of positions, as with one head of 128"), "{demo}");
    let run: Value = serde_json::from_str(&stdout(&attnscope(&["trace", "--format", "json"]))).unwrap();
    let weights =
        run["nodes"].as_array().unwrap().iter().find(|n| n["path"] == "decoder.0.cross_attn.weights");
    let cells: u64 =
        weights.unwrap()["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product();
    let held =
        format!("({cells} weights in decoder.0.cross_attn on this input, with one head {})", cells / 4);
    assert!(demo.contains("4 times the scores") && demo.contains(&held), "{demo}");
}

#[test]
fn a_stack_is_not_followed_by_another_layer() {
    assert!(page(&["41"]).contains("The decoder's result, which the output projection reads."));
    assert!(page(&["encoder.out"]).contains("which every cross-attention reads"));
    for last in ["decoder.1.out", "encoder.1.out"] {
        assert!(page(&[last]).contains("The residual stream after this layer."), "{last}");
    }
}

/// What `positions` says of a model without them: other order, same weights in that order.
#[test]
fn without_positions_another_order_permutes_the_weights() {
    assert!(
        page(&["positions"]).contains("the same weights, with their rows and columns in that other order")
    );
    let opened = Opened::open("demo", None).unwrap();
    let ready = Ready::new(&opened).unwrap();
    let mut wiring = ready.model.wiring;
    let order = [3, 0, 2, 1, 4];
    let ids = [17, 250, 40, 1200, 0];
    let moved = order.map(|i| ids[i]);
    let mut largest = Vec::new();
    for positions in [wiring.source_positions, Positions::None] {
        wiring.source_positions = positions;
        let model = ready.model.rewired(&wiring, None);
        let weights = Weights::load(&model, &opened.checkpoint).unwrap();
        let id = model.graph.find("encoder.1.self_attn.weights").unwrap();
        let run = |ids: &[u32]| {
            let rows = |ids: &[u32]| Rows::new(&[ids.to_vec()], 0);
            let mut keep = Keep::new(|node| node == id);
            let input = Input::pair(Sequence::Tokens(rows(ids)), rows(&[0, 5]));
            run_reference(&model, &weights, &input, &mut keep).unwrap();
            keep.tensors.remove(&id).unwrap().values
        };
        let (plain, permuted) = (run(&ids), run(&moved));
        let mut most = 0f64;
        for (cell, &value) in permuted.iter().enumerate() {
            let (head, query, key) = (cell / 25, cell / 5 % 5, cell % 5);
            most = most.max((value - plain[head * 25 + order[query] * 5 + order[key]]).abs());
        }
        largest.push(most);
    }
    assert!(largest[0] > 1e-3 && largest[1] < 1e-9, "{largest:?}");
}

#[test]
fn the_tour_promises_what_the_commands_do() {
    let tour = stdout(&attnscope(&[]));
    assert!(tour.contains("a run in 43 snapshots; --save DIR saves every tensor"), "{tour}");
    let commands = tour.lines().filter_map(|line| line.trim().strip_prefix("attnscope "));
    let mut tried = 0;
    for command in commands.filter(|c| !c.starts_with('-')).filter_map(|c| c.split_whitespace().next()) {
        assert!(attnscope(&[command, "--help"]).status.success(), "{command}");
        tried += 1;
    }
    assert!(tried >= 8, "{tour}");
}

/// Commands and options that rules advise exist.
#[test]
fn what_rules_advise_can_be_typed() {
    let mut seen = 0;
    for rule in rules() {
        let texts = [rule.try_next, rule.how, rule.threshold, rule.why, rule.what];
        for advice in texts.iter().flat_map(|text| text.split('`').skip(1).step_by(2)) {
            let Some(words) = advice.strip_prefix("attnscope ") else { continue };
            let command = words.split_whitespace().next().unwrap();
            let help = stdout(&attnscope(&[command, "--help"]));
            assert!(!help.is_empty(), "{}: {advice}", rule.id);
            for option in words.split_whitespace().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{}: {advice}", rule.id);
            }
            seen += 1;
        }
    }
    assert!(seen > 0);
    // The numbers that attention-sink speaks of.
    let trace = stdout(&attnscope(&["trace"]));
    assert!(trace.contains("on end token"), "{trace}");
}

#[test]
fn numbers_are_in_signs_that_python_reads() {
    let table = |args: &[&str]| {
        let output = stdout(&attnscope(&[&["explain"], args].concat()));
        assert!(!output.contains('\u{2212}') || !has_negative_number(&output), "{output}");
        output
    };
    let cell = table(&["decoder.0.cross_attn.scores", "toy", "--at", "0,1,2,3"]);
    assert!(cell.contains(" -0."), "{cell}");
    table(&["decoder.0.cross_attn.scores", "toy", "--at", "0,1,2,3", "--format", "markdown"]);
    let masked = table(&["decoder.0.self_attn.masked_scores", "toy", "--at", "0,0,0,4"]);
    assert!(masked.contains("-inf"), "{masked}");
    let mask = table(&["decoder.0.self_attn.mask", "toy"]);
    assert!(mask.contains("10 × -inf"), "{mask}");
    let trace = stdout(&attnscope(&["trace", "toy"]));
    assert!(trace.contains("-inf") && !has_negative_number(&trace), "{trace}");
}

/// A typographic minus before a digit or an infinity that stands as a number of its own.
fn has_negative_number(text: &str) -> bool {
    let number = |word: &str| {
        word.trim_start_matches('(')
            .strip_prefix('\u{2212}')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    text.split_whitespace().any(number)
}

/// What people type, and where it leads.
#[test]
fn topics_are_found_by_what_they_mean() {
    for (word, title) in [
        ("softmax", "scaled-dot-product: "),
        ("attention", "scaled-dot-product: "),
        ("mask", "masks: "),
        ("teacher", "teacher-forcing: "),
        ("ffn", "feed-forward: "),
        ("MLP", "feed-forward: "),
        ("embedding", "embeddings: "),
        ("cross attention", "cross-attention: "),
        ("cross_attn", "cross-attention: "),
        ("layernorm", "residual-and-norm: "),
        ("Layer Norm", "residual-and-norm: "),
        ("positional encoding", "positions: "),
        ("residual", "residual-and-norm: "),
        ("beam", "decoding: "),
        ("padding", "masks: "),
        ("causal", "q4: "),
        ("qkv", "q2: "),
        ("head", "heads: "),
        ("multi-head attention", "heads: "),
        ("scores", "q3: "),
        ("lm_head", "output-projection: "),
        ("logits", "logits "),
        ("resid", "residual-and-norm: "),
        ("sink", "attention-sink: "),
        ("nan", "first-nan: "),
        ("cross_attn.weights", "decoder.0.cross_attn.weights "),
    ] {
        let said = page(&[word]);
        assert!(said.starts_with(title), "{word}: {said}");
    }
    let also = page(&["attention"]);
    assert!(also.contains("see also heads, masks, cross-attention, q2, q3"), "{also}");
}

#[test]
fn a_word_that_could_be_several_topics_lists_them() {
    for (word, names) in [
        ("leak", ["causal-leak", "padding-leak"]),
        ("self_attn.scores", ["encoder.0.self_attn.scores", "decoder.0.self_attn.scores"]),
        ("atention", ["attention", "position"]),
    ] {
        let output = attnscope(&["explain", word]);
        assert_eq!(output.status.code(), Some(2), "{word}");
        assert!(names.iter().all(|name| stderr(&output).contains(name)), "{word}: {}", stderr(&output));
    }
    // A word that is none of these is not answered with names of nodes.
    let unknown = stderr(&attnscope(&["explain", "flux"]));
    assert!(!unknown.contains("encoder.0"), "{unknown}");
}

/// Every table of every document is one that Markdown renders: a head, a line under it, as many cells in every row.
#[test]
fn tables_of_documents_render() {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let others = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "fuzz/README.md"];
    let others =
        others.iter().chain(&["fixtures/README.md", "examples/worked/README.md"]).map(|f| root().join(f));
    let mut tables = 0;
    for file in docs.filter(|f| f.extension().is_some_and(|e| e == "md")).chain(others) {
        let text = std::fs::read_to_string(&file).unwrap();
        let outside: Vec<&str> = text.split("\n```").step_by(2).collect();
        for block in outside.iter().flat_map(|part| part.split("\n\n")) {
            let lines: Vec<&str> = block.trim_matches('\n').lines().collect();
            if !lines.iter().any(|line| line.starts_with('|')) {
                continue;
            }
            let place = format!("{}: {}", file.display(), lines.iter().find(|l| l.starts_with('|')).unwrap());
            assert!(
                lines.iter().all(|line| line.starts_with('|')),
                "{place}: no empty line around the table"
            );
            let rule = lines.get(1).unwrap_or(&"");
            assert!(
                rule.len() > 3 && rule.chars().all(|c| "|-: ".contains(c)),
                "{place}: no line under the head"
            );
            let cells = |line: &str| line.replace("\\|", "").matches('|').count();
            assert!(lines.iter().all(|line| cells(line) == cells(lines[0])), "{place}: rows differ in cells");
            tables += 1;
        }
    }
    assert!(tables > 15, "{tables}");
}
