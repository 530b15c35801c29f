//! What the weights of an attention look like, head by head. These are descriptions, not verdicts: a decoder that ignores its
//! source can look like one that uses it.

use attnscope_graph::MaskKind;

/// The weights of one row of a batch: some queries, some keys, and which of the keys are tokens.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    /// [head, query, key], row-major.
    pub values: &'a [f64],
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

/// What one head does with its keys, the mean over queries. S is the number of keys that a query sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadMeasures {
    /// −Σ a ln a / ln S, over queries with at least 4 keys: 1 is uniform, 0 is one key. `None` where there are none.
    pub entropy: Option<f64>,
    /// S · max a: how many times the uniform weight the strongest key has.
    pub peak: f64,
    /// The weight on the tokens that end the sentence, where it has any.
    pub end_share: Option<f64>,
}

/// With fewer keys than this, entropy means little.
pub(crate) const LEAST_KEYS: usize = 4;

/// The measures of every head. Empty where there is nothing to measure.
pub fn head_measures(weights: &Weights<'_>) -> Vec<HeadMeasures> {
    let keys = weights.open.len();
    let cells = weights.stride * keys;
    if cells == 0 || weights.queries == 0 {
        return Vec::new();
    }
    weights.values.chunks(cells).take(weights.heads).map(|head| measure(head, weights)).collect()
}

fn measure(head: &[f64], weights: &Weights<'_>) -> HeadMeasures {
    let keys = weights.open.len();
    let rows = || head.chunks(keys).take(weights.queries);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    // A NaN makes every measure NaN.
    if rows().flatten().any(|a| a.is_nan()) {
        return HeadMeasures { entropy: Some(f64::NAN), peak: f64::NAN, end_share: Some(f64::NAN) };
    }
    let entropy = |(query, row): (usize, &[f64])| {
        let visible = weights.visible(query);
        normalised_entropy(row.iter().copied(), visible)
    };
    let peak = |(query, row): (usize, &[f64])| {
        row.iter().copied().fold(0.0, f64::max) * weights.visible(query) as f64
    };
    let end = |row: &[f64]| weights.end.iter().filter_map(|&key| row.get(key)).sum::<f64>();
    let entropies: Vec<f64> = rows().enumerate().filter_map(entropy).collect();
    HeadMeasures {
        entropy: (!entropies.is_empty()).then(|| mean(&entropies)),
        peak: mean(&rows().enumerate().map(peak).collect::<Vec<_>>()),
        end_share: (!weights.end.is_empty()).then(|| mean(&rows().map(end).collect::<Vec<_>>())),
    }
}

/// −Σ a ln a / ln S of a row of weights with S visible keys; `None` where they are too few.
pub(crate) fn normalised_entropy(row: impl Iterator<Item = f64>, visible: usize) -> Option<f64> {
    let nats = -row.filter(|&a| a > 0.0).map(|a| a * a.ln()).sum::<f64>();
    (visible >= LEAST_KEYS).then(|| nats / (visible as f64).ln())
}

impl Weights<'_> {
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
        let taken_for_open = head_measures(&Weights { mask: None, ..weights })[0];
        assert!(taken_for_open.entropy.unwrap() < 0.7, "{taken_for_open:?}");
    }
}
