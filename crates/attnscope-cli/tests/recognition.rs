//! What is made of files that say less, or something else, than they should.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::graph::{Dim, Fact, Stack};
use common::{config_of, fixture, open, rewrite, same, stderr};
use serde_json::json;
use tempfile::tempdir;

const HUGGING_FACE: &[(&str, &str)] = &[
    ("marian", "marian"),
    ("bart", "bart"),
    ("mbart", "mbart"),
    ("pegasus", "pegasus"),
    ("m2m100", "m2m_100"),
    ("blenderbot-small", "blenderbot-small"),
    ("t5", "t5"),
    ("t5-v1_1", "t5-v1_1"),
    ("whisper", "whisper"),
    ("longt5", "longt5"),
];

#[test]
fn without_a_config_the_tensors_tell_the_family() {
    for (name, family) in HUGGING_FACE {
        let folder = tempdir().unwrap();
        let path = rewrite(&fixture(name), folder.path(), |n| Some(n.into()), same, None);
        let opened = open(&path, Some(4));
        let model = opened.model().unwrap();
        assert_eq!(model.family.id, *family, "{name}");
        assert!(model.binding.is_complete(), "{name}: {:?}", model.obstacles);
    }
}

/// Encoders have similar names, and LED has BART's in its decoder: the prefix, or a part that only one has, tells them apart.
#[test]
fn without_a_config_similar_families_are_told_apart() {
    for name in ["bert", "roberta", "distilbert", "modernbert", "electra", "albert", "led"] {
        let folder = tempdir().unwrap();
        let path = rewrite(&fixture(name), folder.path(), |n| Some(n.into()), same, None);
        let opened = open(&path, Some(4));
        let model = opened.model().unwrap();
        assert_eq!(model.family.id, name);
        assert!(model.binding.is_complete(), "{name}: {:?}", model.obstacles);
    }
}

#[test]
fn any_prefix_is_seen_through() {
    for (name, family) in HUGGING_FACE {
        for prefix in ["", "state_dict.net.", "module."] {
            let folder = tempdir().unwrap();
            let rename = |n: &str| Some(format!("{prefix}{}", n.strip_prefix("model.").unwrap_or(n)));
            let path = rewrite(&fixture(name), folder.path(), rename, same, Some(&config_of(name)));
            let opened = open(&path, None);
            let model = opened.model().unwrap();
            assert_eq!(model.family.id, *family, "{name} behind {prefix:?}");
            assert!(model.binding.is_complete(), "{name} behind {prefix:?}: {:?}", model.obstacles);
            assert_eq!(model.prefix, prefix, "{name}");
        }
    }
}

#[test]
fn heads_unknown_is_said_and_can_be_given() {
    let path = fixture("torch-nn/model.pt");
    let opened = open(&path, None);
    let model = opened.model().unwrap();
    assert_eq!(model.sizes.get(Dim::Heads(Stack::Encoder)), None);
    assert!(model.obstacles.iter().any(|o| o.contains("--heads")));
    let drawn = common::attnscope(&["flow", &path, "--component", "self_attn"]);
    assert!(common::stdout(&drawn).contains("H heads × K (H unknown)"));
    assert!(stderr(&drawn).contains("--heads"));
    let given = open(&path, Some(4));
    assert!(given.model().unwrap().obstacles.is_empty());
}

#[test]
fn t5_tells_its_heads_by_the_bias_table() {
    let folder = tempdir().unwrap();
    let path = rewrite(&fixture("t5"), folder.path(), |n| Some(n.into()), same, None);
    let opened = open(&path, None);
    assert_eq!(opened.model().unwrap().sizes.get(Dim::Heads(Stack::Decoder)), Some(4));
}

