//! Where two runs part: traces against the original code's, dumps in every form, and faults that are put in on purpose.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

#[path = "../common/mod.rs"]
mod common;
mod gaps;
mod names;
mod relations;

use std::path::Path;

use attnscope::checkpoint::{Checkpoint, DType, Entry, Target, write};
use attnscope::graph::{Activation, Layers, Model, Positions, Recognised, Stack, Switch, Wiring, build};
use attnscope::run::{Input, Keep, Kept, Native, Rows, Source, Weights};
use common::faults::{self, FAULTS, Patient};
use common::trace::Trace;
use common::{MODELS, attnscope, fixture, open, stderr, stdout};
use serde_json::{Map, Value};

/// A model among the fixtures, or the demo, with an input for it.
struct Case {
    model: &'static str,
    heads: Option<usize>,
}

const DEMO: Case = Case { model: "demo", heads: None };
const T5: Case = Case { model: "t5", heads: None };
const BART: Case = Case { model: "bart", heads: None };
const WHISPER: Case = Case { model: "whisper", heads: None };

impl Case {
    fn path(&self) -> String {
        if self.model == "demo" { "demo".into() } else { fixture(self.model) }
    }

    fn input(&self) -> Input {
        if self.model != "demo" {
            return Trace::open(self.model).input();
        }
        let source = Source::Tokens(Rows::new(&[vec![54, 231, 8, 77, 310, 0], vec![54, 99, 0]], 3999));
        Input { source, target: Rows::new(&[vec![3999, 60, 12, 400, 7], vec![3999, 41, 9, 88]], 3999) }
    }

    /// Our trace of it.
    fn trace(&self, to: &Path) -> String {
        self.traced(to, "ours", &[])
    }

    fn traced(&self, to: &Path, name: &str, more: &[&str]) -> String {
        let folder = to.join(name).display().to_string();
        let ids = |rows: &Rows| {
            let row = |row: &Vec<u32>| row.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            rows.tokens().iter().map(row).collect::<Vec<_>>().join(";")
        };
        let input = self.input();
        let (path, target) = (self.path(), ids(&input.target));
        let mut args = vec!["trace", &path, "--tgt-ids", &target, "--save", &folder, "-q"];
        args.extend(more);
        let heads = self.heads.map(|n| n.to_string());
        if let Some(heads) = &heads {
            args.extend(["--heads", heads]);
        }
        let features = to.join("mel.safetensors").display().to_string();
        let source = match &input.source {
            Source::Tokens(rows) => ids(rows),
            Source::Features(f) => {
                let bytes: Vec<u8> = f.values.iter().flat_map(|x| x.to_le_bytes()).collect();
                let shape = vec![f.batch, f.mels, f.frames];
                save(Path::new(&features), vec![("input_features".into(), shape, bytes)]);
                String::new()
            }
        };
        match source.is_empty() {
            true => args.extend(["--features", &features]),
            false => args.extend(["--src-ids", &source]),
        }
        let made = attnscope(&args);
        assert!(made.status.success(), "{}", stderr(&made));
        folder
    }
}

