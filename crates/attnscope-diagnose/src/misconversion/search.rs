//! The search for a repair: some pairs are for the search, a few of them for all repairs and more for the best ones; the other
//! pairs, which the search has not seen, test the few repairs that are left.

use std::collections::BTreeMap;
use std::time::Duration;

use attnscope_run::{Prepared, RunError};

use super::judge::{Judge, Verdict};
use super::rounds::{RepairTrial, Rounds};
use super::{RepairSearch, WeightEdit, refine};
use crate::corpus::Corpus;
use crate::score::Progress;
use crate::thresholds::Thresholds;
use crate::wiring::Search;

/// So many pairs, and the repairs that go on from there.
struct Round {
    pairs: usize,
    keep: usize,
}

/// A right repair stands out on few pairs, because nearly every other edit does harm; the other pairs are for certainty.
const ROUNDS: [Round; 4] = [
    Round { pairs: 2, keep: usize::MAX },
    Round { pairs: 4, keep: 100 },
    Round { pairs: 16, keep: 24 },
    Round { pairs: MOST_SEARCHED, keep: 3 },
];
/// Pairs that are searched at the most, and as a share of all. The rest are for the test.
const MOST_SEARCHED: usize = 48;
const SEARCHED: f64 = 0.4;
/// Two pairs give no standard error. After them, repairs that lose more nats per token than this are dropped.
const TWO_LOSE: f64 = 0.15;
/// More pairs do. Repairs whose gain is so many standard errors below the least reported gain are dropped: a right repair gains
/// many times that, and for a healthy model few repairs remain.
const ERRORS: f64 = 1.0;
/// Pairs that choose among many places.
const FEW: usize = 4;
/// The share of the time that the first round may take.
const FIRST: f64 = 0.7;

/// Tries every repair of a model's weights on distinct pairs, and compares them with the wirings that were tried, within a time
/// limit.
///
/// # Errors
/// When the pairs do not fit the model.
pub fn search_repairs(
    declared: &dyn Prepared,
    corpus: &Corpus,
    thresholds: &Thresholds,
    wirings: &Search,
    time: Duration,
    progress: &Progress<'_>,
) -> Result<RepairSearch, RunError> {
    let (searched, unseen) = split(corpus.len());
    let searched = corpus.only(&searched);
    let rounds = Rounds::new(declared, &corpus.shift, progress, time)?;
    let edits = rounds.hypotheses(&alike(&searched, FEW))?;
    let hypotheses = edits.len();
    let mut found = RepairSearch {
        kind: corpus.kind(),
        hypotheses,
        tried: 0,
        time,
        is_cut: false,
        best_gain: None,
        repair: None,
        refused: None,
    };
    let trials = narrowed(&rounds, &searched, edits, thresholds.repair_gain, &mut found)?;
    found.is_cut = rounds.is_over() || found.tried < hypotheses;
    if !trials.is_empty() {
        let judge = Judge::new(&rounds, corpus, &unseen, thresholds, wirings);
        match judge.verdict(&trials)? {
            Some(Verdict::Believed(repair)) => found.repair = Some(repair),
            Some(Verdict::Refused(refused)) => found.refused = Some(refused),
            None => {}
        }
    }
    Ok(found)
}

/// The pairs that are searched, spread evenly, and the others.
fn split(pairs: usize) -> (Vec<usize>, Vec<usize>) {
    let searched = ((pairs as f64 * SEARCHED) as usize).min(MOST_SEARCHED);
    (0..pairs).partition(|pair| pair * searched / pairs != (pair + 1) * searched / pairs)
}

/// The few repairs that do best on the pairs that are searched.
fn narrowed(
    rounds: &Rounds<'_>,
    searched: &Corpus,
    mut edits: Vec<(usize, WeightEdit)>,
    least_gain: f64,
    found: &mut RepairSearch,
) -> Result<Vec<RepairTrial>, RunError> {
    let mut trials: Vec<RepairTrial> = Vec::new();
    for (n, round) in ROUNDS.iter().enumerate() {
        let some = alike(searched, round.pairs);
        // There are no more pairs than the round before had.
        if n > 0 && searched.len() <= ROUNDS[n - 1].pairs {
            trials.truncate(round.keep);
            continue;
        }
        let share = if n == 0 { FIRST } else { 1.0 };
        trials = rounds.round(&some, edits, share)?;
        if n == 0 {
            found.tried = rounds.tried();
        }
        found.best_gain = trials.first().map(|best| best.gain.mean).or(found.best_gain);
        trials.retain(|trial| match round.pairs {
            ..=2 => trial.gain.mean > -TWO_LOSE,
            _ => trial.gain.mean + ERRORS * trial.gain.error > least_gain,
        });
        trials.truncate(round.keep);
        edits = trials.iter().map(|trial| (trial.rank, trial.edit.clone())).collect();
    }
    trials.retain(|trial| trial.gain.mean > 0.0);
    refine::climb(rounds, &alike(searched, MOST_SEARCHED), &mut trials)?;
    Ok(trials)
}

/// Pairs of as few source lengths as possible, or texts of as few lengths: those of one length form a batch, which is faster.
fn alike(corpus: &Corpus, pairs: usize) -> Corpus {
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for pair in 0..corpus.len() {
        groups.entry(corpus.length(pair)).or_default().push(pair);
    }
    let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    corpus.only(&groups.into_iter().flatten().take(pairs).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_searched_or_left_for_the_test() {
        for (pairs, searched) in [(0, 0), (1, 0), (20, 8), (80, 32), (500, 48)] {
            let (seen, unseen) = split(pairs);
            assert_eq!((seen.len(), unseen.len()), (searched, pairs - searched));
            let gap = seen.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0);
            assert!(gap <= (pairs / searched.max(1)) + 1, "{pairs}: {seen:?}");
        }
    }
}