#[test]
fn holes_are_marked_and_do_not_stop_the_drawing() {
    let folder = tempdir().unwrap();
    let gone = "model.decoder.layers.1.encoder_attn.k_proj.weight";
    let rename = |n: &str| (n != gone).then(|| n.to_owned());
    let path = rewrite(&fixture("bart"), folder.path(), rename, same, Some(&config_of("bart")));
    let opened = open(&path, None);
    let model = opened.model().unwrap();
    let missing: Vec<&str> = model.binding.missing().map(|(_, name)| name).collect();
    assert_eq!(missing, [gone]);
    let drawn = common::attnscope(&["flow", &path, "--width", "120"]);
    assert_eq!(drawn.status.code(), Some(0));
    let text = common::stdout(&drawn);
    // The layers are no longer alike: each is drawn, and the hole is in the second.
    let (first, second) = text.split_once("\ndecoder.1.cross_attn\n").unwrap();
    assert!(first.contains("\ndecoder.0.cross_attn\n") && !first.contains("MISSING k_proj"));
    assert!(second.contains("MISSING k_proj.weight"));
}

#[test]
fn a_wrong_shape_is_reported_with_both() {
    let folder = tempdir().unwrap();
    let odd = "model.encoder.layers.2.fc1.weight";
    let reshape = |n: &str, s: &[usize]| if n == odd { vec![47, 32] } else { s.to_vec() };
    let path =
        rewrite(&fixture("bart"), folder.path(), |n| Some(n.into()), reshape, Some(&config_of("bart")));
    let opened = open(&path, None);
    let model = opened.model().unwrap();
    let wrong: Vec<_> = model.binding.mismatched().collect();
    assert_eq!(wrong.len(), 1);
    assert_eq!((wrong[0].2, wrong[0].3), ([48, 32].as_slice(), [47, 32].as_slice()));
}

#[test]
fn a_config_that_lies_is_shown_and_the_shapes_win() {
    let folder = tempdir().unwrap();
    let mut config = config_of("bart");
    config["d_model"] = json!(999);
    config["encoder_layers"] = json!(12);
    config["vocab_size"] = json!(1_000_000_000_000u64);
    let path = rewrite(&fixture("bart"), folder.path(), |n| Some(n.into()), same, Some(&config));
    let opened = open(&path, None);
    let model = opened.model().unwrap();
    let fact = |name: &str| -> &Fact { model.facts.iter().find(|f| f.name == name).unwrap() };
    assert_eq!(fact("d_model").value, json!(32));
    assert_eq!(fact("d_model").disagree, [("config.json: d_model".to_owned(), json!(999))]);
    assert_eq!(fact("encoder layers").value, json!(3));
    assert_eq!(fact("encoder layers").disagree.len(), 1);
    let text = common::stdout(&common::attnscope(&["inspect", &path]));
    assert!(text.contains("! config.json: d_model says 999"));
}

#[test]
fn heads_that_do_not_divide_stop_a_run_with_the_reason() {
    let folder = tempdir().unwrap();
    let mut config = config_of("bart");
    config["decoder_attention_heads"] = json!(5);
    let path = rewrite(&fixture("bart"), folder.path(), |n| Some(n.into()), same, Some(&config));
    let opened = open(&path, None);
    let model = opened.model().unwrap();
    assert!(
        model.obstacles.iter().any(|o| o.contains("5 decoder heads") && o.contains("32")),
        "{:?}",
        model.obstacles
    );
}

#[test]
fn a_tie_that_the_file_denies_is_shown() {
    let opened = open(&fixture("mt5"), None);
    let model = opened.model().unwrap();
    assert!(!model.wiring.tied_output);
    let fact = model.facts.iter().find(|f| f.name == "tied_output").unwrap();
    assert_eq!(fact.disagree.len(), 1);
}

#[test]
fn both_spellings_of_a_t5_config_mean_the_same() {
    let folder = tempdir().unwrap();
    let text = std::fs::read_to_string(format!("{}/config.v5.json", fixture("t5-v1_1"))).unwrap();
    let config = serde_json::from_str(&text).unwrap();
    let path = rewrite(&fixture("t5-v1_1"), folder.path(), |n| Some(n.into()), same, Some(&config));
    let [a, b] = [open(&fixture("t5-v1_1"), None), open(&path, None)];
    assert_eq!(a.model().unwrap().wiring, b.model().unwrap().wiring);
}

