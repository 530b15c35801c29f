//! Language models beyond one config: scaled rotary positions, GGUF, Meta's own files, and configs that cannot be.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::path::Path;

use attnscope::checkpoint::Checkpoint;
use attnscope::graph::{Dim, NormGain, RotaryPairs, Side, Stack};
use attnscope::run::{Input, Kept, PadSide, Rows, Sequence, Weights};
use common::faults::FaultyModel;
use common::run::{Keep, run};
use common::{ONE_STACK, attnscope, fixture, is_encoder, json, open, shared, stderr};
use serde_json::{Value, json};

/// What Hugging Face gave, by name: the shape and the values.
struct Expected(Checkpoint);

impl Expected {
    fn open(path: &str) -> Self {
        Self(Checkpoint::open(Path::new(&fixture(path))).unwrap())
    }

    fn get(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let tensor = self.0.tensor(name).unwrap_or_else(|| panic!("{name}"));
        (tensor.shape.clone(), self.0.read_f32(tensor).unwrap())
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        self.get(name).1.iter().map(|&id| id as u32).collect()
    }
}

/// One node's tensor of a run on a row of the target.
fn traced(path: &str, rows: Rows, node: &str) -> Kept {
    traced_on(path, &Input::of(Side::Target, Sequence::Tokens(rows)), node)
}

/// One node's tensor of a run on any input.
fn traced_on(path: &str, input: &Input, node: &str) -> Kept {
    let opened = open(path, None);
    let model = opened.model().unwrap();
    assert!(model.obstacles.is_empty(), "{path}: {:?}", model.obstacles);
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let id = model.graph.find(node).unwrap();
    let mut kept = Keep::new(|other| other == id);
    run(model, &weights, input, &mut kept).unwrap();
    let tensor = &kept.tensors[&id];
    Kept { shape: tensor.shape.clone(), values: tensor.values.clone() }
}

fn close(ours: &[f64], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let most = theirs.iter().fold(0f64, |most, x| most.max(f64::from(x.abs())));
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - f64::from(*b)).abs() <= 1e-4 * most, "{what}: {a} and {b}");
    }
}

/// The last positions of each head, or of each row.
fn last(kept: &Kept, count: usize) -> Vec<f64> {
    let [.., length, width] = kept.shape[..] else { panic!("{:?}", kept.shape) };
    kept.values.chunks(length * width).flat_map(|rows| &rows[(length - count) * width..]).copied().collect()
}

/// A change of a config.
type EditConfig = fn(&mut Value);

/// A copy of a fixture with a config edited by `edit`.
fn edited(folder: &Path, from: &str, edit: impl FnOnce(&mut Value)) -> String {
    let text = std::fs::read_to_string(fixture(&format!("{from}/config.json"))).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    edit(&mut config);
    std::fs::copy(fixture(&format!("{from}/model.safetensors")), folder.join("model.safetensors")).unwrap();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    folder.display().to_string()
}

#[test]
fn scaled_rotary_positions_are_hugging_face_s() {
    let expected = Expected::open("rope-scaling/expected.safetensors");
    let said: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("rope-scaling/expected.json")).unwrap())
            .unwrap();
    let ids = expected.ids("tgt.ids");
    for (name, keys) in said.as_object().unwrap() {
        // As newer files have it, and as older ones do.
        for older in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = edited(folder.path(), "llama", |config| {
                let mut rope = keys["rope_parameters"].clone();
                config["max_position_embeddings"] = keys["max_position_embeddings"].clone();
                if older {
                    config.as_object_mut().unwrap().remove("rope_parameters");
                    config["rope_theta"] = rope.as_object_mut().unwrap().remove("rope_theta").unwrap();
                    let word = rope.as_object_mut().unwrap().remove("rope_type").unwrap();
                    rope["type"] = word;
                    config["rope_scaling"] = rope;
                } else {
                    config["rope_parameters"] = rope;
                }
            });
            for (label, length) in [("long", ids.len()), ("short", 14)] {
                let rows = || Rows::new(&[ids[..length].to_vec()], 0);
                for (node, part) in [("decoder.0.self_attn.q_rot", "q_rot"), ("logits", "logits")] {
                    let (shape, theirs) = expected.get(&format!("{name}.{label}.{part}"));
                    let ours = traced(&path, rows(), node);
                    close(&last(&ours, shape[shape.len() - 2]), &theirs, &format!("{name}, {label}, {part}"));
                }
            }
            let facts = json(&["inspect", &path, "--format", "json"])["facts"].clone();
            let facts = facts.to_string();
            assert!(facts.contains("rotary_scaling") && facts.contains(name.as_str()), "{name}: {facts}");
        }
    }
}

