//! Both executors against the code that made the fixtures: every tensor that code exposes, by node name.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::graph::{Dim, Model, Node, NodeId, Normaliser, Op, Side};
use attnscope::run::generate::Watched;
use attnscope::run::{
    Capture, CheckedInput, Decode, Executor, Input, Instructions, Intervention, Kept, Limits, Native,
    Reference, Request, Rows, RunError, Sequence, SourceTensors, Tensor, Weights,
};
use common::run::{Keep, prepare, run, run_reference, session};
use common::trace::Trace;
use common::{LONG, ONE_STACK, fixture, models_and_variants, open};

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
        let mut session = session(model, &weights);
        let checked = CheckedInput::new(model, input.clone()).unwrap();
        // The second run finds buffers that hold something.
        for run in ["first", "second"] {
            let mut native = Keep::new(|_| true);
            let report = session.run(&Request::new(&checked), &mut native).unwrap();
            assert!(report.fully_masked.is_empty(), "{path}");
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
            let Some(executor) = Native::with_instructions(instructions) else {
                println!("skipped: the machine has no {instructions:?}");
                continue;
            };
            let mut native = Keep::new(|_| true);
            let checked = CheckedInput::new(model, input.clone()).unwrap();
            prepare(&executor, model, &weights).run(&checked, &mut native).unwrap();
            agree(&format!("{path}, {instructions:?}"), model, &native.tensors, &reference.tensors);
        }
    }
}

/// Three hundred tokens: what is wrong with positions grows with them.
#[test]
fn a_long_text_equals_the_original_s() {
    for path in ONE_STACK.iter().map(|(path, _)| *path).chain(LONG.iter().copied()) {
        let trace = Trace::long(path);
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = trace.input();
        let (mut native, mut reference) = (Keep::new(|_| true), Keep::new(|_| true));
        run_reference(model, &weights, &input, &mut reference).unwrap();
        run(model, &weights, &input, &mut native).unwrap();
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
    let mut session = session(model, &weights);
    let input = CheckedInput::new(model, trace.input()).unwrap();
    session.run(&Request::new(&input), &mut all).unwrap();
    session.run(&Request::new(&input), &mut one).unwrap();
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
    let report = run(model, &weights, &input, &mut native).unwrap();
    assert_eq!(run_reference(model, &weights, &input, &mut reference).unwrap(), report);
    let fully_masked: Vec<&str> =
        report.fully_masked.iter().map(|(id, _)| model.graph.node(*id).path.as_str()).collect();
    assert!(fully_masked.contains(&"decoder.0.cross_attn.weights"), "{fully_masked:?}");
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
        for executor in [&Native::new() as &dyn Executor, &Reference] {
            let mut session = prepare(executor, model, &weights).session(&Limits::default());
            let input = CheckedInput::new(model, input.clone()).unwrap();
            let request = Request::new(&input);
            let mut all = Capture::new(|id| id == logits || is_made(id));
            session.run(&request, &mut all).unwrap();
            let made: Vec<NodeId> = all.tensors.keys().copied().filter(|id| *id != logits).collect();
            for count in (0..=made.len()).step_by(3) {
                let known: Vec<(NodeId, Tensor)> =
                    made[..count].iter().map(|id| (*id, all.tensors[id].clone())).collect();
                let mut one = Capture::new(|id| id == logits);
                session.run(&request.known(&known), &mut one).unwrap();
                let logits = [&one.tensors, &all.tensors].map(|tensors| tensors[&logits].to_f64());
                assert_eq!(logits[0], logits[1], "{path}, {count} known");
            }
            let known = [(made[0], Tensor::new(vec![3], vec![0.0; 3]))];
            let refused = session.run(&request.known(&known), &mut all).unwrap_err().to_string();
            assert!(refused.contains(model.graph.node(made[0]).path.as_str()), "{refused}");
        }
    }
}