#[test]
fn an_absurd_layer_number_does_not_build_a_billion_layers() {
    let folder = tempdir().unwrap();
    let rename = |n: &str| Some(n.replace("encoder.layers.2.", "encoder.layers.999999999."));
    let path = rewrite(&fixture("bart"), folder.path(), rename, same, Some(&config_of("bart")));
    let opened = open(&path, None);
    let model = opened.model().unwrap();
    assert_eq!(model.graph.layers(Stack::Encoder), 2);
    assert!(!model.binding.unused.is_empty());
}

/// A decoder-only model of a family that is not known.
#[test]
fn other_models_are_named_for_what_they_are() {
    let folder = tempdir().unwrap();
    let names = [
        ("model.layers.", "gpt_neox.layers."),
        ("self_attn.", "attention."),
        ("mlp.", "dense."),
        ("norm", "ln"),
    ];
    let rename = |n: &str| Some(names.iter().fold(n.to_owned(), |n, (from, to)| n.replace(from, to)));
    let config = json!({ "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"] });
    let path = rewrite(&fixture("llama"), folder.path(), rename, same, Some(&config));
    let inspected = common::attnscope(&["inspect", &path]);
    assert_eq!(inspected.status.code(), Some(0));
    let text = common::stdout(&inspected);
    assert!(text.contains("decoder-only") && text.contains("without cross-attention"), "{text}");
    let drawn = common::attnscope(&["flow", &path]);
    assert_eq!(drawn.status.code(), Some(2));
    assert!(stderr(&drawn).contains("decoder-only") && stderr(&drawn).contains("help:"));
}

#[test]
fn an_unknown_family_is_drawn_as_the_closest_and_says_so() {
    let folder = tempdir().unwrap();
    let mut config = config_of("t5-v1_1");
    config["model_type"] = json!("t7");
    config["architectures"] = json!(["T7ForConditionalGeneration"]);
    let path = rewrite(&fixture("t5-v1_1"), folder.path(), |n| Some(n.into()), same, Some(&config));
    let opened = open(&path, None);
    let model = opened.model().unwrap();
    assert!(
        model.obstacles.iter().any(|o| o.contains("t7") && o.contains("closest")),
        "{:?}",
        model.obstacles
    );
    let drawn = common::attnscope(&["flow", &path]);
    assert!(common::stdout(&drawn).contains("t7, drawn as T5 v1.1"));
    assert!(stderr(&drawn).contains("t7"));
}

#[test]
fn cross_attention_under_unknown_names_is_not_denied() {
    let folder = tempdir().unwrap();
    let rename = |n: &str| Some(n.replace("encoder_attn", "crossattention").replace("layers", "stages"));
    let path = rewrite(&fixture("bart"), folder.path(), rename, same, None);
    let text = common::stdout(&common::attnscope(&["inspect", &path]));
    assert!(text.contains("an encoder-decoder of an unknown family"), "{text}");
    assert!(!text.contains("without cross-attention"), "{text}");
}

#[test]
fn an_encoder_alone_is_no_encoder_decoder() {
    let folder = tempdir().unwrap();
    let rename = |n: &str| (!n.starts_with("decoder.")).then(|| n.to_owned());
    let mut config = config_of("t5");
    config["architectures"] = json!(["T5EncoderModel"]);
    let path = rewrite(&fixture("t5"), folder.path(), rename, same, Some(&config));
    let drawn = common::attnscope(&["flow", &path]);
    assert_eq!(drawn.status.code(), Some(2));
    assert!(stderr(&drawn).contains("an encoder-only model"), "{}", stderr(&drawn));
}