/// llama.cpp's converter permutes q and k of Llama, adds the 1 to Gemma's gains, and unpacks GPT-NeoX's heads.
#[test]
fn gguf_files_give_hugging_face_s_logits() {
    let expected = Expected::open("decoder-gguf/expected.safetensors");
    let cases = [
        ("llama", "llama", Some(RotaryPairs::Neighbours), Some(NormGain::Weight)),
        ("mistral", "llama", Some(RotaryPairs::Neighbours), Some(NormGain::Weight)),
        ("qwen2", "qwen2", Some(RotaryPairs::Halves), Some(NormGain::Weight)),
        ("qwen3", "qwen3", Some(RotaryPairs::Halves), Some(NormGain::Weight)),
        ("gemma", "gemma", Some(RotaryPairs::Halves), Some(NormGain::Weight)),
        ("gemma2", "gemma2", Some(RotaryPairs::Halves), Some(NormGain::Weight)),
        ("phi3", "phi3", Some(RotaryPairs::Halves), Some(NormGain::Weight)),
        ("gpt-neox", "gpt_neox", Some(RotaryPairs::Halves), None),
        ("gemma3", "gemma3", Some(RotaryPairs::Halves), Some(NormGain::Weight)),
        ("gpt2", "gpt2", None, None),
        ("falcon", "falcon", Some(RotaryPairs::Halves), None),
        // Its divisors are tensors; the second text is longer than those of the first training.
        ("phi3-long", "phi3", Some(RotaryPairs::Halves), Some(NormGain::Weight)),
        ("phi3-long-longer", "phi3", Some(RotaryPairs::Halves), Some(NormGain::Weight)),
    ];
    for (name, family, pairs, gain) in cases {
        let path = fixture(&format!("decoder-gguf/{}.gguf", name.trim_end_matches("-longer")));
        let opened = open(&path, None);
        let model = opened.model().unwrap();
        assert_eq!(model.family.id, family, "{name}");
        assert_eq!((model.wiring.rotary_pairs, model.wiring.norm_gain), (pairs, gain), "{name}");
        assert!(model.binding.unused.is_empty(), "{name}: {:?}", model.binding.unused);
        let rows = Rows::new(&[expected.ids(&format!("{name}.ids"))], 0);
        let (shape, theirs) = expected.get(&format!("{name}.logits"));
        close(&last(&traced(&path, rows, "logits"), shape[1]), &theirs, name);
    }
}

/// llama.cpp keeps no heads of encoders, cuts RoBERTa's position table, and calls UMT5 T5.
#[test]
fn encoders_of_gguf_files_give_hugging_face_s_states() {
    let expected = Expected::open("encoder-gguf/expected.safetensors");
    for (name, family) in
        [("bert", "bert"), ("roberta", "bert"), ("distilbert", "distilbert"), ("modernbert", "modernbert")]
    {
        let path = fixture(&format!("encoder-gguf/{name}.gguf"));
        let opened = open(&path, None);
        let model = opened.model().unwrap();
        assert_eq!(model.family.id, family, "{name}");
        assert!(model.binding.unused.is_empty(), "{name}: {:?}", model.binding.unused);
        let rows = Rows::new(&[expected.ids(&format!("{name}.ids"))], 0);
        let input = Input::of(Side::Source, Sequence::Tokens(rows));
        let (shape, theirs) = expected.get(&format!("{name}.out"));
        close(&last(&traced_on(&path, &input, "encoder.out"), shape[1]), &theirs, name);
    }
    let path = fixture("encoder-gguf/umt5.gguf");
    assert_eq!(open(&path, None).model().unwrap().family.id, "umt5");
    let rows = |side: &str| Rows::new(&[expected.ids(&format!("umt5.{side}.ids"))], 0);
    let input = Input::pair(Sequence::Tokens(rows("src")), rows("tgt"));
    let (shape, theirs) = expected.get("umt5.logits");
    close(&last(&traced_on(&path, &input, "logits"), shape[1]), &theirs, "umt5");
}

