//! Files that other programs wrote.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are tests too.

mod common;

use attnscope_checkpoint::{Checkpoint, DType, Format};
use common::{fixture, shared};

#[test]
fn whisper_of_openai() {
    let Some(path) = shared("models/whisper-tiny.en/tiny.en.pt") else { return };
    let model = Checkpoint::open(&path).unwrap();
    assert_eq!(model.format(), Format::PyTorch);
    assert_eq!(model.tensors().len(), 167);
    let conv = model.tensor("model_state_dict.encoder.conv1.weight").unwrap();
    assert_eq!((conv.dtype, conv.shape.as_slice()), (DType::F16, [384, 80, 3].as_slice()));
    let dims = model.configs().iter().find(|c| c.source == "dims").unwrap();
    assert_eq!(dims.facts["n_audio_state"], 384);
    assert!(model.placeholders().is_empty());
}

#[test]
fn folders_of_hugging_face() {
    // The counts are those of Python's safetensors.
    for (name, tensors) in [
        ("marian-tiny-en-de", 86),
        ("marian-base-en-de", 128),
        ("t5-tiny-en-de", 47),
        ("bart-tiny-en-de", 92),
    ] {
        let Some(path) = shared(&format!("models/{name}")) else { continue };
        let model = Checkpoint::open(&path).unwrap();
        assert_eq!(model.format(), Format::Safetensors);
        assert_eq!(model.configs()[0].source, "config.json");
        assert!(model.tokenizer().iter().any(|c| c.name() == "tokenizer.json"));
        assert_eq!(model.tensors().len(), tensors);
        // The file opened by itself finds the same things beside it.
        let alone = Checkpoint::open(&path.join("model.safetensors")).unwrap();
        assert_eq!(alone.tensors(), model.tensors());
        assert_eq!(alone.configs(), model.configs());
    }
}

#[test]
fn torch_file_of_everything() {
    for file in ["mixed.pt", "deflated.pt"] {
        let model = Checkpoint::open(&fixture("pytorch").join(file)).unwrap();
        let shape = |name: &str| model.tensor(name).unwrap_or_else(|| panic!("{name}")).shape.clone();
        assert_eq!(shape("model.embed.weight"), [5, 4]);
        assert_eq!(shape("model.transposed"), [4, 3]);
        assert_eq!(shape("model.scalar"), [0usize; 0]);
        assert_eq!(shape("model.empty"), [0, 4]);
        assert_eq!(shape("model.parameter"), [2, 2]);
        assert_eq!(shape("nested.layers.1.weight"), [3]);
        assert_eq!(shape("nested.7"), [1]);
        let names = ["model.embed.weight", "model.head.weight", "model.part"];
        let shared = model.shared();
        assert!(shared.iter().any(|g| g.iter().map(|t| t.name.as_str()).eq(names)), "{shared:?}");
        assert_eq!(model.tensor("types.bfloat16").unwrap().dtype, DType::BF16);
        assert_eq!(model.tensor("types.uint16").unwrap().dtype, DType::U16);
        assert_eq!(model.tensor("types.float8_e4m3fn").unwrap().dtype, DType::F8E4M3);

        let args = &model.configs().iter().find(|c| c.source == "args").unwrap().facts;
        assert_eq!(args["encoder_layers"], 2);
        assert_eq!(args["inf"], "inf");
        let top = &model.configs().iter().find(|c| c.source == "top level").unwrap().facts;
        assert_eq!(top["epoch"], 3);
        let held: Vec<_> =
            model.placeholders().iter().map(|p| (p.global.as_str(), p.place.as_str(), p.called)).collect();
        assert!(held.contains(&("argparse.Namespace", "args", true)), "{held:?}");
        assert!(held.contains(&("posix.system", "danger", true)), "{held:?}");
    }
    assert!(!std::path::Path::new("/tmp/attnscope-was-run").exists());
}

#[test]
fn whole_modules_and_torchscript() {
    for file in ["module.pt", "script.pt"] {
        let model = Checkpoint::open(&fixture("pytorch").join(file)).unwrap();
        let names: Vec<_> = model.tensors().iter().map(|t| t.name.as_str()).collect();
        assert!(names.contains(&"0.weight"), "{file}: {names:?}");
        assert!(names.contains(&"1.running_mean"), "{file}: {names:?}");
    }
}

#[test]
fn numpy_archives() {
    for file in ["stored.npz", "deflated.npz"] {
        let model = Checkpoint::open(&fixture("npz").join(file)).unwrap();
        assert_eq!(model.format(), Format::Npz);
        assert_eq!(model.tensors().len(), 8);
        let fortran = model.tensor("fortran").unwrap();
        assert_eq!((fortran.dtype, fortran.shape.as_slice()), (DType::F32, [3, 4].as_slice()));
        assert_eq!(model.tensor("layer/weight").unwrap().bytes(), 48);
        assert_eq!(model.tensor("note").unwrap().dtype.name(), "text");
    }
    let error = Checkpoint::open(&fixture("npz/big_endian.npz")).unwrap_err();
    assert!(error.to_string().contains("big-endian"), "{error}");
    let error = Checkpoint::open(&fixture("npz/object.npz")).unwrap_err();
    assert!(error.to_string().contains("pickle"), "{error}");
}
