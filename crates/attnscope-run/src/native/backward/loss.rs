//! Cross-entropy with label smoothing, and its gradient in the same pass over the scores.

use super::super::product::Machine;
use super::kernels::{RowScores, row_scores, row_softmax};
use crate::learn::{BatchLoss, Targets};

/// What one row adds to the loss.
#[derive(Clone, Copy, Default)]
struct RowLoss {
    nats: f64,
    nll: f64,
    correct: bool,
}

impl RowLoss {
    /// Of a row of scores: (1 − s) · nll + s · the mean of −ln p over all classes.
    fn new(scores: RowScores, target: Target, smoothing: f32) -> Self {
        let nll = scores.log_sum - f64::from(target.score);
        let even = scores.log_sum - scores.total / target.classes as f64;
        let smoothing = f64::from(smoothing);
        let nats = if smoothing > 0.0 { (1.0 - smoothing) * nll + smoothing * even } else { nll };
        Self { nats, nll, correct: target.leads && target.score == scores.most }
    }
}

/// The class that a row should say.
struct Target {
    score: f32,
    /// No class before it has as large a score: of equals the first is the model's answer.
    leads: bool,
    classes: usize,
}

impl Target {
    fn of(row: &[f32], class: u32) -> Self {
        let class = class as usize;
        let score = row[class];
        Self { score, leads: row[..class].iter().all(|&x| x < score), classes: row.len() }
    }
}

/// The loss of scores, [row, class].
pub(in super::super) fn loss(
    machine: Machine<'_>,
    scores: &[f32],
    classes: usize,
    targets: &Targets,
) -> BatchLoss {
    let mut rows = vec![RowLoss::default(); targets.classes.len()];
    let mut items: Vec<_> =
        rows.iter_mut().zip(scores.chunks(classes.max(1))).zip(&targets.classes).collect();
    machine.team.each_of(&mut items, |_, ((loss, row), class)| {
        if let Some(class) = class {
            **loss = RowLoss::new(row_scores(machine.arch, row), Target::of(row, *class), targets.smoothing);
        }
    });
    summed(&rows, targets)
}

/// The same, with the gradient of the summed loss put in place of the scores.
pub(in super::super) fn loss_and_gradient(
    machine: Machine<'_>,
    scores: &mut [f32],
    classes: usize,
    targets: &Targets,
) -> BatchLoss {
    let mut rows = vec![RowLoss::default(); targets.classes.len()];
    let chunks = scores.chunks_mut(classes.max(1));
    let mut items: Vec<_> = rows.iter_mut().zip(chunks).zip(&targets.classes).collect();
    machine.team.each_of(&mut items, |_, ((loss, row), class)| match class {
        None => row.fill(0.0),
        Some(class) => {
            let target = Target::of(row, *class);
            let read = row_softmax(machine.arch, row, targets.smoothing / classes as f32);
            row[*class as usize] -= 1.0 - targets.smoothing;
            **loss = RowLoss::new(read, target, targets.smoothing);
        }
    });
    summed(&rows, targets)
}

/// In the order of the rows, so that the sum is the same whatever the threads did.
fn summed(rows: &[RowLoss], targets: &Targets) -> BatchLoss {
    let mut sum = BatchLoss { count: targets.classes.iter().flatten().count(), ..BatchLoss::default() };
    for row in rows {
        sum.nats += row.nats;
        sum.nll += row.nll;
        sum.correct += usize::from(row.correct);
    }
    sum
}
