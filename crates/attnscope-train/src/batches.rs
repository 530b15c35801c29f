//! Which examples are learned from together, and in which order.

use attnscope_run::SplitMix;

/// How large a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchSize {
    /// So many examples.
    Examples(usize),
    /// So many positions at most, padding included, on the side that is longer. One example may have more.
    Tokens(usize),
}

/// Examples that are sorted by length together. Batches of like lengths need little padding; sorting all at once would make the
/// same batches in every epoch.
const POOL: usize = 2048;

/// What numbers are drawn for. Each use has a stream of its own, so that one does not move another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The first weights.
    Weights,
    /// Which rows are held out.
    Validation,
    /// The order of an epoch.
    Order(u64),
    /// What dropout leaves out in a step.
    Dropout(u64),
}

impl Stream {
    /// The stream's own seed.
    pub fn seed(self, seed: u64) -> u64 {
        let (kind, number) = match self {
            Self::Weights => (1, 0),
            Self::Validation => (2, 0),
            Self::Order(epoch) => (3, epoch),
            Self::Dropout(step) => (4, step),
        };
        let mixed = SplitMix::new(seed).bits() ^ kind;
        SplitMix::new(SplitMix::new(mixed).bits() ^ number).bits()
    }
}

/// The numbers below `n` in an order by chance (Fisher and Yates).
pub(crate) fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    shuffle(&mut order, &mut SplitMix::new(seed));
    order
}

fn shuffle<T>(items: &mut [T], random: &mut SplitMix) {
    for i in (1..items.len()).rev() {
        items.swap(i, random.below(i + 1));
    }
}

/// The batches of an epoch, by the numbers of their examples. With `lengths`, each example's on its longer side, examples of like
/// length go together; without, every order is as likely.
pub(crate) fn epoch(
    count: usize,
    lengths: Option<&[usize]>,
    size: BatchSize,
    seed: u64,
    epoch: u64,
) -> Vec<Vec<usize>> {
    let mut random = SplitMix::new(Stream::Order(epoch).seed(seed));
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order, &mut random);
    let Some(lengths) = lengths else {
        return cut(&order, |_| 1, size);
    };
    let length = |example: usize| lengths.get(example).copied().unwrap_or(1).max(1);
    let mut batches = Vec::new();
    for pool in order.chunks_mut(POOL) {
        // A stable sort: equals stay in the order of chance.
        pool.sort_by_key(|&example| length(example));
        batches.extend(cut(pool, length, size));
    }
    shuffle(&mut batches, &mut random);
    batches
}

fn cut(order: &[usize], length: impl Fn(usize) -> usize, size: BatchSize) -> Vec<Vec<usize>> {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut longest = 0;
    for &example in order {
        longest = longest.max(length(example));
        let fits = |batch: &&mut Vec<usize>| match size {
            BatchSize::Examples(most) => batch.len() < most,
            BatchSize::Tokens(most) => (batch.len() + 1) * longest <= most,
        };
        match batches.last_mut().filter(fits) {
            Some(batch) => batch.push(example),
            None => {
                longest = length(example);
                batches.push(vec![example]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths() -> Vec<usize> {
        let mut random = SplitMix::new(7);
        (0..5000).map(|_| 3 + random.below(40)).collect()
    }

    #[test]
    fn every_example_is_in_one_batch_of_an_epoch() {
        let lengths = lengths();
        for (lengths, size) in [
            (None, BatchSize::Examples(32)),
            (Some(&lengths[..]), BatchSize::Examples(32)),
            (Some(&lengths[..]), BatchSize::Tokens(400)),
        ] {
            let batches = epoch(5000, lengths, size, 1, 0);
            let mut seen: Vec<usize> = batches.concat();
            seen.sort_unstable();
            assert_eq!(seen, (0..5000).collect::<Vec<_>>(), "{size:?}");
            assert_eq!(batches, epoch(5000, lengths, size, 1, 0), "the same from the same seed");
            assert_ne!(batches, epoch(5000, lengths, size, 1, 1), "another epoch");
            assert_ne!(batches, epoch(5000, lengths, size, 2, 0), "another seed");
        }
    }

    #[test]
    fn batches_of_like_lengths_are_hardly_padded_and_no_larger_than_allowed() {
        let lengths = lengths();
        let padding = |batches: &[Vec<usize>]| {
            let (mut cells, mut tokens) = (0, 0);
            for batch in batches {
                cells += batch.len() * batch.iter().map(|&e| lengths[e]).max().unwrap();
                tokens += batch.iter().map(|&e| lengths[e]).sum::<usize>();
            }
            1.0 - tokens as f64 / cells as f64
        };
        let sorted = epoch(5000, Some(&lengths), BatchSize::Tokens(400), 1, 0);
        let longest = |batch: &[usize]| batch.iter().map(|&e| lengths[e]).max().unwrap();
        assert!(sorted.iter().all(|batch| batch.len() * longest(batch) <= 400));
        assert!(padding(&sorted) < 0.02, "{}", padding(&sorted));
        assert!(padding(&epoch(5000, None, BatchSize::Examples(16), 1, 0)) > 0.3);
        // Short ones do not all come first.
        let middle = sorted.len() / 2;
        let mean = |batches: &[Vec<usize>]| {
            let all = batches.concat();
            all.iter().map(|&e| lengths[e]).sum::<usize>() as f64 / all.len() as f64
        };
        assert!((mean(&sorted[..middle]) - mean(&sorted[middle..])).abs() < 8.0);
    }

    #[test]
    fn an_example_that_is_too_long_is_alone() {
        let batches = epoch(3, Some(&[9, 2, 2]), BatchSize::Tokens(4), 1, 0);
        assert!(batches.contains(&vec![0]), "{batches:?}");
        assert_eq!(batches.len(), 2);
    }

    #[test]
    fn streams_differ() {
        let streams =
            [Stream::Weights, Stream::Validation, Stream::Order(0), Stream::Order(1), Stream::Dropout(0)];
        let seeds: std::collections::HashSet<u64> =
            streams.iter().flat_map(|stream| [stream.seed(0), stream.seed(1)]).collect();
        assert_eq!(seeds.len(), 10);
    }
}
