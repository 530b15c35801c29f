//! Dumps of other programs: read in every form, matched by names, a map or values, and judged as far as they go.

use super::*;

#[test]
fn dumps_of_other_programs_agree_with_ours() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dumped(dir.path());
    let cases = [
        ("debugger", "Hugging Face debugger", 60),
        ("debugger/MarianMTModel_debug_tree_FULL_TENSORS.json", "Hugging Face debugger", 60),
        ("npy", "arrays", 10),
        ("hooks.npz", "arrays", 20),
        ("hooks.pt", "arrays", 20),
        ("archive.zip", "arrays", 20),
        ("lists.json", "JSON", 5),
        ("polygraphy.json", "Polygraphy", 5),
    ];
    for (file, kind, least) in cases {
        let (code, report) = diff(&[&ours, &fixture(&format!("dumps/{file}"))]);
        assert_eq!(code, 0, "{file}: {}", first(&report));
        assert_eq!(report["b"]["kind"], kind, "{file}");
        let nodes = report["nodes"].as_array().unwrap();
        assert!(nodes.len() >= least, "{file}: {} nodes", nodes.len());
        assert_eq!(report["judged"], "all", "{file}");
    }
    // The tree names the first and the last layer; the files of the others are there.
    let (_, report) = diff(&[&ours, &fixture("dumps/debugger")]);
    let has = |path: &str| report["nodes"].as_array().unwrap().iter().any(|node| node["node"] == path);
    for path in
        ["encoder.1.self_attn.q", "encoder.1.ffn.act", "decoder.0.cross_attn.context", "src.embed", "logits"]
    {
        assert!(has(path), "{path}");
    }
}

#[test]
fn a_fault_in_a_sparse_dump_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dumped(dir.path());
    let theirs = hooks(dir.path(), str::to_owned, |name, values| {
        if name.contains("layers.1.fc2") || name == "logits" {
            values.iter_mut().for_each(|x| *x *= 0.5);
        }
    });
    let (code, report) = diff(&[&ours, &theirs]);
    assert_eq!((code, first(&report).as_str()), (1, "decoder.1.ffn.out bug scale"));
    assert_eq!(report["first_divergence"]["detail"]["known"], "1/2");
}

/// Only what hooks on modules see: what lies between is wired in every other way.
#[test]
fn a_fault_between_the_tensors_of_a_dump_is_named() {
    use attnscope::graph::ScoreScale;
    let hooked = |path: &str| {
        let inside =
            ["_heads", "scores", "mask", "weights", ".residual", ".act", ".positions", "embed", ".bias"];
        !inside.iter().any(|end| path.ends_with(end))
    };
    for case in [DEMO, T5, BART] {
        let said = |edit: &dyn Fn(&mut Wiring)| {
            let (code, report) = wired(&case, edit, &hooked);
            let cause = report["first_divergence"]["cause"].as_str().unwrap_or("–").to_owned();
            (code, format!("{} {cause}", first(&report)))
        };
        let mask = said(&|w| w.padding_mask = Switch::Off);
        let expected = "encoder.0.self_attn.context bug mask_not_applied encoder.0.self_attn.mask";
        assert_eq!((mask.0, mask.1.as_str()), (1, expected), "{}", case.model);
        let scale = said(&|w| w.score_scale = ScoreScale::DModel);
        let expected = "encoder.0.self_attn.context bug scale encoder.0.self_attn.scores";
        assert_eq!((scale.0, scale.1.as_str()), (1, expected), "{}", case.model);
        let activation = said(&|w| w.activation = Activation::Tanh);
        let expected = "encoder.0.ffn.out bug other_activation encoder.0.ffn.act";
        assert_eq!((activation.0, activation.1.as_str()), (1, expected), "{}", case.model);
        assert_eq!(said(&|_| {}).0, 0, "{}", case.model);
    }
    let (_, report) = wired(&DEMO, &|w| w.position_offset = 1, &hooked);
    assert_eq!(first(&report), "src.embed_pos bug off_by_one_position");
}