/// A flag that is raised ends every run of a session, and says so.
#[test]
fn a_run_can_be_cancelled() {
    let opened = open(&fixture("bart"), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let input = CheckedInput::new(model, Trace::open("bart").input()).unwrap();
    for executor in [&Native::new() as &dyn Executor, &Reference] {
        let limits = Limits::default();
        let mut session = prepare(executor, model, &weights).session(&limits);
        let mut keep = Keep::new(|_| true);
        session.run(&Request::new(&input), &mut keep).unwrap();
        assert_eq!(keep.tensors.len(), model.graph.nodes().len());
        limits.cancel.cancel();
        let mut keep = Keep::new(|_| true);
        let error = session.run(&Request::new(&input), &mut keep).unwrap_err();
        assert!(matches!(error, RunError::Cancelled) && keep.tensors.is_empty(), "{error}");
    }
}

/// An input that was checked for one model is not believed by another that reads less.
#[test]
fn an_input_of_another_model_is_checked_again() {
    let (demo, opened) = (open("demo", None), open(&fixture("bart"), None));
    let (demo, model) = (demo.model().unwrap(), opened.model().unwrap());
    let vocabulary = |model: &Model| model.sizes.get(Dim::Vocab(Side::Source)).unwrap() as u32;
    assert!(vocabulary(demo) > vocabulary(model));
    let source = Sequence::Tokens(Rows::new(&[vec![vocabulary(demo) - 1]], 1));
    let input = CheckedInput::new(demo, Input::pair(source, Rows::new(&[vec![2]], 1))).unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    for executor in [&Native::new() as &dyn Executor, &Reference] {
        let ran = prepare(executor, model, &weights).run(&input, &mut Keep::new(|_| true));
        assert!(matches!(ran, Err(RunError::Tokens(_))), "{ran:?}");
    }
}

/// What depends on the source alone, then the rest: together every tensor of the whole run, each handed over once.
#[test]
fn a_run_in_two_portions_is_the_whole_run() {
    for path in ["bart", "t5", "whisper"] {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = Trace::open(path).input();
        let source = Input::of(Side::Source, input.sequence(Side::Source).unwrap().clone());
        let source = CheckedInput::to_decode(model, source).unwrap();
        let input = CheckedInput::new(model, input).unwrap();
        for executor in [&Native::new() as &dyn Executor, &Reference] {
            let mut session = prepare(executor, model, &weights).session(&Limits::default());
            let [mut whole, mut first, mut rest] = [0; 3].map(|_| Keep::new(|_| true));
            session.run(&Request::new(&input), &mut whole).unwrap();
            let (tensors, _) = SourceTensors::compute(&mut *session, &source, &mut first).unwrap();
            tensors.run_after(&mut *session, &input, &mut rest).unwrap();
            let (source_nodes, target_nodes) = (first.tensors.len(), rest.tensors.len());
            assert!(source_nodes > 20 && target_nodes > 20, "{path}: {source_nodes} and {target_nodes}");
            first.tensors.append(&mut rest.tensors);
            assert_eq!(first.tensors.len(), source_nodes + target_nodes, "{path}: a tensor came twice");
            assert!(first.tensors == whole.tensors, "{path}, {executor:?}");
        }
    }
}

/// A decoding after tensors of its source is a decoding of that source; of another one it does not begin with them.
#[test]
fn a_decoding_goes_on_from_its_source() {
    let opened = open(&fixture("bart"), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let rows = |ids: Vec<u32>| Input::of(Side::Source, Sequence::Tokens(Rows::new(&[ids], 1)));
    let given = |ids| CheckedInput::to_decode(model, rows(ids)).unwrap();
    let mut session = session(model, &weights);
    let (tensors, _) =
        SourceTensors::compute(&mut *session, &given(vec![5, 6, 7]), &mut Keep::new(|_| false)).unwrap();
    for (ids, known) in [(vec![5, 6, 7], true), (vec![5, 6, 8], false)] {
        assert_eq!(tensors.is_of(&given(ids.clone())), known);
        let plain = session.decode(&given(ids.clone())).unwrap().advance(&[vec![2]]).unwrap().to_vec();
        let mut after = Watched::new(&mut *session, rows(ids.clone()), Some(&tensors)).unwrap();
        assert_eq!(after.advance(&[vec![2]]).unwrap(), plain, "{ids:?}");
        drop(after);
        let pair = CheckedInput::new(model, rows(ids).with_target(Rows::new(&[vec![2]], 1))).unwrap();
        assert_eq!(tensors.run_after(&mut *session, &pair, &mut Keep::new(|_| true)).is_ok(), known);
    }
}

/// What a run cannot be given, or would drop, is refused: tensors within an attention, of another shape, and interventions on what is
/// not computed. A target that was not looked at is not believed.
#[test]
fn what_a_request_cannot_keep_is_refused() {
    let opened = open(&fixture("bart"), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let input = CheckedInput::new(model, Trace::open("bart").input()).unwrap();
    for executor in [&Native::new() as &dyn Executor, &Reference] {
        let mut session = prepare(executor, model, &weights).session(&Limits::default());
        let mut all = Capture::new(|_| true);
        session.run(&Request::new(&input), &mut all).unwrap();
        for (id, node) in model.graph.iter() {
            let known = [(id, all.tensors[&id].clone())];
            let ran = session.run(&Request::new(&input).known(&known), &mut Keep::new(|_| true));
            assert_eq!(ran.is_ok(), node.op.facets().can_be_given, "{}: {ran:?}", node.path);
        }
        let find = |path: &str| model.graph.find(path).unwrap();
        let out = find("encoder.0.self_attn.out");
        let mut shape = all.tensors[&out].shape().to_vec();
        shape.swap(1, 2);
        let turned = [(out, Tensor::new(shape, all.tensors[&out].values().to_f32()))];
        assert!(session.run(&Request::new(&input).known(&turned), &mut Keep::new(|_| true)).is_err());
        let known = [(out, all.tensors[&out].clone())];
        let intervention =
            [Intervention { node: find("encoder.0.self_attn.q"), first: 0, values: vec![1.0] }];
        let request = Request::new(&input).known(&known).with_interventions(&intervention);
        let dropped = session.run(&request, &mut Keep::new(|id| id == find("logits"))).unwrap_err();
        assert!(dropped.to_string().contains("encoder.0.self_attn.q"), "{dropped}");
        let outside =
            input.input().clone().with_target(Rows::new(&vec![vec![u32::MAX]; input.input().batch()], 1));
        let unchecked = CheckedInput::to_decode(model, outside).unwrap();
        assert!(session.run(&Request::new(&unchecked), &mut Keep::new(|_| true)).is_err());
    }
    assert!(CheckedInput::to_decode(model, Input::empty(0)).is_err());
}

/// A query without a visible key is counted whichever way weights are normalised, by both executors.
#[test]
fn fully_masked_rows_are_counted_with_sigmoid_weights() {
    let opened = open(&fixture("bart"), None);
    let mut wiring = opened.model().unwrap().wiring;
    wiring.normaliser = Normaliser::Sigmoid;
    let model = opened.model().unwrap().rewired(&wiring, None);
    let weights = Weights::load(&model, &opened.checkpoint).unwrap();
    let source = Sequence::Tokens(Rows::new(&[vec![5, 6, 7], vec![]], 1));
    let input = Input::pair(source, Rows::new(&[vec![2, 5], vec![2, 5]], 1));
    let native = run(&model, &weights, &input, &mut Keep::new(|_| false)).unwrap();
    assert!(!native.fully_masked.is_empty());
    assert_eq!(native, run_reference(&model, &weights, &input, &mut Keep::new(|_| false)).unwrap());
}