/// In GGUF nothing but the number of layers tells that the scale of Gemma's 27B is another one.
#[test]
fn the_27b_of_gemma_has_a_scale_of_its_own() {
    use attnscope::graph::{Config, Recognised, recognise};
    let opened = open(&fixture("decoder-gguf/gemma2.gguf"), None);
    for (layers, width) in [(46, Some(32.0 / 4.0)), (42, None)] {
        let mut facts = opened.checkpoint.configs()[0].facts.clone();
        facts.insert("gemma2.block_count".into(), json!(layers));
        let config = Config { source: "GGUF metadata", facts: &facts };
        let tensors = attnscope::run::tensor_specs(&opened.checkpoint);
        let Recognised::Model(model) = recognise(tensors, &[config], None).unwrap() else { panic!() };
        assert_eq!(model.wiring.score_width, width, "{layers}");
    }
}

/// A shard of Meta's holds a part of every matrix: alone, it is no model.
#[test]
fn shards_of_meta_s_files_are_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["consolidated.00.pth", "params.json"] {
        std::fs::copy(fixture(&format!("llama-meta/{name}")), folder.path().join(name)).unwrap();
    }
    let whole = folder.path().display().to_string();
    assert_eq!(json(&["inspect", &whole, "--format", "json"])["family"], "llama");
    let second = folder.path().join("consolidated.01.pth");
    std::fs::copy(fixture("llama-meta/consolidated.00.pth"), second).unwrap();
    for path in [whole.clone(), format!("{whole}/consolidated.00.pth")] {
        let refused = attnscope(&["inspect", &path]);
        assert_eq!(refused.status.code(), Some(2), "{path}");
        let said = stderr(&refused);
        assert!(said.contains("2 files") && said.contains("convert_llama_weights_to_hf"), "{said}");
    }
}

#[test]
fn meta_s_own_files_are_the_same_model() {
    let meta = fixture("llama-meta");
    let opened = open(&meta, None);
    let model = opened.model().unwrap();
    assert_eq!((model.family.id, model.wiring.rotary_pairs), ("llama", Some(RotaryPairs::Neighbours)));
    assert_eq!(model.wiring.rotary_base, Some(5000.0));
    assert_eq!((model.wiring.kv_heads, model.sizes.get(Dim::Heads(Stack::Decoder))), (Some(2), Some(4)));
    let rows = || Rows::new(&[vec![5, 9, 17, 33, 8, 21, 40, 7, 7, 12]], 0);
    let (ours, theirs) = (traced(&meta, rows(), "logits"), traced(&fixture("llama"), rows(), "logits"));
    let theirs: Vec<f32> = theirs.values.iter().map(|&x| x as f32).collect();
    close(&ours.values, &theirs, "Meta and Hugging Face");
}

/// Rotary positions depend on distances alone, so that padding before a row's tokens moves nothing: with the positions that
/// generate() counts, or without them.
#[test]
fn padding_on_the_left_changes_no_token_s_logits() {
    for path in ["llama", "qwen3", "gemma2", "gemma3", "phi3", "gpt-neox"] {
        let texts = [vec![5, 9, 17, 33, 8, 21, 40], vec![7, 12, 50]];
        let padded = traced(&fixture(path), Rows::padded(&texts, 0, PadSide::Left, 0), "logits");
        let [_, length, vocab] = padded.shape[..] else { panic!("{:?}", padded.shape) };
        for (row, text) in texts.iter().enumerate() {
            let alone = traced(&fixture(path), Rows::new(std::slice::from_ref(text), 0), "logits");
            let start = (row * length + length - text.len()) * vocab;
            let theirs: Vec<f32> = alone.values.iter().map(|&x| x as f32).collect();
            close(&padded.values[start..start + theirs.len()], &theirs, path);
        }
    }
}

