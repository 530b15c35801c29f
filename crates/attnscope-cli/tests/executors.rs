//! Both executors against the code that made the fixtures: every tensor that code exposes, by node name.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::graph::{Dim, Model, Node, NodeId, Op, Side};
use attnscope::run::{
    Hold, Input, Instructions, Keep, Kept, Native, Rows, Sequence, Shared, Weights, run_reference,
};
use common::trace::Trace;
use common::{ONE_STACK, fixture, models_and_variants, open};

#[test]
fn every_tensor_equals_the_original_s() {
    let one_stack = ONE_STACK.iter().map(|&(path, family)| (path, family, None));
    for (path, _, heads) in models_and_variants().chain(one_stack) {
        let trace = Trace::open(path);
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = trace.input();
        let mut reference = Keep::new(|_| true);
        run_reference(model, &weights, &input, &mut reference).unwrap();
        let mut executor = Native::new();
        // The second run finds buffers that hold something.
        for run in ["first", "second"] {
            let mut native = Keep::new(|_| true);
            let report = executor.run(model, &weights, &input, &mut native).unwrap();
            assert!(report.blind.is_empty(), "{path}");
            agree(&format!("{path}, {run} run"), model, &native.tensors, &reference.tensors);
        }
        let mut compared = 0;
        for tensor in trace.0.tensors() {
            let Some(id) = model.graph.find(&tensor.name) else { continue };
            compare(path, model, model.graph.node(id), &reference.tensors[&id], &trace, &input);
            compared += 1;
        }
        assert!(compared >= 20, "{path}: only {compared} tensors were compared");
    }
}

/// The same with fewer vector instructions than the machine has: AVX2 in place of AVX-512, and none.
#[test]
fn fewer_instructions_give_the_same_tensors() {
    for path in ["bart", "whisper", "llama"] {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = Trace::open(path).input();
        let mut reference = Keep::new(|_| true);
        run_reference(model, &weights, &input, &mut reference).unwrap();
        for instructions in [Instructions::Avx2, Instructions::Scalar] {
            let Some(mut executor) = Native::with_instructions(instructions) else {
                println!("skipped: the machine has no {instructions:?}");
                continue;
            };
            let mut native = Keep::new(|_| true);
            executor.run(model, &weights, &input, &mut native).unwrap();
            agree(&format!("{path}, {instructions:?}"), model, &native.tensors, &reference.tensors);
        }
    }
}

/// Three hundred tokens: what is wrong with positions grows with them.
#[test]
fn a_long_text_equals_the_original_s() {
    for &(path, _) in ONE_STACK {
        let trace = Trace::long(path);
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = trace.input();
        let (mut native, mut reference) = (Keep::new(|_| true), Keep::new(|_| true));
        run_reference(model, &weights, &input, &mut reference).unwrap();
        Native::new().run(model, &weights, &input, &mut native).unwrap();
        agree(path, model, &native.tensors, &reference.tensors);
        let mut compared = 0;
        for tensor in trace.0.tensors() {
            let Some(id) = model.graph.find(&tensor.name) else { continue };
            compare(path, model, model.graph.node(id), &reference.tensors[&id], &trace, &input);
            compared += 1;
        }
        assert!(compared >= 8, "{path}: only {compared} tensors were compared");
    }
}

/// The native executor against the reference: every node, every cell, padding too.
fn agree(path: &str, model: &Model, native: &Tensors, reference: &Tensors) {
    for (id, node) in model.graph.iter() {
        let (a, b) = (&native[&id], &reference[&id]);
        assert_eq!(a.shape, b.shape, "{path}: {}", node.path);
        let most = b.values.iter().filter(|x| x.is_finite()).fold(0f64, |m, x| m.max(x.abs()));
        for (i, (a, b)) in a.values.iter().zip(&b.values).enumerate() {
            let close = a == b || (a - b).abs() <= 2e-5 * most.max(1e-6);
            assert!(close, "{path}: {} at {i}: {a} and {b} of {most}", node.path);
        }
    }
}

type Tensors = std::collections::BTreeMap<attnscope::graph::NodeId, Kept>;

