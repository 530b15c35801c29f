//! Models of one stack, through every command: GPT-2, Llama and BERT against Hugging Face.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::diagnose::cell::Cells;
use attnscope::diagnose::masks::{Claim, Padding, PerturbationRig, Proof, Verdict};
use attnscope::diagnose::rounding::Precision;
use attnscope::graph::{Architecture, Stack, Switch, build, snapshots};
use attnscope::run::{CheckedInput, Decode, Input, Native, PadSide, Uncached, Weights};
use common::run::{Keep, prepare, run, session};
use common::trace::Trace;
use common::{ONE_STACK, attnscope, fixture, is_encoder, open, root, shared, stderr, stdout};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let output = attnscope(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", stderr(&output)))
}

/// Whether queries and keys are rotated.
fn has_rotary(family: &str) -> bool {
    !matches!(family, "gpt2" | "opt" | "bert" | "roberta" | "distilbert" | "electra" | "albert")
}

/// The ids of a fixture's input, as the command line takes them, and the option that does.
fn given(path: &str) -> (&'static str, String) {
    let input = Trace::open(path).input();
    let (side, rows) = input.tokens().next().unwrap();
    let row = |row: &Vec<u32>| row.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let text = rows.tokens().iter().map(row).collect::<Vec<_>>().join(";");
    (if side.name() == "src" { "--src-ids" } else { "--tgt-ids" }, text)
}

#[test]
fn each_is_recognised_bound_and_built_from_its_architecture() {
    for &(path, family) in ONE_STACK {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        assert_eq!(model.family.id, family, "{path}");
        assert!(model.binding.is_complete() && model.obstacles.is_empty(), "{path}: {:?}", model.obstacles);
        assert!(model.binding.unused.is_empty(), "{path}: {:?}", model.binding.unused);
        assert_eq!(model.graph, build(&model.architecture, &model.wiring), "{path}");
        assert_eq!(model.rewired(&model.wiring, None).graph, model.graph, "{path}");
        let paths = model.graph.nodes().iter().map(|node| node.path.as_str());
        assert_eq!(Architecture::of_paths(paths), model.architecture, "{path}");
        let expected: Value = serde_json::from_str(
            &std::fs::read_to_string(root().join(format!("fixtures/{path}/expected.json"))).unwrap(),
        )
        .unwrap();
        assert_eq!(Some(model.parameters().0), expected["parameters_in_file"].as_u64(), "{path}");
        let said = json(&["inspect", &fixture(path), "--format", "json"]);
        let kind = if is_encoder(family) { "encoder-only" } else { "decoder-only" };
        assert_eq!(said["kind"], kind, "{path}");
    }
}

#[test]
fn files_with_the_oldest_names_of_the_hub_give_the_same_logits() {
    for name in ["gpt2", "bert"] {
        let folder = format!("hub-names/{name}");
        let opened = open(&fixture(&folder), None);
        let model = opened.model().unwrap();
        assert!(model.obstacles.is_empty(), "{name}: {:?}", model.obstacles);
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let expected = attnscope::checkpoint::Checkpoint::open(std::path::Path::new(&fixture(&format!(
            "{folder}/logits.safetensors"
        ))))
        .unwrap();
        let read = |name: &str| {
            let tensor = expected.tensor(name)?;
            Some((tensor.shape.clone(), expected.read_f32(tensor).unwrap()))
        };
        let side = model.architecture.sides().next().unwrap();
        let (shape, ids) = read("input_ids").or_else(|| read(&format!("{}.ids", side.name()))).unwrap();
        let rows: Vec<Vec<u32>> =
            ids.chunks(shape[1]).map(|row| row.iter().map(|&id| id as u32).collect()).collect();
        let tokens = attnscope::run::Rows::new(&rows, 0);
        let input = Input::of(side, attnscope::run::Sequence::Tokens(tokens));
        let logits = model.graph.find("logits").unwrap();
        let mut kept = Keep::new(|id| id == logits);
        run(model, &weights, &input, &mut kept).unwrap();
        let (_, theirs) = read("logits").unwrap();
        let most = theirs.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (a, b) in kept.tensors[&logits].values.iter().zip(&theirs) {
            assert!((a - f64::from(*b)).abs() <= 1e-4 * f64::from(most), "{name}: {a} and {b}");
        }
    }
}