/// Hugging Face's logits of rows that are padded on the left: of language models with the positions that generate() counts.
#[test]
fn left_padded_rows_give_hugging_face_s_logits() {
    for &(path, family) in ONE_STACK.iter().filter(|(path, _)| left_padded(path)) {
        let expected = Expected::open(&format!("left-padding/{path}.safetensors"));
        let side = if is_encoder(family) { Side::Source } else { Side::Target };
        let open = expected.get(&format!("{}.open", side.name())).1;
        let ids = expected.ids(&format!("{}.ids", side.name()));
        let (shape, theirs) = expected.get("logits");
        let row = |n: usize| {
            let row = n * shape[1]..(n + 1) * shape[1];
            row.filter(|&i| open[i] != 0.0).map(|i| ids[i]).collect::<Vec<u32>>()
        };
        let rows = Rows::padded(&[row(0), row(1)], ids[shape[1]], PadSide::Left, 0);
        let ours = traced_on(&fixture(path), &Input::of(side, Sequence::Tokens(rows)), "logits");
        let most = theirs.iter().fold(0f64, |most, x| most.max(f64::from(x.abs())));
        for ((ours, theirs), _) in ours
            .values
            .chunks(shape[2])
            .zip(theirs.chunks(shape[2]))
            .zip(&open)
            .filter(|(_, open)| **open != 0.0)
        {
            for (a, b) in ours.iter().zip(theirs) {
                assert!((a - f64::from(*b)).abs() <= 1e-4 * most, "{path}: {a} and {b}");
            }
        }
    }
}

fn left_padded(path: &str) -> bool {
    Path::new(&fixture(&format!("left-padding/{path}.safetensors"))).exists()
}

#[test]
fn the_wiring_says_what_language_models_differ_in() {
    let wiring = |path: &str| {
        let facts = json(&["inspect", &fixture(path), "--format", "json"])["facts"].clone();
        let facts = facts.as_array().unwrap().clone();
        move |name: &str| {
            facts.iter().find(|fact| fact["name"] == name).map_or(Value::Null, |f| f["value"].clone())
        }
    };
    let llama = wiring("llama");
    let said = ["rotary_theta", "rotary_layout", "kv_heads", "norm_gain", "window"].map(llama);
    assert_eq!(said, [json!(5000.0), json!("halves"), json!(2), json!("weight"), Value::Null]);
    let gemma = wiring("gemma3");
    assert_eq!([gemma("norm_gain"), gemma("window")], [json!("one_plus_weight"), json!(5)]);
    assert_eq!(gemma("window_layers"), json!([0, 1]));
    assert_eq!(wiring("gpt-neox")("rotary_share"), json!(0.5));
    // The names that fields had before are still accepted.
    let ids = ["--tgt-ids", "5,6,7"];
    for edit in [
        "rotary_layout=interleaved",
        "rotary_pairs=neighbours",
        "rotary_base=700.0",
        "norm_gain=one_plus_weight",
    ] {
        let args = ["trace", &fixture("llama"), "--wiring", edit, "--format", "json"];
        json(&[&args[..], &ids[..]].concat());
    }
    let refused = attnscope(&["trace", &fixture("llama"), "--tgt-ids", "5,6", "--wiring", "kv_heads=3"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("shows 2"), "{}", stderr(&refused));
}

/// A window that a config denies is none: the family's default is for configs without the key.
#[test]
fn a_window_of_null_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = edited(folder.path(), "mistral", |config| config["sliding_window"] = Value::Null);
    assert_eq!(open(&path, None).model().unwrap().wiring.window, None);
}

