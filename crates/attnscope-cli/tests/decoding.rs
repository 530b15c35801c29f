//! Decoding with kept keys and values against the run of the whole target at once.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::graph::{Model, Positions, Recognised, Side, Switch, build};
use attnscope::run::generate::Watched;
use attnscope::run::{
    CheckedInput, Decode, Input, Kept, Limits, Reference, Rows, RunError, Sequence, Weights, position_limit,
};
use common::run::{Keep, prepare, run, session};
use common::trace::Trace;
use common::{MODELS, fixture, open};

/// Long enough for the kept keys and values to outgrow their first room, where the model has the positions.
const LENGTH: usize = 40;

/// A fixture's source with its padding, and targets of one length.
fn input(path: &str, model: &Model) -> (Sequence, Vec<Vec<u32>>) {
    let input = Trace::open(path).input();
    let tokens = input.rows(Side::Target).unwrap().tokens();
    let length = position_limit(model, Side::Target).map_or(LENGTH, |room| LENGTH.min(room));
    let targets = tokens.iter().map(|row| row.iter().cycle().take(length).copied().collect()).collect();
    (input.sequence(Side::Source).unwrap().clone(), targets)
}

/// One tensor of the run of everything at once.
fn whole(model: &Model, weights: &Weights, source: &Sequence, targets: &[Vec<u32>], path: &str) -> Kept {
    let node = model.graph.find(path).unwrap();
    let mut sink = Keep::new(|id| id == node);
    let input = Input::pair(source.clone(), Rows::new(targets, 0));
    run(model, weights, &input, &mut sink).unwrap();
    sink.tensors.remove(&node).unwrap()
}

/// What a decoding begins with.
fn given(model: &Model, source: &Sequence) -> CheckedInput {
    CheckedInput::to_decode(model, Input::of(Side::Source, source.clone())).unwrap()
}

/// The columns of a step.
fn slice(targets: &[Vec<u32>], from: usize, to: usize) -> Vec<Vec<u32>> {
    targets.iter().map(|row| row[from..to].to_vec()).collect()
}

/// Logits of a step against those of the whole run at one position of some rows.
fn agree(what: &str, step: &[f32], whole: &Kept, rows: &[usize], position: usize) {
    let &[_, length, vocabulary] = &whole.shape[..] else { panic!("{what}") };
    assert_eq!(step.len(), rows.len() * vocabulary, "{what}");
    let most = whole.values.iter().fold(0f64, |m, x| m.max(x.abs()));
    for (step, row) in step.chunks(vocabulary).zip(rows) {
        let expected = &whole.values[(row * length + position) * vocabulary..][..vocabulary];
        for (a, b) in step.iter().zip(expected) {
            assert!(
                (f64::from(*a) - b).abs() <= 2e-5 * most,
                "{what}, position {position}: {a} and {b} of {most}"
            );
        }
    }
}

#[test]
fn token_by_token_and_in_pieces_equal_the_whole() {
    let (mut padded, mut outgrown) = (0, 0);
    for &(path, _, heads) in MODELS {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let (source, targets) = input(path, model);
        if let Sequence::Tokens(rows) = &source {
            padded += usize::from(rows.open().contains(&false));
        }
        let rows: Vec<usize> = (0..targets.len()).collect();
        let length = targets[0].len();
        outgrown += usize::from(length == LENGTH);
        let expected = whole(model, &weights, &source, &targets, "logits");
        let mut session = session(model, &weights);
        // Buffers of the first decoding are used again by the second.
        for ends in [(1..=length).collect::<Vec<_>>(), vec![1, 4, length]] {
            let mut decoding = session.decode(&given(model, &source)).unwrap();
            let mut from = 0;
            for to in ends {
                let logits = decoding.advance(&slice(&targets, from, to)).unwrap();
                agree(path, logits, &expected, &rows, to - 1);
                from = to;
            }
        }
    }
    assert!(padded >= 10, "only {padded} sources have padding");
    assert!(outgrown >= 5, "only {outgrown} targets are long");
}