/// A model without its head ends with its encoder's output.
#[test]
fn an_encoder_without_a_head_runs_to_its_end() {
    let path = fixture("bert-headless");
    let traced = json(&["trace", &path, "--src-ids", "5,6,7,8", "--format", "json"]);
    let walk = traced["snapshots"].as_array().unwrap();
    assert_eq!(walk.last().unwrap()["node"], "encoder.out");
    assert_eq!(
        json(&["masks", &path, "--src-ids", "5,6,7,8", "--format", "json"])["proofs"][0]["verdict"],
        "holds"
    );
}

#[test]
fn a_cache_of_rotated_and_shared_keys_changes_nothing() {
    for &(path, _) in ONE_STACK.iter().filter(|(_, family)| !is_encoder(family)) {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let rows = [vec![5, 9, 17, 33, 8, 21, 40], vec![7, 7, 12, 50, 3, 60, 11]];
        let [mut first, mut second] = [0; 2].map(|_| session(model, &weights));
        let given = CheckedInput::to_decode(model, Input::empty(2)).unwrap();
        let mut cached = first.decode(&given).unwrap();
        let mut whole = Uncached::new(&mut *second, &given);
        // Several tokens, one, then the rows in another order.
        for (from, to, order) in [(0, 3, [0, 1]), (3, 4, [1, 0]), (4, 7, [0, 1])] {
            let new: Vec<Vec<u32>> = rows.iter().map(|row| row[from..to].to_vec()).collect();
            let (a, b) = (cached.advance(&new).unwrap(), whole.advance(&new).unwrap());
            let most = b.iter().fold(0f32, |most, x| most.max(x.abs()));
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() <= 2e-5 * most, "{path}: {a} and {b} after {to} tokens");
            }
            cached.reorder(&order).unwrap();
            whole.reorder(&order).unwrap();
        }
    }
}