#[test]
fn names_come_from_a_map_or_from_the_values() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dumped(dir.path());
    let source = Checkpoint::open(Path::new(&fixture("dumps/hooks.npz"))).unwrap();
    let pick = |name: &str| source.tensors().iter().position(|t| t.name == name).unwrap();
    let numbers: Vec<String> = source.tensors().iter().map(|t| format!("t{}", pick(&t.name))).collect();
    let renamed = |name: &str| numbers[pick(name)].clone();
    let theirs = hooks(dir.path(), renamed, |name, values| {
        if name.contains("fc1") {
            values.iter_mut().for_each(|x| *x *= 4.0);
        }
    });
    let (code, report) = diff(&[&ours, &theirs]);
    assert_eq!(code, 0, "{}", first(&report));
    let seen: Vec<&str> =
        report["nodes"].as_array().unwrap().iter().filter_map(|n| n["seen_as"].as_str()).collect();
    assert!(seen.len() > 15 && seen.iter().all(|s| s.starts_with("by its values")), "{seen:?}");
    assert!(seen.iter().any(|s| s.contains("× 0.25")), "{seen:?}");
    // What the user says counts: now the scale is a difference.
    let map = dir.path().join("map.toml");
    let name = renamed("model.decoder.layers.0.fc1");
    std::fs::write(&map, format!("# a map\n\"{name}\" = \"decoder.0.ffn.hidden\"\n")).unwrap();
    let (code, report) = diff(&[&ours, &theirs, "--map", map.to_str().unwrap()]);
    assert_eq!((code, first(&report).as_str()), (1, "decoder.0.ffn.hidden bug scale"));
}

#[test]
fn without_the_model_a_jump_is_a_bug() {
    let dir = tempfile::tempdir().unwrap();
    let ours = BART.trace(dir.path());
    let about = Path::new(&ours).join("trace.json");
    let text = std::fs::read_to_string(&about).unwrap();
    std::fs::write(&about, text.replace(&fixture("bart"), "/nowhere/bart")).unwrap();
    let theirs = broken_run(&BART, dir.path(), |p| {
        p.edit("decoder.0.ffn.hidden.weight", |values| values.iter_mut().for_each(|x| *x += 0.01));
    });
    let (code, report) = diff(&[&ours, &theirs]);
    assert_eq!((code, first(&report).as_str()), (1, "decoder.0.ffn.hidden bug –"));
    assert_eq!(report["judged"], "without_weights");
    assert_eq!(report["first_divergence"]["grounds"], "growth");
    // Given by hand, the model has its say again.
    let (_, report) = diff(&[&ours, &theirs, "--model", &fixture("bart")]);
    assert_eq!(
        (report["judged"].as_str(), report["first_divergence"]["grounds"].as_str()),
        (Some("all"), Some("recomputed"))
    );
}

#[test]
fn a_shorter_type_is_not_a_bug() {
    let dir = tempfile::tempdir().unwrap();
    let ours = BART.trace(dir.path());
    let trace = Checkpoint::open(&Path::new(&ours).join("trace.safetensors")).unwrap();
    let file = dir.path().join("half.safetensors");
    let entry = |t: &attnscope::checkpoint::TensorInfo| {
        let bytes: Vec<u8> =
            trace.read_f32(t).unwrap().iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect();
        Entry {
            name: t.name.clone(),
            dtype: DType::F16,
            shape: t.shape.clone(),
            bytes: Box::new(move |sink| sink(&bytes)),
        }
    };
    write(Target::Safetensors, &file, trace.tensors().iter().map(entry).collect(), &Map::new()).unwrap();
    let (_, report) = diff(&[&ours, file.to_str().unwrap()]);
    assert!(!first(&report).contains("bug"), "{}", first(&report));
}

/// Two dumps of the same exercise, right and with its doubled residual, by its own code: files list names by the alphabet,
/// and the encoder comes first all the same.
#[test]
fn dumps_of_node_paths_are_walked_in_the_order_of_computation() {
    let [right, wrong] =
        ["trace", "trace_faulty"].map(|n| fixture(&format!("tiny-transformer/{n}.safetensors")));
    let (code, report) = diff(&[&right, &wrong]);
    assert_eq!((code, first(&report).as_str()), (1, "encoder.0.self_attn.residual bug –"), "{report:#}");
    let model = fixture("tiny-transformer/tiny.pt");
    let (_, report) = diff(&[&right, &wrong, "--model", &model, "--heads", "4"]);
    assert_eq!(report["first_divergence"]["node"], "encoder.0.self_attn.residual", "{report:#}");
    assert!(report["first_divergence"]["relation"].to_string().contains("gain"), "{report:#}");
    // The model says which of the two is wrong, whichever comes first.
    let (_, report) = diff(&[&wrong, &right, "--model", &model, "--heads", "4"]);
    let sentence = report["first_divergence"]["sentence"].as_str().unwrap();
    assert_eq!(sentence, "A adds the sublayer's output times 2");
}
