//! What the weights of an attention look like, head by head. These are descriptions, not verdicts: a decoder that ignores its
//! source can look like one that uses it.

use attnscope_graph::MaskKind;

/// The weights of one row of a batch, in f32 or f64: some queries, some keys, and which of the keys are tokens.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a, T = f64> {
    /// [head, query, key], row-major.
    pub values: &'a [T],
    /// How many heads.
    pub heads: usize,
    /// How many queries, padding left out.
    pub queries: usize,
    /// How many queries there are in memory.
    pub stride: usize,
    /// What is a token and what is padding, for each key.
    pub open: &'a [bool],
    /// Keys that end a sentence: many heads put unused weight there.
    pub end: &'a [usize],
    /// What a query does not see by its place.
    pub mask: Option<MaskKind>,
}

/// What one head does with its keys, the mean over queries. S is the number of keys that a query sees. All are NaN where a
/// weight is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadMeasures {
    /// −Σ a ln a / ln S, over queries with at least 4 keys: 1 is uniform, 0 is one key. `None` where there are none.
    pub entropy: Option<f64>,
    /// exp(−Σ a ln a): as many keys as would have that entropy if they had equal weights.
    pub effective_keys: f64,
    /// S · max a: how many times the uniform weight the strongest key has.
    pub peak: f64,
    /// The weight on the tokens that end the sentence, where it has any.
    pub end_share: Option<f64>,
    /// The weight on the first key.
    pub first_share: f64,
    /// The weight on the key with the query's own number, over queries for which there is one.
    pub diagonal_share: Option<f64>,
    /// The weight on the key before that.
    pub previous_share: Option<f64>,
    /// max a where the tokens that end the sentence are left out and the rest sums to 1, over queries that leave something: 1
    /// means that each query reads one token. `None` where there are no such queries.
    pub sharpness: Option<f64>,
}

/// With fewer keys than this, entropy means little.
pub(crate) const LEAST_KEYS: usize = 4;

/// The measures of every head. Empty where there is nothing to measure.
pub fn head_measures<T: Copy + Into<f64>>(weights: &Weights<'_, T>) -> Vec<HeadMeasures> {
    let keys = weights.open.len();
    let cells = weights.stride * keys;
    if cells == 0 || weights.queries == 0 {
        return Vec::new();
    }
    let visible: Vec<usize> = (0..weights.queries).map(|query| weights.visible(query)).collect();
    weights.values.chunks(cells).take(weights.heads).map(|head| measure(head, weights, &visible)).collect()
}

/// A mean of what is there.
#[derive(Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

fn measure<T: Copy + Into<f64>>(head: &[T], weights: &Weights<'_, T>, visible: &[usize]) -> HeadMeasures {
    let keys = weights.open.len();
    let at = |row: &[T], key: usize| row.get(key).map(|&a| a.into());
    let [mut entropy, mut effective, mut peak, mut end] = [(); 4].map(|()| Mean::default());
    let [mut first, mut diagonal, mut previous, mut sharpness] = [(); 4].map(|()| Mean::default());
    for (query, (row, &visible)) in head.chunks(keys).zip(visible).enumerate() {
        // A NaN makes every measure NaN.
        if row.iter().any(|&a| a.into().is_nan()) {
            return HeadMeasures::nan();
        }
        let nats = nats(row.iter().map(|&a| a.into()));
        if let Some(share) = normalised(nats, visible) {
            entropy.add(share);
        }
        effective.add(nats.exp());
        peak.add(row.iter().map(|&a| a.into()).fold(0.0, f64::max) * visible as f64);
        let on_end: f64 = weights.end.iter().filter_map(|&key| at(row, key)).sum();
        end.add(on_end);
        first.add(at(row, 0).unwrap_or(0.0));
        at(row, query).into_iter().for_each(|a| diagonal.add(a));
        query.checked_sub(1).and_then(|key| at(row, key)).into_iter().for_each(|a| previous.add(a));
        let (rest, strongest) = beside_the_end(row, weights.end);
        if rest > 0.0 {
            sharpness.add(strongest / rest);
        }
    }
    HeadMeasures {
        entropy: entropy.get(),
        effective_keys: effective.get().unwrap_or(f64::NAN),
        peak: peak.get().unwrap_or(f64::NAN),
        end_share: end.get().filter(|_| !weights.end.is_empty()),
        first_share: first.get().unwrap_or(f64::NAN),
        diagonal_share: diagonal.get(),
        previous_share: previous.get(),
        sharpness: sharpness.get(),
    }
}

/// The sum of the weights that are on no end token, and the largest of them.
fn beside_the_end<T: Copy + Into<f64>>(row: &[T], end: &[usize]) -> (f64, f64) {
    let kept = row.iter().enumerate().filter(|(key, _)| !end.contains(key)).map(|(_, &a)| a.into());
    kept.fold((0.0, 0.0), |(sum, most), a: f64| (sum + a, most.max(a)))
}

/// −Σ a ln a
fn nats(row: impl Iterator<Item = f64>) -> f64 {
    -row.filter(|&a| a > 0.0).map(|a| a * a.ln()).sum::<f64>()
}

fn normalised(nats: f64, visible: usize) -> Option<f64> {
    (visible >= LEAST_KEYS).then(|| nats / (visible as f64).ln())
}

