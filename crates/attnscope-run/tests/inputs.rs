//! The decoder's input and the limits of a model, on the fixtures: labels and inputs there are the original code's.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::{Config, Dim, Model, Recognised, Side, recognise};
use attnscope_run::{
    CheckedInput, Features, Input, InputError, Rows, Sequence, Shift, Tokenizer, check_rows, pad_token,
    tensor_specs,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn open(path: &str) -> (Checkpoint, Model) {
    let checkpoint = Checkpoint::open(&root().join(path)).unwrap();
    let configs: Vec<Config<'_>> =
        checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
    let recognised = recognise(tensor_specs(&checkpoint), &configs, None).unwrap();
    let Recognised::Model(model) = recognised else { panic!("{path}: no encoder-decoder") };
    (checkpoint, *model)
}

/// Rows of a tensor of ids in a fixture's trace, without their padding.
fn traced(folder: &str, name: &str) -> Vec<Vec<u32>> {
    let path = root().join("fixtures").join(folder).join("trace.safetensors");
    let file = Checkpoint::open(&path).unwrap();
    let read = |name: &str| {
        let tensor = file.tensor(name).unwrap();
        (tensor.shape[1], file.read_f32(tensor).unwrap())
    };
    let ((length, ids), (_, open)) = (read(name), read("tgt.open"));
    let rows = ids.chunks(length).zip(open.chunks(length));
    rows.map(|(ids, open)| {
        ids.iter().zip(open).filter(|(_, o)| **o != 0.0).map(|(&id, _)| id as u32).collect()
    })
    .collect()
}

#[test]
fn labels_become_the_inputs_that_the_original_code_makes_of_them() {
    let folders = [
        "bart",
        "blenderbot-small",
        "m2m100",
        "marian",
        "marian-untied",
        "mbart",
        "mt5",
        "pegasus",
        "t5",
        "t5-v1_1",
        "whisper",
        "fairseq/checkpoint.pt",
    ];
    for path in folders {
        let (_, model) = open(&format!("fixtures/{path}"));
        let folder = path.split('/').next().unwrap();
        let (labels, inputs) = (traced(folder, "tgt.labels"), traced(folder, "tgt.ids"));
        // A prompt is the user's; the fixture's is its first token. No other family reads it.
        let shift = Shift::of(&model, &inputs[0][..1]).unwrap();
        for (labels, inputs) in labels.iter().zip(&inputs) {
            assert_eq!(shift.apply(labels), *inputs, "{path}");
        }
        check_rows(&model, Side::Target, &inputs).unwrap();
    }
}

#[test]
fn the_toy_reads_its_sentence_as_it_is() {
    let (_, model) = open("fixtures/tiny-transformer/tiny.pt");
    assert_eq!(Shift::of(&model, &[]).unwrap(), Shift::AsIs);
}

#[test]
fn only_a_table_of_positions_limits_the_length() {
    let check = |folder: &str, side, length: usize| {
        let (_, model) = open(&format!("fixtures/{folder}"));
        check_rows(&model, side, &[vec![3], vec![3; length]])
    };
    for folder in ["bart", "mbart", "pegasus", "blenderbot-small"] {
        for side in [Side::Source, Side::Target] {
            check(folder, side, 24).unwrap();
            let error = check(folder, side, 25).unwrap_err();
            assert!(
                matches!(error, InputError::TooLong { row: 1, length: 25, limit: 24, .. }),
                "{folder}: {error}"
            );
        }
    }
    let error = check("whisper", Side::Target, 25).unwrap_err();
    assert!(matches!(error, InputError::TooLong { limit: 24, .. }), "{error}");
    for folder in ["marian", "m2m100", "t5", "mt5"] {
        check(folder, Side::Source, 1000).unwrap();
        check(folder, Side::Target, 1000).unwrap();
    }
}

#[test]
fn ids_are_held_against_the_embedding_of_their_side() {
    let (_, model) = open("fixtures/marian-untied");
    check_rows(&model, Side::Source, &[vec![98]]).unwrap();
    let error = check_rows(&model, Side::Target, &[vec![98]]).unwrap_err();
    assert_eq!(error.to_string(), "row 0 of the target: id 98 is outside the vocabulary of 83 (0 to 82)");
}

#[test]
fn the_demo_from_text_to_input() {
    let (checkpoint, model) = open("crates/attnscope/models/demo");
    let tokenizer = Tokenizer::from_companions(checkpoint.tokenizer()).unwrap().unwrap();
    let target = tokenizer.encode_target("Ein Mann mit Hut.").unwrap();
    let input = Shift::of(&model, &[]).unwrap().apply(&target);
    assert_eq!((input.len(), input[0]), (target.len(), 0));
    assert_eq!(tokenizer.decode(&input, true), "Ein Mann mit Hut.");
    // An empty text is a sentence with nothing but its end.
    let empty = tokenizer.encode_source("").unwrap();
    assert_eq!(empty, [tokenizer.id("</s>").unwrap()]);
    let pad = pad_token(&model).unwrap().unwrap();
    let rows = Rows::checked(&model, Side::Source, &[empty, target.clone()], pad).unwrap();
    assert_eq!((rows.batch(), rows.length()), (2, target.len()));
    assert_eq!(&rows.open()[..2], [true, false]);
}

#[test]
fn features_have_a_value_for_every_cell() {
    let (_, model) = open("fixtures/whisper");
    let (mels, positions) =
        (model.sizes.get(Dim::Mels).unwrap(), model.sizes.get(Dim::Positions(Side::Source)).unwrap());
    let frames = 2 * positions;
    let sizes = |batch: usize, values: usize| {
        let source = Sequence::Features(Features { values: vec![0.0; values], batch, mels, frames });
        CheckedInput::new(&model, Input::pair(source, Rows::new(&vec![vec![1]; batch], 0)))
    };
    sizes(2, 2 * mels * frames).unwrap();
    for values in [0, mels * frames, 2 * mels * frames - 1, 2 * mels * frames + 1] {
        let error = sizes(2, values).unwrap_err().to_string();
        assert_eq!(error, format!("features: {values} values, but 2 × {mels} × {frames} are expected"));
    }
}
