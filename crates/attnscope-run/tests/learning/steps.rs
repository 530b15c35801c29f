//! What a learner promises: the same bits whatever the threads, a resume that goes on, refusals that leave it as it was.

use std::sync::Arc;

use attnscope_graph::{Op, Wiring};
use attnscope_run::{
    AdamW, Executor, Instructions, Learner, LearningBatch, Limits, Native, Nothing, Reference, RunError,
    SplitMix,
};

use crate::case::Case;

const RULE: AdamW = AdamW {
    learning_rate: 1e-2,
    beta1: 0.9,
    beta2: 0.98,
    epsilon: 1e-9,
    weight_decay: 0.01,
    clip_norm: Some(1.0),
    divide_by: 10.0,
};

fn with_threads(case: &Case, threads: usize) -> Box<dyn Learner> {
    let limits = Limits { threads: Some(threads), ..Limits::default() };
    Native::new().learner(Arc::new(case.model.clone()), case.weights.clone(), &limits).unwrap()
}

/// Every weight, to compare bits.
fn bits(case: &Case, learner: &dyn Learner) -> Vec<Vec<u32>> {
    let weights = learner.weights().unwrap();
    case.model
        .graph
        .weight_ids()
        .map(|id| weights.get(id).unwrap().iter().map(|w| w.to_bits()).collect())
        .collect()
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for path in ["marian", "t5-v1_1", "whisper", "classifiers/bilstm", "classifiers/conv"] {
        let mut case = Case::open(path, None);
        let [one, two] = [1, 2].map(|threads| {
            let mut learner = with_threads(&case, threads);
            for _ in 0..2 {
                case.step(&mut *learner, &mut Nothing);
                learner.update(&RULE).unwrap();
            }
            bits(&case, &*learner)
        });
        assert!(one == two, "{path}");
    }
}

#[test]
fn a_learner_goes_on_where_another_stopped() {
    let mut case = Case::open("marian", None);
    let mut first = case.learner(&Native::new());
    case.step(&mut *first, &mut Nothing);
    first.update(&RULE).unwrap();
    let model = Arc::new(case.model.clone());
    let mut second = Native::new().learner(model, first.weights().unwrap(), &Limits::default()).unwrap();
    second.set_optimiser_state(first.optimiser_state()).unwrap();
    assert_eq!(second.optimiser_state(), first.optimiser_state());
    for learner in [&mut first, &mut second] {
        case.step(&mut **learner, &mut Nothing);
        assert_eq!(learner.update(&RULE).unwrap().step, 2);
    }
    assert!(bits(&case, &*first) == bits(&case, &*second));
    let mut state = first.optimiser_state();
    state.first_moments[3].pop();
    assert!(matches!(second.set_optimiser_state(state), Err(RunError::Input { .. })));
}

#[test]
fn gradients_add_up_until_an_update() {
    let mut case = Case::open("gpt2", None);
    let mut learner = case.learner(&Native::new());
    let loss = case.step(&mut *learner, &mut Nothing);
    let once = learner.gradient_norms();
    assert_eq!(case.step(&mut *learner, &mut Nothing), loss);
    for (once, twice) in once.iter().zip(learner.gradient_norms()) {
        assert!((2.0 * once - twice).abs() <= 1e-5 * twice.max(case.floor), "{once} and {twice}");
    }
    let input = case.checked();
    let batch = LearningBatch { input: &input, targets: &case.targets, dropout_seed: None };
    let evaluated = learner.evaluate(&batch, &mut Nothing).unwrap();
    assert!((evaluated.nats - loss.nats).abs() <= 1e-6 * loss.nats, "{evaluated:?} and {loss:?}");
    assert_eq!((evaluated.count, evaluated.correct), (loss.count, loss.correct));
    learner.update(&RULE).unwrap();
    assert!(learner.gradient_norms().iter().all(|&norm| norm == 0.0));
    assert!(case.step(&mut *learner, &mut Nothing).nats < loss.nats);
}