/// −Σ a ln a / ln S of a row of weights with S visible keys; `None` where they are too few.
pub(crate) fn normalised_entropy(row: impl Iterator<Item = f64>, visible: usize) -> Option<f64> {
    normalised(nats(row), visible)
}

impl HeadMeasures {
    fn nan() -> Self {
        Self {
            entropy: Some(f64::NAN),
            effective_keys: f64::NAN,
            peak: f64::NAN,
            end_share: Some(f64::NAN),
            first_share: f64::NAN,
            diagonal_share: Some(f64::NAN),
            previous_share: Some(f64::NAN),
            sharpness: Some(f64::NAN),
        }
    }
}

impl<T> Weights<'_, T> {
    /// How many keys a query sees.
    fn visible(&self, query: usize) -> usize {
        let in_view = |key: usize| self.mask.is_none_or(|mask| mask.is_in_view(query, key));
        self.open.iter().enumerate().filter(|&(key, &open)| open && in_view(key)).count()
    }
}

#[cfg(test)]
mod tests {
    use attnscope_graph::Side;

    use super::*;

    const CAUSAL: MaskKind =
        MaskKind { queries: Side::Target, keys: Side::Target, causal: true, padding: false, reach: None };

    #[test]
    fn uniform_is_one_and_a_single_key_is_nought() {
        let uniform = [0.25; 8];
        let single = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0];
        let values = [uniform, single].concat();
        let open = [true; 4];
        let weights =
            Weights { values: &values, heads: 2, queries: 2, stride: 2, open: &open, end: &[3], mask: None };
        let [a, b] = head_measures(&weights)[..] else { panic!("two heads") };
        assert!((a.entropy.unwrap() - 1.0).abs() < 1e-12 && (a.peak - 1.0).abs() < 1e-12);
        assert_eq!((b.entropy, b.peak, b.end_share), (Some(0.0), 4.0, Some(0.5)));
        assert_eq!(a.end_share, Some(0.25));
    }

    /// A quarter of each query's weight is on the end token; of the rest, one query reads one token and one reads two.
    #[test]
    fn sharpness_is_of_the_weight_beside_the_end() {
        let values = [0.75f32, 0.0, 0.0, 0.25, 0.375, 0.375, 0.0, 0.25];
        let weights = Weights {
            values: &values,
            heads: 1,
            queries: 2,
            stride: 2,
            open: &[true; 4],
            end: &[3],
            mask: None,
        };
        let found = head_measures(&weights)[0];
        assert_eq!((found.sharpness, found.end_share), (Some(0.75), Some(0.25)));
        let on_end = Weights { values: &[0.0f32, 0.0, 0.0, 1.0], queries: 1, stride: 1, ..weights };
        assert_eq!(head_measures(&on_end)[0].sharpness, None);
        let broken = Weights { values: &[f32::NAN, 0.0, 0.0, 1.0], ..on_end };
        assert!(head_measures(&broken)[0].sharpness.is_some_and(f64::is_nan));
    }

    #[test]
    fn padding_counts_for_nothing() {
        // Two of six keys are padding and one of two queries is.
        let values = [[0.25, 0.25, 0.25, 0.25, 0.0, 0.0], [9.0; 6]].concat();
        let open = [true, true, true, true, false, false];
        let weights =
            Weights { values: &values, heads: 1, queries: 1, stride: 2, open: &open, end: &[], mask: None };
        let measures = head_measures(&weights);
        assert!((measures[0].entropy.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((measures[0].peak, measures[0].end_share), (1.0, None));
        let few = Weights { open: &open[3..], ..weights };
        assert_eq!(head_measures(&few)[0].entropy, None);
    }

    /// The last of five queries sees five keys, the first one.
    #[test]
    fn a_causal_query_is_measured_by_what_it_sees() {
        let row = |q: usize| (0..5).map(move |k| if k <= q { 1.0 / (q + 1) as f64 } else { 0.0 });
        let values: Vec<f64> = (0..5).flat_map(row).collect();
        let weights = Weights {
            values: &values,
            heads: 1,
            queries: 5,
            stride: 5,
            open: &[true; 5],
            end: &[],
            mask: Some(CAUSAL),
        };
        let uniform = head_measures(&weights)[0];
        assert!((uniform.entropy.unwrap() - 1.0).abs() < 1e-12 && (uniform.peak - 1.0).abs() < 1e-12);
        // Rows of 1, 2, 3, 4 and 5 equal weights.
        let mean = |values: [f64; 5]| values.iter().sum::<f64>() / 5.0;
        assert!((uniform.effective_keys - mean([1.0, 2.0, 3.0, 4.0, 5.0])).abs() < 1e-12);
        let shares = mean([1.0, 1.0 / 2.0, 1.0 / 3.0, 1.0 / 4.0, 1.0 / 5.0]);
        assert!((uniform.first_share - shares).abs() < 1e-12);
        assert!((uniform.diagonal_share.unwrap() - shares).abs() < 1e-12);
        assert!((uniform.previous_share.unwrap() - (5.0 * shares - 1.0) / 4.0).abs() < 1e-12);
        let taken_for_open = head_measures(&Weights { mask: None, ..weights })[0];
        assert!(taken_for_open.entropy.unwrap() < 0.7, "{taken_for_open:?}");
    }
}
