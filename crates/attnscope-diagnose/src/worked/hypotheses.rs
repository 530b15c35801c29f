//! Which mistakes are worth trying on an example.

use super::example::{Example, Mask, Operand, Scale, Step};
use super::explain::{Divisor, Explanation};
use super::matrix::Matrix;
use super::recipe::{Masking, Mixed, WorkedNormaliser, divisor, head_size, model_size};

/// Every mistake of computation that is worth trying on an example, the commonest first.
pub(super) fn hypotheses(example: &Example) -> Vec<Explanation> {
    let mut all = scales(example);
    all.push(Explanation::ScaledEarly);
    if example.mask != Mask::None {
        let ways =
            [Masking::MultipliedAfter, Masking::MultipliedBefore, Masking::Ignored, Masking::Transposed];
        all.extend(ways.map(Explanation::Masking));
    }
    all.extend(
        [
            WorkedNormaliser::Sigmoid,
            WorkedNormaliser::Columns,
            WorkedNormaliser::Everything,
            WorkedNormaliser::Shares,
            WorkedNormaliser::Exponentials,
            WorkedNormaliser::Skipped,
        ]
        .map(Explanation::Normaliser),
    );
    let weights = [Operand::WQ, Operand::WK, Operand::WV, Operand::WO];
    all.extend(weights.map(Explanation::TransposedWeight));
    for meant in weights {
        let others = weights.into_iter().filter(|used| *used != meant);
        all.extend(others.map(|used| Explanation::SwappedWeight { meant, used }));
    }
    all.extend([Operand::BQ, Operand::BK, Operand::BV, Operand::BO].map(Explanation::BiasLeftOut));
    if example.query_source() == Operand::C {
        let swapped = [(Step::Q, Operand::X), (Step::K, Operand::C), (Step::V, Operand::C)];
        all.extend(swapped.map(|(step, used)| Explanation::SwappedSource { step, used }));
    }
    all.push(Explanation::KeysNotTransposed);
    let factors =
        [(Step::K, Step::Q), (Step::Q, Step::Q), (Step::K, Step::K), (Step::Q, Step::V), (Step::V, Step::K)];
    all.extend(factors.map(|(left, right)| Explanation::SwappedFactors(left, right)));
    all.push(Explanation::WeightsTransposed);
    let mixed =
        [Mixed::Step(Step::K), Mixed::Step(Step::Q), Mixed::Operand(Operand::X), Mixed::Operand(Operand::C)];
    all.extend(mixed.map(Explanation::SwappedValues));
    all.extend(keys(example).into_iter().flat_map(orders).map(Explanation::ValuesReordered));
    if example.heads > 1 {
        all.extend(orders(example.heads).into_iter().map(Explanation::HeadsReordered));
        all.push(Explanation::HeadsInterleaved);
    }
    all
}

/// How many keys there are.
fn keys(example: &Example) -> Option<usize> {
    let given = |step: Step| example.given.iter().find(|given| given.part.step == step);
    let rows = || given(Step::K).or_else(|| given(Step::V)).map(|given| given.stated.matrix.rows());
    example.operand(Operand::X).map(Matrix::rows).or_else(rows)
}

/// The other orders of so many things: all of a few, of more only the reverse, since too many would fit by chance.
fn orders(n: usize) -> Vec<Vec<usize>> {
    match n {
        0 | 1 => vec![],
        3 => [[2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1]].map(Vec::from).to_vec(),
        _ => vec![(0..n).rev().collect()],
    }
}

/// The other divisors that an author may have taken.
fn scales(example: &Example) -> Vec<Explanation> {
    let Some(right) = divisor(example, example.scale) else { return Vec::new() };
    let numbers = [
        (Divisor::SqrtHead, divisor(example, Scale::SqrtHead)),
        (Divisor::SqrtModel, model_size(example).map(|n| (n as f64).sqrt())),
        (Divisor::SqrtKeys, keys(example).map(|n| (n as f64).sqrt())),
        (Divisor::One, Some(1.0)),
        (Divisor::Head, head_size(example).map(|n| n as f64)),
        (Divisor::Twice, Some(right * right)),
    ];
    let mut tried = vec![right];
    let mut scales = Vec::new();
    for (by, value) in numbers {
        let is_new = |value: &f64| tried.iter().all(|other| (value - other).abs() > 1e-9 * other.abs());
        if let Some(value) = value.filter(is_new) {
            tried.push(value);
            scales.push(Explanation::Scale { by, value });
        }
    }
    scales
}