/// Our trace of token ids, without padding.
fn traced_ids(model: &str, source: &[u32], target: &[u32], to: &Path) -> (String, Input) {
    let folder = to.join("ours").display().to_string();
    let ids = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let (from, into) = (ids(source), ids(target));
    let made = attnscope(&["trace", model, "--src-ids", &from, "--tgt-ids", &into, "--save", &folder, "-q"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let rows = |ids: &[u32]| Rows::new(&[ids.to_vec()], 0);
    (folder, Input { source: Source::Tokens(rows(source)), target: rows(target) })
}

type Tensor = (String, Vec<usize>, Vec<u8>);

fn save(file: &Path, tensors: Vec<Tensor>) {
    let entry = |(name, shape, bytes): Tensor| Entry {
        name,
        dtype: DType::F32,
        shape,
        bytes: Box::new(move |sink| sink(&bytes)),
    };
    write(Target::Safetensors, file, tensors.into_iter().map(entry).collect(), &Map::new()).unwrap();
}

/// Runs a model and keeps every tensor in one file, as another program might.
fn dump(
    model: &Model,
    weights: &Weights,
    input: &Input,
    wanted: &dyn Fn(&str) -> bool,
    file: &Path,
) -> String {
    let mut kept = Keep::new(|id| wanted(model.graph.node(id).path.as_str()));
    Native::new().run(model, weights, input, &mut kept).unwrap();
    let tensor = |(id, kept): (&attnscope::graph::NodeId, &Kept)| {
        let bytes = kept.values.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
        (model.graph.node(*id).path.as_str().to_owned(), kept.shape.clone(), bytes)
    };
    save(file, kept.tensors.iter().map(tensor).collect());
    file.display().to_string()
}

/// `diff`, its exit code and what it says to a program.
fn diff(args: &[&str]) -> (i32, Value) {
    let output = attnscope(&[&["diff", "--format", "json"], args].concat());
    let code = output.status.code().unwrap();
    assert!(code != 2, "{args:?}: {}", stderr(&output));
    (code, serde_json::from_str(&stdout(&output)).unwrap())
}

/// The first divergence in a line: node, kind, relation.
fn first(report: &Value) -> String {
    let first = &report["first_divergence"];
    let word = |key: &str| first[key].as_str().unwrap_or("–").to_owned();
    format!("{} {} {}", word("node"), word("kind"), word("relation"))
}

#[test]
fn the_original_s_traces_agree_with_ours() {
    for &(model, _, heads) in MODELS {
        let dir = tempfile::tempdir().unwrap();
        let ours = Case { model, heads }.trace(dir.path());
        let theirs = Trace::open(model).0.path().display().to_string();
        let (code, report) = diff(&[&ours, &theirs]);
        assert_eq!(code, 0, "{model}: {}", first(&report));
        assert!(report["nodes"].as_array().unwrap().len() >= 20, "{model}");
        // The other way round it is the same.
        assert_eq!(diff(&[&theirs, &ours]).0, 0, "{model}");
    }
}

#[test]
fn rounding_is_not_a_bug() {
    for case in [DEMO, T5, BART, WHISPER] {
        let dir = tempfile::tempdir().unwrap();
        let (ours, exact) = (case.trace(dir.path()), case.traced(dir.path(), "exact", &["--reference"]));
        let (code, report) = diff(&[&ours, &exact]);
        assert_eq!((code, &report["first_divergence"]), (0, &Value::Null), "{}", case.model);
    }
}

/// A broken copy of a model, run: its tensors in a file.
fn broken_run(case: &Case, to: &Path, fault: impl Fn(&mut Patient)) -> String {
    let mut patient = Patient::of(&case.path());
    fault(&mut patient);
    let opened = open(&patient.save(&to.join("broken")), case.heads);
    let model = opened.encoder_decoder().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    dump(model, &weights, &case.input(), &|_| true, &to.join("broken.safetensors"))
}

/// A fault in the weights: what `diff` says of the two runs.
fn weight_fault(case: &Case, fault: impl Fn(&mut Patient)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (code, report) = diff(&[&case.trace(dir.path()), &broken_run(case, dir.path(), fault)]);
    assert_eq!(code, 1, "{}", case.model);
    first(&report)
}

/// Where each fault of the injector is first seen, and as what; nothing for one with which no model runs.
fn expected(what: &str, pre_norm: bool) -> Option<(&'static str, &'static str)> {
    Some(match what {
        "nan" => ("decoder.1.ffn.out", "not_a_number"),
        "swapped q and k" => ("encoder.1.self_attn.q", "other_weights"),
        "permuted heads" => ("decoder.0.self_attn.v", "permuted_heads"),
        "transposed" => ("encoder.0.self_attn.v", "transpose"),
        "another layer's weights" if pre_norm => ("encoder.1.self_attn.norm", "other_layer"),
        "another layer's weights" => ("encoder.1.self_attn.q", "other_layer"),
        "corrupted row" => ("decoder.0.ffn.hidden", "corrupted_row"),
        "zeros" => ("decoder.0.cross_attn.v", "all_zero"),
        _ => return None,
    })
}

#[test]
fn every_fault_of_the_weights_is_named() {
    for case in [DEMO, T5, BART, WHISPER] {
        let pre_norm = ["t5", "whisper"].contains(&case.model);
        let dir = tempfile::tempdir().unwrap();
        let ours = case.trace(dir.path());
        let named = FAULTS.iter().filter_map(|fault| Some((fault, expected(fault.what, pre_norm)?)));
        let mut count = 0;
        for (fault, (node, relation)) in named {
            let broken = tempfile::tempdir().unwrap();
            let said = first(&diff(&[&ours, &broken_run(&case, broken.path(), fault.apply)]).1);
            assert_eq!(said, format!("{node} bug {relation}"), "{}: {}", case.model, fault.what);
            count += 1;
        }
        assert_eq!(count, 7);
    }
}

#[test]
fn every_fault_of_a_weight_file_is_named() {
    for case in [DEMO, T5, BART, WHISPER] {
        let pre_norm = ["t5", "whisper"].contains(&case.model);
        for fault in FAULTS {
            let missing = (fault.what == "missing").then_some(("decoder.0.cross_attn.k", "missing_weight"));
            let Some((node, relation)) = expected(fault.what, pre_norm).or(missing) else { continue };
            let dir = tempfile::tempdir().unwrap();
            let mut patient = Patient::of(&case.path());
            (fault.apply)(&mut patient);
            let (code, report) = checkpoints(&case.path(), &patient.save(dir.path()));
            let said = (code, first(&report));
            assert_eq!(said, (1, format!("{node}.weight bug {relation}")), "{}: {}", case.model, fault.what);
        }
        let dir = tempfile::tempdir().unwrap();
        let (code, report) = checkpoints(&case.path(), &Patient::of(&case.path()).save(dir.path()));
        assert_eq!((code, &report["first_divergence"]), (0, &Value::Null), "{}", case.model);
    }
}

#[test]
fn faults_of_matrix_and_bias_together_are_named() {
    for case in [DEMO, BART] {
        let swap = |p: &mut Patient| {
            for part in ["weight", "bias"] {
                p.swap(&format!("decoder.1.cross_attn.q.{part}"), &format!("decoder.1.cross_attn.k.{part}"));
            }
        };
        assert_eq!(weight_fault(&case, swap), "decoder.1.cross_attn.q bug other_weights", "{}", case.model);
    }
    let turn = |p: &mut Patient| {
        for part in ["weight", "bias"] {
            p.edit(&format!("decoder.0.self_attn.v.{part}"), |values| values.rotate_left(values.len() / 4));
        }
    };
    assert_eq!(weight_fault(&DEMO, turn), "decoder.0.self_attn.v bug permuted_heads");
    // Of the map out of the heads the columns are turned.
    let columns = |p: &mut Patient| {
        p.edit("encoder.1.self_attn.out.weight", |matrix| {
            let width = matrix.len().isqrt();
            matrix.chunks_mut(width).for_each(|row| row.rotate_left(width / 4));
        });
    };
    assert_eq!(weight_fault(&DEMO, columns), "encoder.1.self_attn.out bug permuted_heads");
}

#[test]
fn a_missing_bias_is_named() {
    for case in [DEMO, BART, WHISPER] {
        let fault = |p: &mut Patient| p.edit("encoder.1.ffn.out.bias", |bias| bias.fill(0.0));
        assert_eq!(weight_fault(&case, fault), "encoder.1.ffn.out bug missing_bias", "{}", case.model);
    }
}

/// A fault in the wiring: the same weights, joined in another way.
fn wiring_fault(case: &Case, edit: impl Fn(&mut Wiring)) -> String {
    let (code, report) = wired(case, &edit, &|_| true);
    assert_eq!(code, 1, "{}", report["nodes"]);
    first(&report)
}

/// Our trace against a dump of the nodes that `kept` picks from a run under another wiring.
fn wired(case: &Case, edit: &dyn Fn(&mut Wiring), kept: &dyn Fn(&str) -> bool) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    let ours = case.trace(dir.path());
    let opened = open(&case.path(), case.heads);
    let weights = Weights::load(opened.encoder_decoder().unwrap(), &opened.checkpoint).unwrap();
    let Recognised::EncoderDecoder(mut model) = opened.recognised else { panic!("{}", case.model) };
    edit(&mut model.wiring);
    let [encoder, decoder] = Stack::ALL.map(|stack| model.graph.layers(stack));
    let graph = build(Layers { encoder, decoder }, &model.wiring);
    assert_eq!(graph.weights(), model.graph.weights());
    model.graph = graph;
    let theirs = dump(&model, &weights, &case.input(), kept, &dir.path().join("theirs.safetensors"));
    diff(&[&ours, &theirs])
}

#[test]
fn another_activation_is_named() {
    for case in [DEMO, T5, BART, WHISPER] {
        let other = if case.model == "t5" { Activation::Gelu } else { Activation::Relu };
        let said = wiring_fault(&case, |w| w.activation = other);
        assert_eq!(said, "encoder.0.ffn.act bug other_activation", "{}", case.model);
    }
}

#[test]
fn another_eps_is_named() {
    for (case, eps, node) in [
        (T5, 1e-5, "encoder.0.self_attn.norm"),
        (BART, 1e-3, "src.embed_pos"),
        (WHISPER, 1e-3, "encoder.0.self_attn.norm"),
        (DEMO, 1e-3, "encoder.0.self_attn.norm"),
    ] {
        let said = wiring_fault(&case, |w| w.norm_eps = eps);
        assert_eq!(said, format!("{node} bug other_eps"), "{}", case.model);
    }
}

#[test]
fn a_mask_that_is_not_applied_is_named() {
    for case in [DEMO, T5, BART] {
        let said = wiring_fault(&case, |w| w.padding_mask = Switch::Off);
        assert_eq!(said, "encoder.0.self_attn.masked_scores bug mask_not_applied", "{}", case.model);
        let said = wiring_fault(&case, |w| w.causal_mask = Switch::Off);
        assert_eq!(said, "decoder.0.self_attn.mask bug mask_not_applied", "{}", case.model);
    }
}

#[test]
fn positions_off_by_one_are_named() {
    for (case, offset) in [(DEMO, 1), (BART, 1)] {
        let said = wiring_fault(&case, |w| w.position_offset = offset);
        assert_eq!(said, "src.positions bug off_by_one_position", "{}", case.model);
    }
    let said = wiring_fault(&DEMO, |w| {
        (w.source_positions, w.target_positions) =
            (Positions::SinusoidInterleaved, Positions::SinusoidInterleaved);
    });
    assert_eq!(said, "src.positions bug other_positions");
}

#[test]
fn other_scales_are_named() {
    use attnscope::graph::{EmbeddingScale, ScoreScale};
    for case in [DEMO, T5, BART, WHISPER] {
        let said = wiring_fault(&case, |w| w.score_scale = ScoreScale::DModel);
        assert_eq!(said, "encoder.0.self_attn.scores bug scale", "{}", case.model);
        let said = wiring_fault(&case, |w| w.residual_gain = 2.0);
        assert_eq!(said, "encoder.0.self_attn.residual bug other_residual_gain", "{}", case.model);
    }
    let said = wiring_fault(&DEMO, |w| w.embedding_scale = EmbeddingScale::None);
    assert_eq!(said, "src.embed bug scale");
}

/// Our trace of what `fixtures/dumps/make.py` ran.
fn dumped(to: &Path) -> String {
    let folder = to.join("ours").display().to_string();
    let model = fixture("marian");
    let args =
        ["trace", &model, "--src-ids", "17,4,55,8,0", "--tgt-ids", "98,31,7,60", "--save", &folder, "-q"];
    let made = attnscope(&args);
    assert!(made.status.success(), "{}", stderr(&made));
    folder
}

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

/// Tensors of the hooks' dump with something done to them, under other names.
fn hooks(to: &Path, rename: impl Fn(&str) -> String, edit: impl Fn(&str, &mut Vec<f32>)) -> String {
    let source = Checkpoint::open(Path::new(&fixture("dumps/hooks.npz"))).unwrap();
    let tensor = |t: &attnscope::checkpoint::TensorInfo| {
        let mut values = source.read_f32(t).unwrap();
        edit(&t.name, &mut values);
        (rename(&t.name), t.shape.clone(), values.iter().flat_map(|x| x.to_le_bytes()).collect())
    };
    let file = to.join("hooks.safetensors");
    save(&file, source.tensors().iter().map(tensor).collect());
    file.display().to_string()
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

/// The first divergence of two weight files.
fn checkpoints(a: &str, b: &str) -> (i32, Value) {
    diff(&["--checkpoint", a, b])
}

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
        let mut whole = Patient::of(&case.path());
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
fn a_weight_of_one_file_only_is_a_difference() {
    // The last layer was lost: the other file is a whole model too.
    let dir = tempfile::tempdir().unwrap();
    let mut short = Patient::of("demo");
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
    let (shared, copies) = (Patient::of(&tied), dir.path().join("copies"));
    let mut untied = Patient::of(&tied);
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

/// The model that a trace names is opened as it was: a toy with its words, each stack with its own heads.
#[test]
fn a_trace_finds_its_model() {
    let dir = tempfile::tempdir().unwrap();
    let mut bart = Patient::of(&fixture("bart"));
    bart.config.insert("decoder_attention_heads".into(), 2.into());
    let bart = bart.save(&dir.path().join("bart"));
    let cases = [
        ("toy", vec!["toy", "--src", "a b c a", "--src", "c", "--tgt", "x y", "--tgt", "y"]),
        ("heads", vec![&bart, "--src-ids", "3,4,5,6", "--tgt-ids", "2,8,7"]),
    ];
    for (name, args) in cases {
        let [ours, exact] = [(name.to_owned(), &[][..]), (format!("{name}-f64"), &["--reference"][..])].map(
            |(name, more)| {
                let folder = dir.path().join(name).display().to_string();
                let made =
                    attnscope(&[&["trace"], &args[..], more, &["--save", &folder, "--quiet"]].concat());
                assert!(made.status.success(), "{}", stderr(&made));
                folder
            },
        );
        for model in [&[][..], &["--model", args[0]][..]] {
            let output = attnscope(&[&["diff", &ours, &exact, "--format", "json"], model].concat());
            assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{name}");
            let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert_eq!(report["judged"], "all", "{name}");
        }
        assert_eq!(attnscope(&["check", "--trace", &ours]).status.code(), Some(0), "{name}");
    }
}

#[test]
fn a_trace_that_cannot_be_computed_again_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dumped(dir.path());
    let about = Path::new(&ours).join("trace.json");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&about).unwrap()).unwrap();
    value["tokens"]["target"] = Value::Null;
    std::fs::write(&about, value.to_string()).unwrap();
    assert_eq!(diff(&[&ours, &ours]).1["judged"], "not_rebuilt");
    let text = stdout(&attnscope(&["diff", &ours, &ours]));
    assert!(text.contains("does not fit its tokens") && !text.contains("Neither side"), "{text}");
    let dump = fixture("dumps/hooks.npz");
    assert_eq!(diff(&[&dump, &dump]).1["judged"], "nothing");
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dumped(dir.path());
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let tree = |value: &str| {
        format!(r#"{{"module_path": "M", "outputs": {{"dtype": "torch.float32", "value": "{value}"}}}}"#)
            .into_bytes()
    };
    let huge = b"\x93NUMPY\x01\x00\x4e\x00{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999)}\n";
    put("outside/M_FULL_TENSORS.json", &tree("../../etc/passwd"));
    put("gone/M_FULL_TENSORS.json", &tree("./gone.safetensors"));
    put("huge/a.npy", huge);
    put("empty/notes.txt", b"nothing");
    put("broken/trace.json", b"{");
    put("broken/trace.safetensors", b"x");
    let polygraphy = br#"{"lst": [["r", [{"outputs": {"logits": {"values": {"array": "!!!", "polygraphy_class": "ndarray"}}}}]]], "polygraphy_class": "RunResults"}"#;
    let cases = [
        (dir.path().join("outside").display().to_string(), "same folder"),
        (dir.path().join("gone").display().to_string(), "gone.safetensors"),
        (dir.path().join("huge").display().to_string(), "shape"),
        (dir.path().join("empty").display().to_string(), "no tensors"),
        (dir.path().join("broken").display().to_string(), "trace.json"),
        (dir.path().join("nowhere").display().to_string(), "no such file"),
        (put("broken.json", b"{\"logits\": [[1, 2], [3"), "line 1"),
        (put("words.json", b"{\"logits\": \"none\"}"), "no tensors"),
        (put("deep.json", "[".repeat(10_000).as_bytes()), "levels"),
        (put("short.npy", b"\x93NUMPY\x01\x00\xff\xff"), "bytes"),
        (put("polygraphy.json", polygraphy), "base64"),
        (put("other.json", b"{\"something\": [1, 2, 3]}"), "no tensor in common"),
        (put("text.txt", b"hello"), "text"),
    ];
    for (path, word) in &cases {
        let output = attnscope(&["diff", &ours, path]);
        assert_eq!(output.status.code(), Some(2), "{path}: {}", stdout(&output));
        let said = stderr(&output);
        assert!(
            said.starts_with("error: ") && said.contains("\nhelp: ") && said.contains(word),
            "{path}: {said}"
        );
        assert!(said.lines().count() <= 3, "{said}");
    }
    let map = put("map.txt", b"one two\nthree\n");
    let output = attnscope(&["diff", &ours, &ours, "--map", &map]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("line 2"), "{}", stderr(&output));
    if Path::new("/dev/zero").exists() {
        let output = attnscope(&["diff", &ours, &ours, "--map", "/dev/zero"]);
        assert!(
            output.status.code() == Some(2) && stderr(&output).contains("at most"),
            "{}",
            stderr(&output)
        );
    }
    let output = attnscope(&["diff", &ours, &ours, "--tolerance", "NaN"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_verdict_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dumped(dir.path());
    let theirs = hooks(dir.path(), str::to_owned, |name, values| {
        if name.contains("layers.0.encoder_attn.out_proj") {
            values.iter_mut().for_each(|x| *x = -*x);
        }
    });
    for width in ["60", "80", "120"] {
        let output = attnscope(&["diff", &ours, &theirs, "--width", width]);
        assert_eq!(output.status.code(), Some(1));
        let text = stdout(&output);
        let verdict = text
            .lines()
            .find(|line| line.starts_with("first divergence"))
            .unwrap_or_else(|| panic!("{text}"));
        assert!(verdict.contains("decoder.0.cross_attn.out"), "{text}");
        let width: usize = width.parse().unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
        assert!(text.contains("◀ first") && text.contains("not compared, of A"), "{text}");
    }
    let ascii = attnscope(&["diff", &ours, &theirs, "--ascii", "--full"]);
    assert!(stdout(&ascii).is_ascii(), "{}", stdout(&ascii));
}

/// Two dumps of 64 MB are compared in a few megabytes more than the program takes by itself; where they part, one tensor
/// is loaded whole, not those after it.
#[cfg(unix)]
#[test]
fn memory_does_not_grow_with_the_dumps() {
    let dir = tempfile::tempdir().unwrap();
    // So many tensors of so many MB, each other than the ones before from the second on.
    let make = |name: &str, tensors: u8, size: usize, other: u8| {
        let file = dir.path().join(name);
        let tensor = |n: u8| {
            let byte = if n == 0 { 0x3c } else { 0x3c + other };
            (format!("encoder.{n}.ffn.out"), vec![size, 256, 1024], vec![byte; size << 20])
        };
        save(&file, (0..tensors).map(tensor).collect());
        file.display().to_string()
    };
    let diff = |a: &str, b: &str| {
        let limited = "ulimit -d 65536; exec \"$0\" diff \"$1\" \"$2\" -q";
        std::process::Command::new("/bin/sh")
            .args(["-c", limited, env!("CARGO_BIN_EXE_attnscope"), a, b])
            .output()
            .unwrap()
    };
    let (a, b) = (make("a.safetensors", 2, 32, 0), make("b.safetensors", 2, 32, 0));
    let output = diff(&a, &b);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (a, b) = (make("c.safetensors", 32, 2, 0), make("d.safetensors", 32, 2, 1));
    let output = diff(&a, &b);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("first divergence: encoder.1.ffn.out"), "{}", stdout(&output));
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
    assert_eq!(sentence, "A adds the sublayer's output 2 times");
}

/// The table of relations in the documentation is that of the code.
#[test]
fn every_relation_is_documented() {
    let page = include_str!("../../../../docs/diff.md");
    let section = page.split("## Relations").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = attnscope::diagnose::diff::Relation::KINDS
        .iter()
        .map(|(name, meaning)| format!("| `{name}` | {meaning} |"))
        .collect();
    assert_eq!(rows, expected);
    let schema = include_str!("../../../../docs/json.md");
    for (name, _) in attnscope::diagnose::diff::Relation::KINDS {
        assert!(schema.contains(&format!("`{name}`")), "{name} is not in docs/json.md");
    }
}