#[test]
fn what_nobody_wants_is_not_kept_and_changes_nothing() {
    let trace = Trace::open("bart");
    let opened = open(&fixture("bart"), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let logits = model.graph.find("logits").unwrap();
    let (mut all, mut one) = (Keep::new(|_| true), Keep::new(|id| id == logits));
    let mut executor = Native::new();
    executor.run(model, &weights, &trace.input(), &mut all).unwrap();
    executor.run(model, &weights, &trace.input(), &mut one).unwrap();
    assert_eq!(one.tensors.len(), 1);
    assert_eq!(all.tensors[&logits], one.tensors[&logits]);
}

#[test]
fn a_query_with_nothing_to_see_is_reported() {
    let opened = open(&fixture("bart"), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    // A source row of nothing but padding.
    let source = Sequence::Tokens(Rows::new(&[vec![5, 6, 7], vec![]], 1));
    let input = Input::pair(source, Rows::new(&[vec![2, 5], vec![2, 5]], 1));
    let (mut native, mut reference) = (Keep::new(|_| true), Keep::new(|_| true));
    let report = Native::new().run(model, &weights, &input, &mut native).unwrap();
    assert_eq!(run_reference(model, &weights, &input, &mut reference).unwrap(), report);
    let blind: Vec<&str> = report.blind.iter().map(|(id, _)| model.graph.node(*id).path.as_str()).collect();
    assert!(blind.contains(&"decoder.0.cross_attn.weights"), "{blind:?}");
    agree("bart with an empty row", model, &native.tensors, &reference.tensors);
    let logits = &native.tensors[&model.graph.find("logits").unwrap()];
    assert!(logits.values.iter().all(|x| x.is_finite()));
}

/// Every cell whose positions are tokens. What padding computes is nobody's business.
fn compare(path: &str, model: &Model, node: &Node, ours: &Kept, trace: &Trace, input: &Input) {
    let (shape, theirs) = trace.get(node.path.as_str()).unwrap();
    // Positions are the same for every row of the batch: either side may store them once.
    let rows = ours.shape[0].max(shape[0]);
    let full = [&[rows], &shape[1..]].concat();
    for one in [&ours.shape, &shape] {
        assert!(one[1..] == full[1..] && [1, rows].contains(&one[0]), "{path}: {}: {one:?}", node.path);
    }
    let most = theirs.iter().filter(|x| x.abs() < 1e30).fold(0f64, |m, &x| m.max(f64::from(x).abs()));
    let mut worst = 0f64;
    for i in 0..full.iter().product() {
        if !is_token(node, &full, i, input) {
            continue;
        }
        let (a, t) = (ours.values[i % ours.values.len()], theirs[i % theirs.len()]);
        if t < -1e30 {
            assert_eq!(a, f64::NEG_INFINITY, "{path}: {} is open at {i}", node.path);
        } else {
            assert!(a.is_finite() && t.is_finite(), "{path}: {} at {i}: {a} and {t}", node.path);
            worst = worst.max((a - f64::from(t)).abs());
        }
    }
    assert!(
        worst <= 1e-4 * most.max(1e-6),
        "{path}: {} differs by {worst:e} of {most} ({})",
        node.path,
        model.family.id
    );
}

/// Whether the cell lies at open positions along every dimension that counts positions.
fn is_token(node: &Node, shape: &[usize], cell: usize, input: &Input) -> bool {
    let mut rest = cell;
    let mut place = vec![0; shape.len()];
    for (at, &n) in place.iter_mut().zip(shape).rev() {
        (*at, rest) = (rest % n, rest / n);
    }
    let open = |rows: &Rows, at: usize| rows.open()[place[0] * rows.length() + at];
    node.dims.iter().zip(&place).all(|(dim, &at)| match dim {
        Dim::Source => input.rows(Side::Source).is_none_or(|rows| open(rows, at)),
        Dim::Target => open(input.rows(Side::Target).unwrap(), at),
        _ => true,
    })
}

/// A run from tensors of another run ends in the same logits, to the last bit, wherever it sets in; a tensor of another size is
/// refused.
#[test]
fn a_run_from_known_tensors_ends_the_same() {
    for path in ["bart", "t5", "whisper"] {
        let trace = Trace::open(path);
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = trace.input();
        let logits = model.graph.find("logits").unwrap();
        let is_made =
            |id: NodeId| matches!(model.graph.node(id).op, Op::Linear | Op::Norm { .. } | Op::MergeHeads(_));
        let mut executor = Native::new();
        let mut all = Hold::new(|id| id == logits || is_made(id));
        executor.run(model, &weights, &input, &mut all).unwrap();
        let made: Vec<NodeId> = all.tensors.keys().copied().filter(|id| *id != logits).collect();
        for count in (0..=made.len()).step_by(3) {
            let known: Vec<(NodeId, Shared)> =
                made[..count].iter().map(|id| (*id, all.tensors[id].1.clone())).collect();
            let mut one = Hold::new(|id| id == logits);
            executor.run_from(model, &weights, &input, &known, &mut one).unwrap();
            assert_eq!(*one.tensors[&logits].1, *all.tensors[&logits].1, "{path}, {count} known");
        }
        let known = [(made[0], Shared::from(vec![0.0; 3]))];
        let refused = executor.run_from(model, &weights, &input, &known, &mut all).unwrap_err().to_string();
        assert!(refused.contains(model.graph.node(made[0]).path.as_str()), "{refused}");
    }
}
