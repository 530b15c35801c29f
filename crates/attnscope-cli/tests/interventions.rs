//! Runs that differ from the plain one: tensors replaced on the way, rows padded on the left.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use attnscope::checkpoint::Checkpoint;
use attnscope::graph::{Graph, Model, NodeId, Op, PositionCount, Side};
use attnscope::run::{Input, Intervention, Kept, Native, PadSide, Reference, Rows, Sequence, Weights};
use common::run::{Keep, run_reference, run_with_interventions};
use common::trace::Trace;
use common::{MODELS, fixture, open};

type Tensors = BTreeMap<NodeId, Kept>;

/// The tensors of both executors.
fn both(model: &Model, weights: &Weights, input: &Input, interventions: &[Intervention]) -> [Tensors; 2] {
    let (mut native, mut reference) = (Keep::new(|_| true), Keep::new(|_| true));
    run_with_interventions(&Native::new(), model, weights, input, interventions, &mut native).unwrap();
    run_with_interventions(&Reference, model, weights, input, interventions, &mut reference).unwrap();
    [native.tensors, reference.tensors]
}

fn agree(what: &str, graph: &Graph, [native, reference]: &[Tensors; 2]) {
    for (id, node) in graph.iter() {
        let (a, b) = (&native[&id].values, &reference[&id].values);
        let most = b.iter().filter(|x| x.is_finite()).fold(1e-6f64, |m, x| m.max(x.abs()));
        let close = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= 2e-5 * most;
        assert!(a.iter().zip(b).all(close), "{what}: {} differs between executors", node.path);
    }
}

/// Every kind of node in turn: the changed cells are what was put there, nothing before the node is touched, whoever
/// reads the node reads the intervention, and both executors see the same.
#[test]
fn any_tensor_can_be_replaced_on_the_way() {
    for path in ["bart", "t5", "whisper"] {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = Trace::open(path).input();
        let plain = both(model, &weights, &input, &[]);
        let in_first_layer =
            |p: &str| p.starts_with("decoder.0.") || !p.contains(".1.") && !p.contains(".2.");
        let nodes = model.graph.iter().filter(|(_, n)| !matches!(n.op, Op::Ids(_)));
        for (id, node) in nodes.filter(|(_, n)| in_first_layer(n.path.as_str())) {
            let cells = plain[0][&id].values.len();
            let first = cells / 3;
            let values = vec![0.5, -0.25, 0.125];
            let intervention = Intervention { node: id, first, values: values.clone() };
            let changed = both(model, &weights, &input, &[intervention]);
            agree(&format!("{path}: {}", node.path), &model.graph, &changed);
            for (changed, plain) in changed.iter().zip(&plain) {
                let kept = &changed[&id].values;
                assert_eq!(kept[first..first + 3], [0.5, -0.25, 0.125], "{path}: {}", node.path);
                assert_eq!(kept[..first], plain[&id].values[..first], "{path}: {}", node.path);
                let readers = readers(&model.graph, id);
                for (other, _) in model.graph.iter().filter(|(other, _)| *other != id) {
                    let same = changed[&other] == plain[&other];
                    let name = &model.graph.node(other).path;
                    assert!(same || readers.contains(&other), "{path}: {} moved {name}", node.path);
                }
                let moved = readers.iter().filter(|r| changed[r] != plain[r]).count();
                assert!(moved > 0 || readers.is_empty(), "{path}: nobody read {}", node.path);
            }
        }
    }
}

/// Every node that depends on one.
fn readers(graph: &Graph, of: NodeId) -> Vec<NodeId> {
    let mut reached = vec![of];
    for (id, node) in graph.iter() {
        if node.inputs.iter().any(|i| reached.contains(i)) {
            reached.push(id);
        }
    }
    reached.split_off(1)
}