#[test]
fn what_cannot_be_run_is_drawn_and_says_why() {
    let cases: [(&str, EditConfig, &str); 3] = [
        ("llama", |config| config["rope_parameters"]["rope_type"] = json!("spiral"), "spiral"),
        (
            "phi3",
            |config| config["rope_parameters"]["short_factor"] = json!([1.0]),
            "longrope has 1 and 3 factors",
        ),
        ("llama", |config| config["num_attention_heads"] = json!(3), "no multiple of the head width 16"),
    ];
    for (from, edit, why) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = edited(folder.path(), from, edit);
        let drawn = attnscope(&["flow", &path]);
        assert!(drawn.status.success(), "{why}: {}", stderr(&drawn));
        let refused = attnscope(&["trace", &path, "--tgt-ids", "5,6,7"]);
        assert_eq!(refused.status.code(), Some(2), "{why}");
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    }
    let wrong: [(EditConfig, &str); 2] = [
        (|config| config["rope_parameters"] = json!({ "rope_type": "llama3", "rope_theta": 5.0 }), "numbers"),
        (|config| config["rope_parameters"]["rope_theta"] = json!(-1.0), "a number above 1"),
    ];
    for (edit, why) in wrong {
        let folder = tempfile::tempdir().unwrap();
        let refused = attnscope(&["inspect", &edited(folder.path(), "llama", edit)]);
        assert_eq!(refused.status.code(), Some(2), "{why}");
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    }
}

