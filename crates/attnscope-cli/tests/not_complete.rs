//! Files that are no complete model of a known family, and what a file cannot say of one that is.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::checkpoint::Checkpoint;
use attnscope::graph::{ASSUMED, OtherKind, Recognised};
use attnscope::run::{Input, Rows, Sequence, Weights};
use common::run::{Keep, run};
use common::{attnscope, fixture, open, stderr, stdout};

/// The two lines of a command that could not be carried out.
fn refused(args: &[&str]) -> String {
    let output = attnscope(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stdout(&output));
    stderr(&output)
}

#[test]
fn an_adapter_is_called_one_and_its_base_model_is_named() {
    for path in ["adapter", "adapter/adapter_model.safetensors"] {
        let said = refused(&["flow", &fixture(path)]);
        for part in
            ["an adapter, not a model", "peft_type is \"LORA\"", "google/flan-t5-small", "merge_and_unload"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let inspected = stdout(&attnscope(&["inspect", &fixture("adapter")]));
    assert!(inspected.contains("This is an adapter"), "{inspected}");
    // Without its config the tensors tell.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("adapter_model.safetensors");
    std::fs::copy(fixture("adapter/adapter_model.safetensors"), &file).unwrap();
    let Recognised::Other(other) = open(&file.display().to_string(), None).recognised else { panic!() };
    assert_eq!(other.kind, OtherKind::Adapter);
    assert!(other.because.contains("lora_"), "{}", other.because);
}

#[test]
fn speech2text_is_told_from_whisper() {
    let said = refused(&["flow", &fixture("speech2text")]);
    assert!(
        said.contains("model_type is \"speech_to_text\"") && said.contains("only Whisper can be run"),
        "{said}"
    );
}

/// What needs an operation that is not there is called by its name, with a config and without: never taken for a similar family.
#[test]
fn families_that_are_not_run_are_called_by_name() {
    let cases = [
        ("not-run/deberta", "DeBERTa", "encoder-only", "disentangled attention"),
        ("not-run/deberta-v2", "DeBERTa", "encoder-only", "disentangled attention"),
        ("not-run/longt5-tglobal", "LongT5 with transient global", "encoder-decoder", "sums of blocks"),
        ("not-run/prophetnet", "ProphetNet", "encoder-decoder", "n-gram"),
        ("not-run/bigbird-pegasus", "BigBird-Pegasus", "encoder-decoder", "block-sparse"),
        ("not-run/pegasus-x", "Pegasus-X", "encoder-decoder", "global tokens"),
        ("not-run/switch-transformers", "SwitchTransformers", "encoder-decoder", "experts"),
        ("not-run/nllb-moe", "NLLB-MoE", "encoder-decoder", "experts"),
        ("not-run/moonshine", "Moonshine", "encoder-decoder", "samples of a recording"),
        ("not-run/speecht5", "SpeechT5", "encoder-decoder", "front ends"),
        ("not-run/trocr", "VisionEncoderDecoder", "encoder-decoder", "patches"),
        ("not-run/donut", "VisionEncoderDecoder", "encoder-decoder", "patches"),
        ("speech2text", "Speech2Text", "encoder-decoder", "convolutions"),
    ];
    for (name, title, kind, missing) in cases {
        let folder = tempfile::tempdir().unwrap();
        let bare = folder.path().join("model.safetensors");
        std::fs::copy(fixture(&format!("{name}/model.safetensors")), &bare).unwrap();
        for path in [fixture(name), bare.display().to_string()] {
            let inspected = attnscope(&["inspect", &path]);
            assert_eq!(inspected.status.code(), Some(0), "{path}");
            let said = stdout(&inspected);
            assert!(said.contains(&format!("This is {title}")) && said.contains(missing), "{path}: {said}");
            let said: serde_json::Value =
                serde_json::from_slice(&attnscope(&["inspect", &path, "--format", "json"]).stdout).unwrap();
            assert_eq!(said["kind"], kind, "{path}");
            assert!(said["family"].as_str().unwrap().contains(title), "{path}: {said}");
            for args in [
                vec!["flow", &path],
                vec!["summary", &path],
                vec!["trace", &path, "--src-ids", "5,6", "--tgt-ids", "7,8"],
                vec!["doctor", &path],
                vec!["generate", &path, "--src-ids", "5,6"],
            ] {
                let said = refused(&args);
                assert!(said.contains(title) && said.contains(missing), "{args:?}: {said}");
                assert!(said.contains("help: "), "{args:?}: {said}");
            }
        }
    }
}

/// Falcon's other shapes are drawn; what they need is named.
#[test]
fn a_falcon_that_is_not_run_says_what_is_missing() {
    for (name, key) in
        [("falcon-alibi", "alibi is true"), ("falcon-groups", "new_decoder_architecture is true")]
    {
        let path = fixture(&format!("not-run/{name}"));
        assert_eq!(open(&path, None).model().unwrap().family.id, "falcon", "{name}");
        let said = refused(&["trace", &path, "--tgt-ids", "5,6"]);
        assert!(said.contains(key), "{name}: {said}");
    }
}

#[test]
fn a_name_on_the_hub_is_no_path() {
    let said = refused(&["flow", "Helsinki-NLP/opus-mt-en-de"]);
    assert!(said.contains("looks like a name on the Hugging Face hub"), "{said}");
    assert!(said.contains("hf download Helsinki-NLP/opus-mt-en-de --local-dir opus-mt-en-de"), "{said}");
    // A copy in the cache of Hugging Face's tools is named.
    let cache = tempfile::tempdir().unwrap();
    let snapshot = cache.path().join("models--Helsinki-NLP--opus-mt-en-de/snapshots/0123");
    std::fs::create_dir_all(&snapshot).unwrap();
    let mut command = common::command(&["flow", "Helsinki-NLP/opus-mt-en-de"]);
    let output = command.env("HF_HUB_CACHE", cache.path()).output().unwrap();
    assert!(stderr(&output).contains(&format!("give {}", snapshot.display())), "{}", stderr(&output));
}

#[test]
fn an_onnx_model_is_named_alone_and_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("encoder_model.onnx");
    // IR version 8, producer "pytorch" 2.1.0, a graph.
    std::fs::write(&file, b"\x08\x08\x12\x07pytorch\x1a\x052.1.0\x3a\x80\x01rest").unwrap();
    let said = refused(&["flow", &file.display().to_string()]);
    assert!(said.contains("an ONNX model") && said.contains("model.safetensors"), "{said}");
    let said = refused(&["flow", &folder.path().display().to_string()]);
    assert!(said.contains("ONNX models are not read"), "{said}");
}

/// torch's own numbers, once the user has said what the file does not.
#[test]
fn what_a_file_of_nn_transformer_does_not_say_is_assumed_and_can_be_set() {
    let path = fixture("torch-nn-pre/model.pt");
    let mut opened = open(&path, Some(4));
    for field in ["norm_place", "activation"] {
        let model = opened.model().unwrap();
        let fact = model.facts.iter().find(|fact| fact.name == field).unwrap();
        assert_eq!(fact.source, ASSUMED, "{field}");
    }
    let args = ["trace", &path, "--heads", "4", "--src-ids", "4,5", "--tgt-ids", "4", "--layer", "logits"];
    let note = stderr(&attnscope(&args));
    assert!(
        note.contains("assumed, because the file does not say: activation=relu, norm_place=post"),
        "{note}"
    );
    let theirs = Checkpoint::open(fixture("torch-nn-pre/logits.safetensors").as_ref()).unwrap();
    let read = |name: &str| theirs.read_f32(theirs.tensor(name).unwrap()).unwrap();
    let ids = |name: &str| Rows::new(&[read(name).iter().map(|&id| id as u32).collect::<Vec<_>>()], 0);
    let input = Input::pair(Sequence::Tokens(ids("src.ids")), ids("tgt.ids"));
    let worst = |opened: &attnscope::Opened| {
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let logits = model.graph.find("logits").unwrap();
        let mut kept = Keep::new(|id| id == logits);
        run(model, &weights, &input, &mut kept).unwrap();
        let pairs = kept.tensors[&logits].values.iter().zip(read("logits"));
        pairs.fold(0f64, |worst, (a, b)| worst.max((a - f64::from(b)).abs()))
    };
    assert!(worst(&opened) > 0.1, "as assumed it is another model");
    opened.set_wiring(&["norm_place=pre".into(), "activation=gelu".into()]).unwrap();
    assert!(worst(&opened) < 1e-4, "{}", worst(&opened));
    let fact = |name: &str| {
        let model = opened.model().unwrap();
        model.facts.iter().find(|fact| fact.name == name).unwrap().source.clone()
    };
    assert_eq!((fact("norm_place"), fact("norm_eps")), ("--wiring".into(), ASSUMED.into()));
}

#[test]
fn a_wiring_that_is_none_is_refused() {
    let said = refused(&["flow", "--wiring", "norm_place=top"]);
    assert!(
        said.contains("norm_place: unknown variant `top`, expected one of `pre`, `post`, `both`"),
        "{said}"
    );
    assert!(refused(&["flow", "--wiring", "colour=red"]).contains("no field \"colour\""));
    assert!(refused(&["flow", "--wiring", "norm_place"]).contains("FIELD=VALUE"));
}
