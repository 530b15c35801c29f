//! Mistakes of language models: rotary positions, shared keys and values, and decoding with a cache, in whole dumps and in those of
//! modules alone.

use attnscope::run::{Intervention, Native};
use serde_json::json;

use super::*;
use crate::common::run::run_with_interventions;

const IDS: [u32; 8] = [5, 9, 17, 33, 8, 21, 40, 11];
/// The first token that is decoded with a cache.
const FROM: usize = 5;
const ATTENTION: &str = "decoder.0.self_attn";

/// A fixture, its weights, and what it reads.
struct Subject {
    model: Model,
    weights: Weights,
    input: Input,
    path: String,
}

impl Subject {
    fn of(fixture_name: &str) -> Self {
        let path = fixture(fixture_name);
        let opened = open(&path, None);
        let model = opened.model().unwrap().clone();
        let weights = Weights::load(&model, &opened.checkpoint).unwrap();
        let input = Input::of(Side::Target, Sequence::Tokens(Rows::new(&[IDS.to_vec()], 0)));
        Self { model, weights, input, path }
    }

    /// The same weights wired in another way.
    fn wired(&self, field: &str, value: Value) -> Self {
        let model = self.model.with_wiring(&[(field.to_owned(), value)]).unwrap();
        let weights = self.weights.reordered(&self.model.graph, &model.graph).unwrap();
        Self { model, weights, input: self.input.clone(), path: self.path.clone() }
    }

    fn value(&self, leaf: &str) -> Kept {
        let id = self.model.graph.find(&format!("{ATTENTION}.{leaf}")).unwrap();
        let mut kept = Keep::new(|other| other == id);
        run(&self.model, &self.weights, &self.input, &mut kept).unwrap();
        kept.tensors.remove(&id).unwrap()
    }

    fn intervention(&self, leaf: &str, values: Vec<f32>) -> Intervention {
        let node = self.model.graph.find(&format!("{ATTENTION}.{leaf}")).unwrap();
        Intervention { node, first: 0, values }
    }

    /// A file with the tensors of a run, of all nodes or of those that are modules' outputs.
    fn dump(&self, folder: &Path, name: &str, interventions: &[Intervention], whole: bool) -> String {
        let modules = ["ids", "embed", "in", "norm", "q", "k", "v", "out", "residual", "hidden", "logits"];
        let path = |id| self.model.graph.node(id).path.as_str();
        let mut kept =
            Keep::new(|id| whole || modules.contains(&path(id).rsplit('.').next().unwrap_or_default()));
        run_with_interventions(
            &Native::new(),
            &self.model,
            &self.weights,
            &self.input,
            interventions,
            &mut kept,
        )
        .unwrap();
        let entry = |(id, kept): (&attnscope::graph::NodeId, &Kept)| {
            let bytes: Vec<u8> = kept.values.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
            Entry {
                name: path(*id).to_owned(),
                dtype: DType::F32,
                shape: kept.shape.clone(),
                bytes: Box::new(move |sink| sink(&bytes)),
            }
        };
        let file = folder.join(name);
        write(Target::Safetensors, &file, kept.tensors.iter().map(entry).collect(), &Map::new()).unwrap();
        file.display().to_string()
    }
}

/// What a whole dump, and one of modules alone, is said to be.
fn told(right: &Subject, wrong: &Subject, interventions: &[Intervention]) -> Vec<(String, Value, Value)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |whole: bool| {
        let dir = tempfile::tempdir().unwrap();
        let ours = right.dump(dir.path(), "ours.safetensors", &[], whole);
        let theirs = wrong.dump(dir.path(), "theirs.safetensors", interventions, whole);
        let (_, report) = diff(&[&ours, &theirs, "--model", &right.path]);
        let first = &report["first_divergence"];
        assert_ne!(first["relation"], Value::Null, "whole {whole}: {report:#}");
        (text(&first["node"]), first["relation"].clone(), first["detail"].clone())
    };
    vec![of(true), of(false)]
}