/// Cached decoding, greedily and with beams, makes what Hugging Face's generate() makes.
#[test]
fn continuations_of_every_family_are_hugging_face_s() {
    let text = std::fs::read_to_string(fixture("generate-decoders/expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let (most, beams) = (expected["max_new_tokens"].to_string(), expected["beams"].to_string());
    for (name, case) in expected["models"].as_object().unwrap() {
        let ids = |value: &Value| value.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>();
        let prompt = ids(&case["ids"]);
        for (count, key) in [("1", "greedy"), (beams.as_str(), "beams")] {
            let given = prompt.join(",");
            let path = fixture(name);
            let args = ["generate", &path, "--tgt-ids", &given, "--beams", count, "--max-length", &most];
            let made = json(&[&args[..], &["--format", "json"]].concat());
            let made = made["outputs"][0]["hypotheses"].as_array().unwrap().clone();
            for (ours, theirs) in made.iter().zip(case[key].as_array().unwrap()) {
                let ours: Vec<String> =
                    ours["tokens"].as_array().unwrap().iter().map(|token| token["id"].to_string()).collect();
                // Hugging Face fills shorter ones with one id: its padding, or its end.
                let theirs = &ids(theirs)[prompt.len()..];
                assert_eq!(ours, theirs[..ours.len()], "{name}, {key}");
                let padding = &theirs[ours.len()..];
                assert!(padding.iter().all(|id| *id == padding[0]), "{name}, {key}: {theirs:?}");
            }
            assert_eq!(made.len(), case[key].as_array().unwrap().len(), "{name}, {key}");
        }
    }
}

/// SmolLM and TinyLlama are Llamas by their configs.
#[test]
fn models_of_llama_s_architecture_are_llamas() {
    let Some(path) = shared("models/llama-tiny-en") else { return };
    assert_eq!(json(&["inspect", &path, "--format", "json"])["family"], "llama");
}

/// Each mistake on one side of a diff is named.
#[test]
fn diff_names_the_usual_mistakes() {
    let cases = [
        (
            "llama",
            "rotary_layout=interleaved",
            "other_rotary",
            json!({ "how": "layout", "layout": "interleaved" }),
        ),
        ("llama", "rotary_theta=500000.0", "other_rotary", json!({ "how": "theta", "theta": 500_000.0 })),
        ("llama", "kv_sharing=tile", "other_kv_sharing", json!({ "kv_sharing": "tile" })),
        ("gpt-neox", "rotary_share=null", "other_rotary", json!({ "how": "all_features" })),
        ("gemma", "norm_gain=weight", "other_norm_gain", json!({ "gain": "weight" })),
        ("qwen3", "norm_gain=one_plus_weight", "other_norm_gain", json!({ "gain": "one_plus_weight" })),
    ];
    for (path, edit, name, detail) in cases {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for (to, more) in [("ours", &[][..]), ("theirs", &["--wiring", edit])] {
            let args =
                ["trace", &fixture(path), "--tgt-ids", "5,9,17,33,8,21,40,11", "--save", &at(to), "-q"];
            let saved = attnscope(&[&args[..], more].concat());
            assert!(saved.status.success(), "{}", stderr(&saved));
        }
        let args = ["diff", &at("ours"), &at("theirs"), "--model", &fixture(path), "--format", "json"];
        let found: Value = serde_json::from_slice(&attnscope(&args).stdout).unwrap();
        let first = &found["first_divergence"];
        let said = (&first["relation"], &first["detail"]);
        assert_eq!(said, (&json!(name), &detail), "{path}, {edit}: {found}");
    }
}

/// Every so many heads of queries share a head of keys and values: the same model as that of neighbours with its queries, and the
/// columns that read them, in another order; forward and backward.
#[test]
fn heads_that_are_tiled_are_those_of_neighbours_in_another_order() {
    const ORDER: [usize; 4] = [0, 2, 1, 3];
    let folder = tempfile::tempdir().unwrap();
    let mut model = FaultyModel::of(&fixture("llama"));
    for layer in 0..3 {
        model.edit(&format!("decoder.{layer}.self_attn.q.weight"), |w| {
            let (old, head) = (w.to_vec(), w.len() / 4);
            w.chunks_mut(head)
                .zip(ORDER)
                .for_each(|(to, from)| to.copy_from_slice(&old[from * head..][..head]));
        });
        model.edit(&format!("decoder.{layer}.self_attn.out.weight"), |w| {
            for row in w.chunks_mut(4 * 12) {
                let old = row.to_vec();
                row.chunks_mut(12)
                    .zip(ORDER)
                    .for_each(|(to, from)| to.copy_from_slice(&old[from * 12..][..12]));
            }
        });
    }
    let path = model.save(&folder.path().join("permuted"));
    let saved = |path: &str, to: &str, more: &[&str]| {
        let to = folder.path().join(to).display().to_string();
        let ids = ["--tgt-ids", "5,9,17,33,8,21;40,11,3,9,9,2", "--save", &to, "-q"];
        let done = attnscope(&[&["trace", path], &ids[..], more].concat());
        assert!(done.status.success(), "{}", stderr(&done));
        Expected(Checkpoint::open(Path::new(&to).join("trace.safetensors").as_path()).unwrap())
    };
    let permuted = saved(&path, "neighbours", &["--gradients"]);
    let tiled = saved(&fixture("llama"), "tiled", &["--wiring", "kv_sharing=tile", "--gradients"]);
    let judged = saved(
        &fixture("llama"),
        "reference",
        &["--wiring", "kv_sharing=tile", "--device", "reference", "--layer", "logits"],
    );
    let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    close(&wide(tiled.get("logits").1), &judged.get("logits").1, "the reference");
    for name in [
        "logits",
        "decoder.2.out",
        "grad:decoder.0.in",
        "grad:decoder.1.self_attn.k",
        "grad:decoder.1.self_attn.v",
    ] {
        close(&wide(tiled.get(name).1), &permuted.get(name).1, name);
    }
    // [batch, head, query, key]
    for name in ["weights", "scores"]
        .iter()
        .flat_map(|leaf| ["", "grad:"].map(|of| format!("{of}decoder.1.self_attn.{leaf}")))
    {
        let ((shape, ours), (_, theirs)) = (tiled.get(&name), permuted.get(&name));
        let head: usize = shape[2..].iter().product();
        let in_order: Vec<f64> = ours
            .chunks(4 * head)
            .flat_map(|row| ORDER.iter().flat_map(|&from| wide(row[from * head..][..head].to_vec())))
            .collect();
        close(&in_order, &theirs, &name);
    }
}
