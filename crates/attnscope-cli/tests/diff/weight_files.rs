//! Weight files, compared weight by weight.

use super::*;

#[test]
fn weight_files_of_two_schemes_are_compared() {
    // OpenAI's names in PyTorch's format and whisper.cpp's file of the same weights.
    let (code, report) =
        checkpoints(&fixture("whisper-openai/tiny.pt"), &fixture("whisper-ggml/ggml-tiny.bin"));
    assert_eq!(code, 0, "{}", first(&report));
    assert!(report["nodes"].as_array().unwrap().len() > 50);
    let (code, report) = checkpoints(&fixture("marian"), &fixture("marian-untied"));
    assert_eq!((code, report["first_divergence"]["kind"].as_str()), (1, Some("bug")));
}

/// f16 has no digits left for the smallest weights; a copy is the same model all the same. The demo's own are f16, so they
/// are made smaller first.
#[test]
fn an_f16_copy_has_no_bug() {
    for (case, factor, least) in [(DEMO, 0.031_37, 1000), (BART, 1.0, 5)] {
        let dir = tempfile::tempdir().unwrap();
        let mut whole = FaultyModel::of(&case.path());
        whole.tensors.iter_mut().flat_map(|t| &mut t.values).for_each(|x| *x *= factor);
        let [single, short] = ["single", "half"].map(|name| whole.save(&dir.path().join(name)));
        let half = |x: &f32| half::f16::from_f32(*x);
        let lost = |x: &&f32| (half(x).to_f64() - f64::from(**x)).abs() > f64::from(x.abs()) / 2048.0;
        let cells = whole.tensors.iter().flat_map(|t| &t.values).filter(lost).count();
        assert!(cells >= least, "{}: {cells}", case.model);
        let entries = whole.tensors.iter().map(|t| {
            let bytes: Vec<u8> = t.values.iter().flat_map(|x| half(x).to_le_bytes()).collect();
            let (name, shape) = (t.name.clone(), t.shape.clone());
            Entry { name, dtype: DType::F16, shape, bytes: Box::new(move |sink| sink(&bytes)) }
        });
        let file = Path::new(&short).join("model.safetensors");
        std::fs::remove_file(&file).unwrap();
        write(Target::Safetensors, &file, entries.collect(), &Map::new()).unwrap();
        for (a, b) in [(&single, &short), (&short, &single)] {
            let (code, report) = checkpoints(a, b);
            assert_eq!(
                (code, &report["first_divergence"]),
                (0, &Value::Null),
                "{}: {}",
                case.model,
                first(&report)
            );
        }
    }
}

#[test]
fn layers_in_each_other_s_place_are_named_as_layers() {
    let dir = tempfile::tempdir().unwrap();
    let mut swapped = FaultyModel::of("demo");
    let layer = |faulty: &mut FaultyModel, n: usize| -> Vec<String> {
        let weights = faulty.weights_under(&format!("decoder.{n}"));
        weights.iter().map(|weight| faulty.tensor(weight).name.clone()).collect()
    };
    let layers = [layer(&mut swapped, 0), layer(&mut swapped, 1)];
    let other = |name: &String| {
        let at = |of: usize| layers[of].iter().position(|own| own == name).map(|i| layers[1 - of][i].clone());
        at(0).or_else(|| at(1)).unwrap_or_else(|| name.clone())
    };
    swapped.tensors.iter_mut().for_each(|tensor| tensor.name = other(&tensor.name));
    let swapped = swapped.save(dir.path());
    let (code, report) = checkpoints("demo", &swapped);
    let found = &report["first_divergence"];
    assert_eq!((code, found["relation"].as_str()), (1, Some("swapped_layers")), "{found}");
    assert_eq!(found["detail"], serde_json::json!({ "stack": "decoder", "layers": [0, 1] }));
    // The weights before it are the same to the bit.
    let text = stdout(&attnscope(&["diff", "--checkpoint", "demo", &swapped]));
    assert!(text.contains("before, all equal\n"), "{text}");
}

#[test]
fn a_weight_of_one_file_only_is_a_difference() {
    // The last layer was lost: the other file is a whole model too.
    let dir = tempfile::tempdir().unwrap();
    let mut short = FaultyModel::of("demo");
    let lost: Vec<String> =
        short.weights_under("decoder.1").iter().map(|weight| short.tensor(weight).name.clone()).collect();
    short.tensors.retain(|tensor| !lost.contains(&tensor.name));
    short.config.insert("decoder_layers".into(), 1.into());
    let short = short.save(dir.path());
    for (a, b, without) in [("demo", short.as_str(), "B"), (short.as_str(), "demo", "A")] {
        let (code, report) = checkpoints(a, b);
        let found = &report["first_divergence"];
        assert_eq!(
            (code, found["relation"].as_str(), found["kind"].as_str()),
            (1, Some("missing_weight"), Some("bug"))
        );
        assert!(found["node"].as_str().unwrap().starts_with("decoder.1."), "{found}");
        let text = stdout(&attnscope(&["diff", "--checkpoint", a, b]));
        assert!(text.contains(&format!("{without} does not have it")), "{text}");
    }
    // A table that two sides share is the same weights as two copies of it; of the copies, one may be changed.
    let tied = fixture("marian");
    let (shared, copies) = (FaultyModel::of(&tied), dir.path().join("copies"));
    let mut untied = FaultyModel::of(&tied);
    let table = shared.tensors.iter().find(|t| t.name == "model.shared.weight").unwrap();
    untied.tensors.retain(|t| t.name != table.name);
    for name in ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"] {
        untied.tensors.push(faults::Tensor { name: name.into(), ..table.clone() });
    }
    untied.config.insert("share_encoder_decoder_embeddings".into(), false.into());
    let (code, report) = checkpoints(&tied, &untied.save(&copies));
    assert_eq!(code, 0, "{}", first(&report));
    untied.tensors.last_mut().unwrap().values[0] += 1.0;
    std::fs::remove_dir_all(&copies).unwrap();
    assert_eq!(checkpoints(&tied, &untied.save(&copies)).0, 1);
    // Files of which nothing is known but names.
    let file = |name: &str, tensors: &[&str]| {
        let path = dir.path().join(name);
        save(&path, tensors.iter().map(|name| ((*name).to_owned(), vec![2], vec![0; 8])).collect());
        path.display().to_string()
    };
    let (both, one) = (file("both.safetensors", &["x", "y"]), file("one.safetensors", &["x"]));
    for (a, b, lacks) in [(&both, &one, "b"), (&one, &both, "a")] {
        let (code, report) = checkpoints(a, b);
        assert_eq!((code, first(&report).as_str()), (1, "y bug missing_weight"));
        assert_eq!(report["nodes"][1][lacks], Value::Null);
    }
    let other = file("other.safetensors", &["z"]);
    assert_eq!(attnscope(&["diff", "--checkpoint", &both, &other]).status.code(), Some(2));
}