#[test]
fn continuations_are_hugging_face_s() {
    let text = std::fs::read_to_string(root().join("fixtures/language-models/expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let most = expected["max_new_tokens"].to_string();
    for (name, cases) in expected["models"].as_object().unwrap() {
        let Some(path) = shared(&format!("models/{name}")) else { return };
        let cases = cases.as_array().unwrap();
        let prompts: Vec<&str> =
            cases.iter().flat_map(|case| ["--prompt", case["prompt"].as_str().unwrap()]).collect();
        for (beams, key) in [("1", "greedy"), ("3", "beam3")] {
            let options = ["generate", &path, "--format", "json", "--beams", beams, "--max-length", &most];
            let made = json(&[&options[..], &prompts].concat());
            for (case, made) in cases.iter().zip(made["outputs"].as_array().unwrap()) {
                let theirs = match key {
                    "greedy" => vec![case[key].clone()],
                    _ => case[key].as_array().unwrap().clone(),
                };
                let started = case["prompt_ids"].as_array().unwrap();
                assert_eq!(made["start"], case["prompt_ids"], "{name}");
                for (theirs, ours) in theirs.iter().zip(made["hypotheses"].as_array().unwrap()) {
                    let tokens = ours["tokens"].as_array().unwrap();
                    let ids: Vec<&Value> = tokens.iter().map(|token| &token["id"]).collect();
                    let expected = theirs["ids"].as_array().unwrap();
                    assert!(ids.iter().copied().eq(&expected[started.len()..]), "{name}: {}", case["prompt"]);
                    for (token, p) in tokens.iter().zip(theirs["token_log_probs"].as_array().unwrap()) {
                        let far = token["log_prob"].as_f64().unwrap() - p.as_f64().unwrap();
                        assert!(far.abs() < 2e-4, "{name}: {token} and {p}");
                    }
                }
            }
        }
    }
}

fn proofs(path: &str, edit: impl Fn(&mut attnscope::graph::Wiring)) -> Vec<Proof> {
    let opened = open(&fixture(path), None);
    let mut model = opened.model().unwrap().clone();
    let weights = Weights::load(&model, &opened.checkpoint).unwrap();
    edit(&mut model.wiring);
    model.graph = build(&model.architecture, &model.wiring);
    let input = Trace::open(path).input();
    let padding = Padding { id: 0, side: PadSide::Right };
    let prepared = prepare(&Native::new(), &model, &weights);
    PerturbationRig::new(&*prepared, &input, padding).unwrap().prove_all().unwrap()
}

#[test]
fn masks_are_proved_and_a_missing_one_is_found() {
    for &(path, family) in ONE_STACK {
        let whole = proofs(path, |_| {});
        let claims: Vec<Claim> = whole.iter().map(|proof| proof.claim).collect();
        match family {
            "bert" | "roberta" | "distilbert" | "electra" | "albert" => {
                assert_eq!(claims, [Claim::PaddingAlone, Claim::PaddingEmbeddings], "{path}");
            }
            "modernbert" => {
                let all = [Claim::Window, Claim::PaddingAlone, Claim::PaddingEmbeddings];
                assert_eq!(claims, all, "{path}");
            }
            "mistral" | "qwen2" | "qwen3" | "gemma2" | "gemma3" | "phi3" => {
                let padding = [Claim::PaddingAlone, Claim::PaddingEmbeddings];
                assert_eq!(claims, [&[Claim::Causal, Claim::Window], &padding[..]].concat(), "{path}");
            }
            _ => assert_eq!(claims, [Claim::Causal, Claim::PaddingAlone, Claim::PaddingEmbeddings], "{path}"),
        }
        // Phi-3's window is longer than the rows.
        let is_too_long = |proof: &Proof| family == "phi3" && proof.claim == Claim::Window;
        let mut all = whole.iter().filter(|proof| !is_too_long(proof));
        assert!(all.all(|proof| proof.verdict == Verdict::Holds), "{path}: {whole:?}");
        let open = match family {
            _ if is_encoder(family) => proofs(path, |wiring| wiring.padding_mask = Switch::Off),
            _ => proofs(path, |wiring| wiring.causal_mask = Switch::Off),
        };
        assert!(open.iter().any(Proof::fails), "{path}: {open:?}");
    }
}

/// Every operation's arithmetic, written out, gives what the run stored.
#[test]
fn cells_explain_themselves() {
    for &(path, _) in ONE_STACK {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = Trace::open(path).input();
        let mut kept = Keep::new(|_| true);
        run(model, &weights, &input, &mut kept).unwrap();
        let sizes = CheckedInput::new(model, input.clone()).unwrap().sizes().clone();
        let precision = Precision::F32;
        let (weights, input, sizes, tensors) = (&weights, &input, &sizes, &kept.tensors);
        let cells = Cells { model, weights, input, sizes, precision, tensors };
        for (id, node) in model.graph.iter() {
            let shape = &kept.tensors[&id].shape;
            // A place that is not the same along any two dimensions.
            let at: Vec<usize> = shape.iter().enumerate().map(|(i, n)| (i + 1).min(n - 1)).collect();
            let told = cells.arithmetic(id, &at).unwrap();
            let value = told.steps.last().unwrap().value;
            let same = value == told.stored || (value - told.stored).abs() <= told.bound.max(1e-7);
            assert!(
                same,
                "{path}: {} at {at:?}: {value} and {} within {}",
                node.path, told.stored, told.bound
            );
        }
    }
}

#[test]
fn a_walk_stops_at_what_the_model_has_in_the_order_of_computation() {
    for &(path, family) in ONE_STACK {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let walk = snapshots(&model.graph, 1);
        let numbers: Vec<usize> = walk.iter().map(|stop| stop.number).collect();
        assert_eq!(numbers, (1..=walk.len()).collect::<Vec<_>>(), "{path}");
        assert_eq!(attnscope::graph::order_note(&model.graph, &walk), None, "{path}");
        let has = |name: &str| walk.iter().any(|stop| stop.view.path(&model.graph).ends_with(name));
        assert_eq!(has("q_rot"), has_rotary(family), "{path}");
        assert_eq!(has("src.types"), matches!(family, "bert" | "roberta" | "electra" | "albert"), "{path}");
    }
}

/// Our trace against the dump of Hugging Face: nothing but rounding. Against a run with another rotary base: the rotation
/// is where they part, and everything after it only follows.
#[test]
fn diff_finds_another_rotary_base_and_no_difference_where_there_is_none() {
    for &(path, family) in ONE_STACK {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let (option, ids) = given(path);
        let save = |to: &str, wiring: &[&str]| {
            let model = fixture(path);
            let args = [&["trace", &model, option, &ids, "--save", to, "-q"], wiring].concat();
            let output = attnscope(&args);
            assert!(output.status.success(), "{}", stderr(&output));
        };
        save(&at("ours"), &[]);
        let theirs = fixture(&format!("{path}/trace.safetensors"));
        let same = attnscope(&["diff", &at("ours"), &theirs]);
        assert_eq!(same.status.code(), Some(0), "{path}: {}", stdout(&same));
        assert!(stdout(&same).contains("no difference beyond rounding"), "{}", stdout(&same));
        if has_rotary(family) {
            save(&at("other"), &["--wiring", "rotary_theta=700.0"]);
            let found = json(&["diff", &at("ours"), &at("other"), "--format", "json"]);
            let node = found["first_divergence"]["node"].as_str().unwrap();
            // Layers with a window may have a base of their own.
            assert!(node.ends_with(".self_attn.q_rot"), "{path}: {node}");
        }
    }
}

#[test]
fn what_a_model_does_not_have_is_said() {
    let (gpt2, bert) = (fixture("gpt2"), fixture("bert"));
    let cases: &[(&[&str], &str)] = &[
        (&["generate", &gpt2, "--tgt-ids", "5,6", "--align"], "has no cross-attention"),
        (&["generate", &bert, "--src-ids", "5,6"], "does not generate"),
        (&["trace", &gpt2, "--src-ids", "5,6"], "reads one text"),
        (&["trace", &bert, "--src-ids", "5,6", "--tgt-ids", "7"], "reads one text"),
        (&["trace", "demo", "--prompt", "Two dogs"], "reads a source and a target"),
        (&["trace", &gpt2], "nothing to read"),
        (&["masks", &gpt2, "--tgt-ids", "5,6,7", "--wrong", "causal-cross"], "no cross-attention"),
        (&["flow", &gpt2, "--component", "encoder"], "decoder-only and has no encoder"),
        (&["flow", &bert, "--component", "decoder"], "encoder-only and has no decoder"),
        (&["flow", &gpt2, "--component", "cross_attn"], "has no cross-attention"),
    ];
    for (args, expected) in cases {
        let output = attnscope(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = stderr(&output);
        assert!(said.contains(expected) && said.contains("help: "), "{args:?}: {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let pairs = folder.path().join("pairs.tsv");
    std::fs::write(&pairs, "a\tb\n").unwrap();
    for model in [&gpt2, &bert] {
        let refused = attnscope(&["doctor", model, "--pairs", pairs.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("reads one text"), "{}", stderr(&refused));
    }
    let examined = stdout(&attnscope(&["doctor", &gpt2, "--tgt-ids", "5,6,7,8"]));
    assert!(examined.contains("run on 1 row\n"), "{examined}");
    let drawn = stdout(&attnscope(&["flow", &gpt2, "--component", "cross_attn"]));
    assert!(!drawn.contains("cross_attn"), "{drawn}");
}

#[test]
fn the_doctor_checks_what_needs_no_pairs_and_says_what_it_did_not() {
    for &(path, family) in ONE_STACK {
        let said = json(&["doctor", &fixture(path), "--format", "json"]);
        let skipped: Vec<&str> =
            said["not_checked"].as_array().unwrap().iter().map(|one| one["rule"].as_str().unwrap()).collect();
        for rule in ["source-ignored", "wiring-mismatch", "cross-mask-fault"] {
            assert!(skipped.contains(&rule), "{path}: {skipped:?}");
        }
        assert_eq!(skipped.contains(&"causal-leak"), is_encoder(family), "{path}");
        assert!(!skipped.contains(&"padding-leak") && !skipped.contains(&"first-nan"), "{path}");
    }
}

/// No page speaks of an encoder, a source or cross-attention that the model does not have.
#[test]
fn explanations_tell_of_what_is_there() {
    let gpt2 = fixture("gpt2");
    let topics = [
        "scaled-dot-product",
        "heads",
        "residual-and-norm",
        "positions",
        "output-projection",
        "embeddings",
        "feed-forward",
    ];
    for topic in topics {
        let told = stdout(&attnscope(&["explain", topic, &gpt2, "--tgt-ids", "5,6,7"]));
        let told = told.split("see also").next().unwrap();
        assert!(
            !told.contains("ncoder's") && !told.contains("source") && !told.contains("absent"),
            "{topic}: {told}"
        );
    }
    for topic in ["cross-attention", "teacher-forcing", "decoding", "q1"] {
        let told =
            stdout(&attnscope(&["explain", topic, &gpt2])).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("This one is decoder-only: it has no cross-attention."), "{topic}: {told}");
    }
}

#[test]
fn layers_of_a_stack_that_is_not_there_are_none() {
    let opened = open(&fixture("gpt2"), None);
    let architecture = &opened.model().unwrap().architecture;
    assert_eq!((architecture.layers(Stack::Encoder), architecture.layers(Stack::Decoder)), (0, 3));
}

#[test]
fn who_asks_for_a_part_that_is_not_there_is_told() {
    let (llama, bert) = (fixture("llama"), fixture("bert"));
    for args in [
        &["flow", &llama, "--component", "cross_attn"][..],
        &["flow", &llama, "--component", "encoder"],
        &["flow", &bert, "--component", "decoder", "--format", "svg"],
        &["masks", &llama, "--tgt-ids", "5,6", "--wrong", "causal-cross"],
    ] {
        let ran = attnscope(args);
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(stderr(&ran).contains("-only"), "{args:?}: {}", stderr(&ran));
    }
}

/// A gated feed-forward has three maps, and rotary positions are found by their name.
#[test]
fn explanations_are_of_this_model() {
    let llama = fixture("llama");
    let feed_forward = stdout(&attnscope(&["explain", "ffn", &llama]));
    assert!(feed_forward.contains("Three linear maps"), "{feed_forward}");
    assert!(stdout(&attnscope(&["explain", "ffn", &fixture("gpt2")])).contains("Two linear maps"));
    assert!(stdout(&attnscope(&["explain", "rotary", &llama])).contains("rotated by their position"));
}

/// A window is found in the config, layer by layer, drawn with its own sign, and a run without it is told apart.
#[test]
fn windows_are_read_drawn_and_compared() {
    let cases = [("mistral", 5, None), ("qwen2", 4, Some([1, 2]))];
    for (path, window, layers) in cases {
        let (model, (option, ids)) = (fixture(path), given(path));
        let masks = json(&["masks", &model, option, &ids, "--format", "json"])["masks"].clone();
        let windowed = masks.as_array().unwrap().iter().find(|mask| mask["reach"].is_u64()).unwrap();
        assert_eq!(windowed["reach"], window - 1, "{path}");
        assert_eq!(windowed["of_layers"], serde_json::json!(layers), "{path}");
        let last = windowed["rows"][0].as_array().unwrap().last().unwrap().as_str().unwrap();
        assert_eq!(last, format!("{}{}", "w".repeat(14 - window), "o".repeat(window)), "{path}");
        let text = stdout(&attnscope(&["masks", &model, option, &ids]));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("outside the window") && text.contains("window: a token sees"), "{text}");
        let facts = json(&["inspect", &model, "--format", "json"]).to_string();
        assert!(facts.contains("window"), "{facts}");
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for (name, more) in [("ours", &[][..]), ("open", &["--wiring", "window=null"])] {
            let output =
                attnscope(&[&["trace", &model, option, &ids, "--save", &at(name), "-q"], more].concat());
            assert!(output.status.success(), "{}", stderr(&output));
        }
        let found = json(&["diff", &at("ours"), &at("open"), "--format", "json"]);
        let first = layers.map_or(0, |all| all[0]);
        let node = found["first_divergence"]["node"].as_str().unwrap();
        assert!(node.starts_with(&format!("decoder.{first}.self_attn.mask")), "{path}: {node}");
    }
}

#[test]
fn a_window_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("sliding_window", "0", "a number of positions"),
        ("sliding_window", "\"far\"", "a number of positions"),
    ];
    for (key, value, expected) in cases {
        let text = std::fs::read_to_string(fixture("mistral/config.json")).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config[key] = serde_json::from_str(value).unwrap();
        std::fs::copy(fixture("mistral/model.safetensors"), folder.path().join("model.safetensors")).unwrap();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let output = attnscope(&["inspect", folder.path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{value}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