/// AVX2 in place of AVX-512, and none.
#[test]
fn fewer_instructions_give_the_same_gradients() {
    for path in ["marian", "llama", "whisper", "classifiers/bilstm"] {
        let mut case = Case::open(path, None);
        let mut best = case.learner(&Native::new());
        case.step(&mut *best, &mut Nothing);
        for instructions in [Instructions::Avx2, Instructions::Scalar] {
            let Some(executor) = Native::with_instructions(instructions) else {
                println!("skipped: the machine has no {instructions:?}");
                continue;
            };
            let mut learner = case.learner(&executor);
            case.step(&mut *learner, &mut Nothing);
            for id in case.model.graph.weight_ids() {
                let (ours, theirs) = (learner.gradient(id), best.gradient(id));
                let most = theirs.iter().fold(case.floor as f32, |most, g| most.max(g.abs()));
                for (a, b) in ours.iter().zip(&theirs) {
                    let name = &case.model.graph.weight(id).path;
                    assert!((a - b).abs() <= 2e-5 * most, "{path}, {instructions:?}: {name}: {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let case = Case::open("marian", None);
    let (model, weights) = (Arc::new(case.model.clone()), case.weights.clone());
    let refused = Reference.learner(model, weights, &Limits::default());
    assert!(matches!(refused, Err(RunError::NoGradients { .. })));
    let (input, mut learner) = (case.checked(), case.learner(&Native::new()));
    let mut refuse = |edit: &dyn Fn(&mut attnscope_run::Targets), says: &str| {
        let mut targets = case.targets.clone();
        edit(&mut targets);
        let batch = LearningBatch { input: &input, targets: &targets, dropout_seed: None };
        for error in [learner.step(&batch, &mut Nothing), learner.evaluate(&batch, &mut Nothing)] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    };
    refuse(&|targets| targets.classes.truncate(3), "classes, but the output has");
    refuse(&|targets| targets.classes[2] = Some(99), "class 99 in row 2, but the output has 99 classes");
    refuse(&|targets| targets.smoothing = f32::NAN, "label smoothing NaN");
    refuse(&|targets| targets.smoothing = 1.5, "label smoothing 1.5");
}

#[test]
fn a_gradient_that_is_nan_changes_no_weight() {
    let mut case = Case::open("marian", None);
    let id = case.model.graph.find_weight("decoder.1.ffn.out.bias").unwrap();
    let mut values = case.weights.get(id).unwrap().into_owned();
    values[3] = f32::NAN;
    case.weights = case.weights.with(id, values);
    let mut learner = case.learner(&Native::new());
    let before = bits(&case, &*learner);
    assert!(case.step(&mut *learner, &mut Nothing).nats.is_nan());
    assert!(matches!(learner.update(&RULE), Err(RunError::Gradient { .. })));
    assert!(bits(&case, &*learner) == before);
    assert!(learner.gradient_norms().iter().all(|&norm| norm == 0.0));
    assert_eq!(learner.optimiser_state().step, 0);
}

/// The model with dropout in its graph.
fn with_dropout(path: &'static str, dropout: f32) -> Case {
    let mut case = Case::open(path, None);
    let wiring = Wiring { dropout, ..case.model.wiring };
    let model = case.model.rewired(&wiring, None);
    assert!(model.graph.nodes().iter().any(|node| matches!(node.op, Op::Dropout { .. })), "{path}");
    case.weights = case.weights.reordered(&case.model.graph, &model.graph).unwrap();
    case.model = model;
    case
}

#[test]
fn dropout_is_off_without_a_seed_and_the_same_with_the_same() {
    let mut case = Case::open("marian", None);
    let plain = case.step(&mut *case.learner(&Native::new()), &mut Nothing).nats;
    let case = with_dropout("marian", 0.3);
    let input = case.checked();
    let loss = |dropout_seed: Option<u64>| {
        let batch = LearningBatch { input: &input, targets: &case.targets, dropout_seed };
        let mut learner = case.learner(&Native::new());
        (
            learner.step(&batch, &mut Nothing).unwrap().nats,
            learner.evaluate(&batch, &mut Nothing).unwrap().nats,
        )
    };
    let [none, one, again, other] = [None, Some(1), Some(1), Some(2)].map(loss);
    assert_eq!((none.0, one), (plain, again));
    assert!(one.0 != plain && one.0 != other.0, "{one:?} and {other:?}");
    assert!([none, one, other].iter().all(|(_, evaluated)| (evaluated - plain).abs() <= 1e-6 * plain));
}

/// The reference drops nothing: the slope is that of the native executor in f32, over a longer way.
#[test]
fn the_gradient_knows_what_was_dropped() {
    let case = with_dropout("marian", 0.3);
    let (input, model) = (case.checked(), Arc::new(case.model.clone()));
    let batch = LearningBatch { input: &input, targets: &case.targets, dropout_seed: Some(5) };
    let mut random = SplitMix::new(17);
    for path in ["src.embed.weight", "encoder.1.ffn.hidden.weight", "decoder.0.cross_attn.v.weight"] {
        let id = case.model.graph.find_weight(path).unwrap();
        let there = case.weights.get(id).unwrap().into_owned();
        let direction: Vec<f32> = there.iter().map(|_| random.unit()).collect();
        let moved = |h: f32| {
            let values = there.iter().zip(&direction).map(|(w, d)| w + h * d).collect();
            let weights = case.weights.with(id, values);
            let mut learner = Native::new().learner(model.clone(), weights, &Limits::default()).unwrap();
            let loss = learner.step(&batch, &mut Nothing).unwrap().nats;
            (loss, learner.gradient(id))
        };
        let h = 2e-3;
        let slope = (moved(h).0 - moved(-h).0) / (2.0 * f64::from(h));
        let gradient = moved(0.0).1;
        let way: f64 = gradient.iter().zip(&direction).map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
        let size = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        assert!((slope - way).abs() <= 0.02 * size, "{path}: {slope} and {way}, of {size}");
    }
}