#[test]
fn a_change_that_does_not_fit_is_refused() {
    let opened = open(&fixture("bart"), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let input = Trace::open("bart").input();
    let refused = |path: &str, first: usize, count: usize| {
        let intervention =
            Intervention { node: model.graph.find(path).unwrap(), first, values: vec![1.0; count] };
        let slow = run_with_interventions(
            &Reference,
            model,
            &weights,
            &input,
            std::slice::from_ref(&intervention),
            &mut Keep::new(|_| false),
        );
        let fast = run_with_interventions(
            &Native::new(),
            model,
            &weights,
            &input,
            &[intervention],
            &mut Keep::new(|_| false),
        );
        let (slow, fast) = (slow.unwrap_err(), fast.unwrap_err());
        assert_eq!(slow.to_string(), fast.to_string());
        format!("{fast} {}", fast.remedy())
    };
    assert!(refused("src.ids", 0, 1).contains("intervention on src.ids: token ids"));
    assert!(refused("encoder.out", 2 * 9 * 32 - 1, 2).contains("the tensor has 576 cells"));
    assert!(refused("logits", usize::MAX, 1).contains("the tensor has"));
}

/// Hugging Face's logits for rows that are padded on the left: positions by tokens, by places, by distance.
#[test]
fn left_padding_is_read_as_hugging_face_reads_it() {
    for path in [
        "m2m100",
        "bart",
        "marian",
        "t5",
        "umt5",
        "encoder-decoder",
        "encoder-decoder-roberta",
        "fsmt",
        "led",
        "longt5",
    ] {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let trace = Trace(
            Checkpoint::open(Path::new(&fixture(&format!("left-padding/{path}.safetensors")))).unwrap(),
        );
        let left = |side: &str| Rows::padded(&trace.rows(side).unwrap().tokens(), 1, PadSide::Left, 0);
        let (source, target) = (left("src"), left("tgt"));
        assert_eq!(source.open()[7..], [false, false, false, true, true, true, true]);
        let logits = model.graph.find("logits").unwrap();
        let (_, theirs) = trace.get("logits").unwrap();
        let input = Input::pair(Sequence::Tokens(source), target);
        let width = theirs.len() / input.rows(Side::Target).unwrap().open().len();
        let most = theirs.iter().fold(0f64, |m, &x| m.max(f64::from(x).abs()));
        for ours in both(model, &weights, &input, &[]) {
            let rows = ours[&logits]
                .values
                .chunks(width)
                .zip(theirs.chunks(width))
                .zip(input.rows(Side::Target).unwrap().open());
            for ((ours, theirs), _) in rows.filter(|(_, open)| **open) {
                for (a, &b) in ours.iter().zip(theirs) {
                    assert!((a - f64::from(b)).abs() <= 1e-4 * most, "{path}: {a} and {b}");
                }
            }
        }
    }
}

/// Where positions count tokens, and where only distances count, it is all one on which side the padding stands.
#[test]
fn padding_on_either_side_is_the_same_where_positions_do_not_count_it() {
    let mut seen = 0;
    for &(path, _, heads) in MODELS {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let given = Trace::open(path).input();
        let Some(source) = given.rows(Side::Source) else { continue };
        let free = model.wiring.position_count == PositionCount::Tokens || model.wiring.relative_bias;
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let target = given.rows(Side::Target).unwrap().clone();
        let logits = model.graph.find("logits").unwrap();
        let run = |side: PadSide| {
            let pad = |rows: &Rows| {
                let row = rows.tokens().swap_remove(0);
                Rows::padded(&[row[..row.len() - 2].to_vec(), row], 1, side, 0)
            };
            let input = Input::pair(Sequence::Tokens(pad(source)), pad(&target));
            let mut kept = Keep::new(|id| id == logits);
            run_reference(model, &weights, &input, &mut kept).unwrap();
            let kept = kept.tensors.remove(&logits).unwrap();
            let rows = kept
                .values
                .chunks(kept.shape[2])
                .zip(input.rows(Side::Target).unwrap().open())
                .filter(|(_, open)| **open);
            rows.flat_map(|(row, _)| row.to_vec()).collect::<Vec<f64>>()
        };
        // What is masked adds zeros, which move the others to another place in the sums: the same but for f64's rounding.
        let (left, right) = (run(PadSide::Left), run(PadSide::Right));
        let largest = left.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let same = left.iter().zip(&right).all(|(a, b)| (a - b).abs() <= 1e-12 * largest);
        assert_eq!(same, free, "{path}");
        seen += usize::from(free);
    }
    assert!(seen >= 6, "{seen}");
}

/// A query that is not a number sees every key, so its weights are no numbers either; nothing passes it for a query with
/// nothing to see.
#[test]
fn what_is_not_a_number_stays_one() {
    let opened = open(&fixture("bart"), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let input = Trace::open("bart").input();
    let find = |path: &str| model.graph.find(path).unwrap();
    let width = 32;
    let intervention =
        Intervention { node: find("decoder.0.cross_attn.q"), first: 0, values: vec![f32::NAN; width] };
    let all = |_: NodeId| true;
    let (mut native, mut reference) = (Keep::new(all), Keep::new(all));
    let interventions = [intervention];
    let reports = [
        run_with_interventions(&Native::new(), model, &weights, &input, &interventions, &mut native).unwrap(),
        run_with_interventions(&Reference, model, &weights, &input, &interventions, &mut reference).unwrap(),
    ];
    for (kept, report) in [native, reference].iter().zip(&reports) {
        assert!(report.fully_masked.is_empty());
        let weights = &kept.tensors[&find("decoder.0.cross_attn.weights")];
        let keys = weights.shape[3];
        assert!(weights.values[..keys].iter().all(|w| w.is_nan()), "{:?}", &weights.values[..keys]);
        assert!(kept.tensors[&find("logits")].values[0].is_nan());
    }
}
