//! Where two runs part: traces against the original code's, dumps in every form, and faults that are put in on purpose.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

#[path = "../common/mod.rs"]
mod common;
mod dumps;
mod gaps;
mod language;
mod names;
mod other_features;
mod planted;
mod relations;
mod unproven;
mod weight_files;

use std::path::Path;

use attnscope::checkpoint::{Checkpoint, DType, Entry, Target, write};
use attnscope::graph::{Activation, Model, Positions, Recognised, Side, Switch, Wiring, build};
use attnscope::run::{Input, Kept, Rows, Sequence, Weights};
use common::faults::{self, FAULTS, FaultyModel};
use common::run::{Keep, run};
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
        let source = Sequence::Tokens(Rows::new(&[vec![54, 231, 8, 77, 310, 0], vec![54, 99, 0]], 3999));
        Input::pair(source, Rows::new(&[vec![3999, 60, 12, 400, 7], vec![3999, 41, 9, 88]], 3999))
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
        let (path, target) = (self.path(), ids(input.rows(Side::Target).unwrap()));
        let mut args = vec!["trace", &path, "--tgt-ids", &target, "--save", &folder, "-q"];
        args.extend(more);
        let heads = self.heads.map(|n| n.to_string());
        if let Some(heads) = &heads {
            args.extend(["--heads", heads]);
        }
        let features = to.join("mel.safetensors").display().to_string();
        let source = match input.sequence(Side::Source).unwrap() {
            Sequence::Tokens(rows) => ids(rows),
            Sequence::Features(f) => {
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
    (folder, Input::pair(Sequence::Tokens(rows(source)), rows(target)))
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
    run(model, weights, input, &mut kept).unwrap();
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
fn broken_run(case: &Case, to: &Path, fault: impl Fn(&mut FaultyModel)) -> String {
    let mut faulty = FaultyModel::of(&case.path());
    fault(&mut faulty);
    let opened = open(&faulty.save(&to.join("broken")), case.heads);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    dump(model, &weights, &case.input(), &|_| true, &to.join("broken.safetensors"))
}

/// A fault in the weights: what `diff` says of the two runs.
fn weight_fault(case: &Case, fault: impl Fn(&mut FaultyModel)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (code, report) = diff(&[&case.trace(dir.path()), &broken_run(case, dir.path(), fault)]);
    assert_eq!(code, 1, "{}", case.model);
    first(&report)
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
    let weights = Weights::load(opened.model().unwrap(), &opened.checkpoint).unwrap();
    let Recognised::Model(mut model) = opened.recognised else { panic!("{}", case.model) };
    edit(&mut model.wiring);
    let graph = build(&model.architecture, &model.wiring);
    assert_eq!(graph.weights(), model.graph.weights());
    model.graph = graph;
    let theirs = dump(&model, &weights, &case.input(), kept, &dir.path().join("theirs.safetensors"));
    diff(&[&ours, &theirs])
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

/// The first divergence of two weight files.
fn checkpoints(a: &str, b: &str) -> (i32, Value) {
    diff(&["--checkpoint", a, b])
}

/// The model that a trace names is opened as it was: a toy with its words, each stack with its own heads.
#[test]
fn a_trace_finds_its_model() {
    let dir = tempfile::tempdir().unwrap();
    let mut bart = FaultyModel::of(&fixture("bart"));
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