#[test]
fn rows_are_taken_in_any_order_and_more_than_once() {
    for &(path, _, heads) in MODELS {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let (source, targets) = input(path, model);
        let length = targets[0].len();
        let expected = whole(model, &weights, &source, &targets, "logits");
        let mut session = session(model, &weights);
        let mut decoding = session.decode(&given(model, &source)).unwrap();
        let last = targets.len() - 1;
        // Each row twice before anything is read; then some of them, more than there is room for.
        let twice: Vec<usize> = (0..targets.len()).flat_map(|row| [row, row]).collect();
        decoding.reorder(&twice).unwrap();
        let pick = |rows: &[usize], from, to| {
            let rows: Vec<_> = rows.iter().map(|&row| targets[row].clone()).collect();
            slice(&rows, from, to)
        };
        agree(path, decoding.advance(&pick(&twice, 0, 3)).unwrap(), &expected, &twice, 2);
        decoding.reorder(&[2 * last + 1, 0, 1, 2 * last, 0]).unwrap();
        let rows = [last, 0, 0, last, 0];
        agree(path, decoding.advance(&pick(&rows, 3, 4)).unwrap(), &expected, &rows, 3);
        decoding.reorder(&[3]).unwrap();
        agree(path, decoding.advance(&pick(&[last], 4, length)).unwrap(), &expected, &[last], length - 1);
    }
}

#[test]
fn without_a_causal_mask_nothing_old_is_believed() {
    let opened = open(&fixture("bart"), None);
    let Recognised::Model(mut model) = opened.recognised else { panic!("bart") };
    let weights = Weights::load(&model, &opened.checkpoint).unwrap();
    model.wiring.causal_mask = Switch::Off;
    model.graph = build(&model.architecture, &model.wiring);
    let (source, targets) = input("bart", &model);
    let rows: Vec<usize> = (0..targets.len()).collect();
    let mut session = session(&model, &weights);
    let mut decoding = session.decode(&given(&model, &source)).unwrap();
    for position in 0..4 {
        let expected = whole(&model, &weights, &source, &slice(&targets, 0, position + 1), "logits");
        let logits = decoding.advance(&slice(&targets, position, position + 1)).unwrap();
        agree("bart without a mask", logits, &expected, &rows, position);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let opened = open(&fixture("bart"), None);
    let model = opened.model().unwrap();
    assert_eq!(model.wiring.positions(Side::Target), Positions::Table);
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let (source, targets) = input("bart", model);
    let expected = whole(model, &weights, &source, &targets, "logits");
    let rows: Vec<usize> = (0..targets.len()).collect();
    let [mut first, mut second] = [0; 2].map(|_| session(model, &weights));
    let mut third = prepare(&Reference, model, &weights).session(&Limits::default());
    let mut decoding = first.decode(&given(model, &source)).unwrap();
    let mut watched = Watched::new(&mut *second, Input::of(Side::Source, source.clone()), None).unwrap();
    let mut uncached = third.decode(&given(model, &source)).unwrap();
    let decoders: [&mut dyn Decode; 3] = [&mut *decoding, &mut watched, &mut *uncached];
    for decoder in decoders {
        decoder.advance(&slice(&targets, 0, 2)).unwrap();
        let batch = targets.len();
        let too_long = decoder.advance(&vec![vec![5; 10_000]; batch]);
        assert!(matches!(too_long, Err(RunError::Tokens(_))));
        assert!(matches!(decoder.advance(&vec![vec![u32::MAX]; batch]), Err(RunError::Tokens(_))));
        assert!(decoder.advance(&vec![vec![5]; batch + 1]).is_err());
        assert!(decoder.advance(&vec![vec![]; batch]).is_err());
        assert!(decoder.advance(&[vec![vec![5, 6]], vec![vec![5]; batch - 1]].concat()).is_err());
        assert!(decoder.reorder(&[batch]).is_err() && decoder.reorder(&[]).is_err());
        agree("bart", decoder.advance(&slice(&targets, 2, 3)).unwrap(), &expected, &rows, 2);
    }
}