#[test]
fn an_unknown_activation_draws_and_does_not_run() {
    let folder = tempdir().unwrap();
    let mut config = config_of("bart");
    config["activation_function"] = json!("sine");
    let path = rewrite(&fixture("bart"), folder.path(), |n| Some(n.into()), same, Some(&config));
    let opened = open(&path, None);
    let obstacles = &opened.model().unwrap().obstacles;
    assert!(obstacles.iter().any(|o| o.contains("sine") && o.contains("relu, gelu")), "{obstacles:?}");
}

#[test]
fn keys_that_a_config_leaves_out_mean_what_the_family_s_code_means() {
    let cases = [
        ("marian", "scale_embedding", "embedding_scale", json!("none")),
        ("marian", "activation_function", "activation", json!("gelu")),
        ("m2m100", "scale_embedding", "embedding_scale", json!("sqrt_d_model")),
        ("t5", "tie_word_embeddings", "logit_scale", json!("rsqrt_d_model")),
    ];
    for (name, key, field, expected) in cases {
        let folder = tempdir().unwrap();
        let mut config = config_of(name);
        for key in [key, "scale_decoder_outputs"] {
            config.as_object_mut().unwrap().remove(key);
        }
        let path = rewrite(&fixture(name), folder.path(), |n| Some(n.into()), same, Some(&config));
        let opened = open(&path, None);
        let fact = opened.model().unwrap().facts.iter().find(|f| f.name == field).unwrap().clone();
        assert_eq!(fact.value, expected, "{name} without {key}");
    }
}

#[test]
fn the_boxes_of_the_overview_add_up() {
    for &(path, _, heads) in common::MODELS {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let flow =
            attnscope::Model::from(open(&fixture(path), heads)).flow(&attnscope::FlowOptions::default());
        let overview = attnscope_render::flow::diagrams(&flow.unwrap()).remove(0);
        let number = |words: &str| words.split(' ').next().unwrap().replace(',', "").parse::<u64>().unwrap();
        let mut sum = 0;
        for block in &overview.blocks {
            let times = block.title.split(" × ").nth(1).map_or(1, |n| n.parse().unwrap());
            for line in &block.lines {
                match line.as_str() {
                    l if l.ends_with(" parameters each") => sum += number(l) * times,
                    l if l.ends_with(" parameters") || l.contains(" more for ") => sum += number(l),
                    _ => {}
                }
            }
        }
        assert_eq!(sum, model.parameters().0, "{path}");
    }
}

#[test]
fn buckets_that_no_distance_could_fill_are_refused() {
    let mut config = config_of("t5-v1_1");
    let buckets = config["relative_attention_num_buckets"].as_u64().unwrap();
    for (distance, runs) in [(buckets / 2 + 1, true), (buckets / 2, false), (0, false)] {
        config["relative_attention_max_distance"] = json!(distance);
        let folder = tempdir().unwrap();
        let path = rewrite(&fixture("t5-v1_1"), folder.path(), |n| Some(n.into()), same, Some(&config));
        let run = common::attnscope(&[
            "trace",
            &path,
            "--src-ids",
            "5,6,7,8,9",
            "--tgt-ids",
            "0,6,7,8,9,10,11,12,13",
        ]);
        assert_eq!(run.status.code(), Some(if runs { 0 } else { 2 }), "{distance}: {}", stderr(&run));
        let said = format!("the largest distance, {distance} (config.json: relative_attention_max_distance)");
        assert_eq!(stderr(&run).contains(&said), !runs, "{}", stderr(&run));
    }
}

#[test]
fn a_vocabulary_of_nothing_is_refused() {
    let folder = tempdir().unwrap();
    let none = |name: &str, shape: &[usize]| match name {
        "model.shared.weight" | "lm_head.weight" => vec![0, shape[1]],
        "final_logits_bias" => vec![1, 0],
        _ => shape.to_vec(),
    };
    let path = rewrite(&fixture("bart"), folder.path(), |n| Some(n.into()), none, Some(&config_of("bart")));
    let run = common::attnscope(&["trace", &path, "--src-ids", "0", "--tgt-ids", "0"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(stderr(&run).contains("weights have no elements"), "{}", stderr(&run));
}