/// Features of heads, [batch, head, position, feature], rotated in halves.
fn rotated(heads: &Kept, theta: f64, position: impl Fn(usize) -> f64) -> Vec<f32> {
    let [_, _, length, size] = heads.shape[..] else { panic!("{:?}", heads.shape) };
    let half = size / 2;
    let cell = |(i, _): (usize, &f64)| {
        let (start, feature) = (i / size * size, i % size);
        let pair = feature % half;
        let angle = position(i / size % length) * theta.powf(-2.0 * pair as f64 / size as f64);
        let (x, y) = (heads.values[start + pair], heads.values[start + pair + half]);
        (if feature < half { x * angle.cos() - y * angle.sin() } else { y * angle.cos() + x * angle.sin() })
            as f32
    };
    heads.values.iter().enumerate().map(cell).collect()
}

#[test]
fn positions_that_are_off_with_a_cache_are_named() {
    let subject = Subject::of("llama");
    let theta = subject.model.wiring.rotary_base.unwrap();
    let heads = ["q", "k"].map(|x| (x, subject.value(&format!("{x}_heads"))));
    for (x, heads) in &heads {
        let ours = subject.value(&format!("{x}_rot"));
        let made = rotated(heads, theta, |t| t as f64);
        assert!(ours.values.iter().zip(&made).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-5), "{x}");
    }
    type Position = fn(usize) -> f64;
    let ways: [(&str, Position); 4] = [
        ("ahead", |t| t as f64 + 1.0),
        ("behind", |t| t as f64 - 1.0),
        ("restarted", |t| (t - FROM) as f64),
        ("zero", |_| 0.0),
    ];
    for (how, position) in ways {
        let at = |t: usize| if t < FROM { t as f64 } else { position(t) };
        let interventions: Vec<Intervention> = heads
            .iter()
            .map(|(x, heads)| subject.intervention(&format!("{x}_rot"), rotated(heads, theta, at)))
            .collect();
        let detail = json!({ "from": FROM, "how": how });
        let node = |leaf: &str| (format!("{ATTENTION}.{leaf}"), json!("cached_positions"), detail.clone());
        let told = told(&subject, &subject, &interventions);
        assert_eq!(told, [node("q_rot"), node("out")], "{how}");
    }
}

#[test]
fn masks_that_are_wrong_with_a_cache_are_named() {
    let subject = Subject::of("llama");
    let mask = subject.value("mask");
    let keys = *mask.shape.last().unwrap();
    type Sees = fn(usize, usize) -> bool;
    let ways: [(&str, Sees); 4] = [
        ("top_left", |query, key| key <= query - FROM),
        ("first_key", |_, key| key == 0),
        ("behind", |query, key| key < query),
        ("only_new", |query, key| key >= FROM && key <= query),
    ];
    for (how, sees) in ways {
        let cell = |(i, x): (usize, &f64)| {
            let (query, key) = (i / keys, i % keys);
            let visible = if query < FROM { *x == 0.0 } else { sees(query, key) };
            if visible { 0.0 } else { f32::NEG_INFINITY }
        };
        let wrong = mask.values.iter().enumerate().map(cell).collect();
        let detail = json!({ "from": FROM, "how": how });
        let node = |leaf: &str| (format!("{ATTENTION}.{leaf}"), json!("cached_mask"), detail.clone());
        let told = told(&subject, &subject, &[subject.intervention("mask", wrong)]);
        assert_eq!(told, [node("mask"), node("out")], "{how}");
    }
}

/// Without the steps between, a mistake that is made in queries and keys, or in scores and context, is still found.
#[test]
fn mistakes_of_wiring_are_named_in_dumps_of_modules() {
    let cases = [
        (
            "rotary_layout",
            json!("interleaved"),
            "q_rot",
            "other_rotary",
            json!({ "how": "layout", "layout": "interleaved" }),
        ),
        (
            "rotary_theta",
            json!(500_000.0),
            "q_rot",
            "other_rotary",
            json!({ "how": "theta", "theta": 500_000.0 }),
        ),
        ("kv_sharing", json!("tile"), "scores", "other_kv_sharing", json!({ "kv_sharing": "tile" })),
    ];
    let right = Subject::of("llama");
    for (field, value, leaf, relation, detail) in cases {
        let wrong = right.wired(field, value);
        let node = |leaf: &str| (format!("{ATTENTION}.{leaf}"), json!(relation), detail.clone());
        assert_eq!(told(&right, &wrong, &[]), [node(leaf), node("out")], "{field}");
    }
}
