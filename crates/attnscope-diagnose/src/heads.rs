//! What the heads of an attention do, measured during a run.

use attnscope_graph::MaskKind;

use crate::attention::{LEAST_KEYS, normalised_entropy};

/// The sizes of an attention, and which of its positions are tokens.
pub(crate) struct Extent<'a> {
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    /// What a query does not see by its place.
    pub(crate) mask: Option<MaskKind>,
    /// [batch, query]; all where absent.
    pub(crate) query_open: Option<&'a [bool]>,
    /// [batch, key]; all where absent.
    pub(crate) key_open: Option<&'a [bool]>,
}

/// What one head does, the mean over queries that are tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HeadSeen {
    /// −Σ a ln a / ln S over queries with at least four keys; `None` where there are none.
    pub(crate) entropy: Option<f64>,
    /// The position that gets most beyond uniform attention; `None` where no query sees four keys or more.
    pub(crate) sink: Option<Sink>,
    /// Root mean square of the norm of its contribution to the stream.
    pub(crate) norm: f64,
}

/// How much of a head's attention one position gets, over queries that see at least four keys: with fewer keys, every weight
/// is large.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sink {
    pub(crate) position: usize,
    /// The mean weight on it.
    pub(crate) weight: f64,
    /// What the mean would be with uniform attention under the same mask: large for the first positions of a causal one.
    pub(crate) uniform: f64,
}

impl Sink {
    /// The mean weight at which `share` of what uniform attention gives to other positions is gathered at this one.
    pub(crate) fn limit(&self, share: f64) -> f64 {
        self.uniform + share * (1.0 - self.uniform)
    }

    /// The share of what uniform attention gives to other positions that is gathered at this one; below 0 where it gets less.
    fn share(&self) -> f64 {
        match self.uniform < 1.0 {
            true => (self.weight - self.uniform) / (1.0 - self.uniform),
            false => 0.0,
        }
    }
}

/// How similar two heads of an attention are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pairwise {
    pub(crate) first: usize,
    pub(crate) second: usize,
    /// Jensen-Shannon divergence of their weights in nats, the mean over queries.
    pub(crate) divergence: f64,
    /// Cosine of their contributions to the stream.
    pub(crate) cosine: f64,
}

/// The most queries that are measured.
const MOST_QUERIES: usize = 256;

impl Extent<'_> {
    /// The queries that are tokens: (row of the batch, query). Of very many, an evenly spaced sample.
    fn tokens(&self) -> Vec<(usize, usize)> {
        let open = |b: usize, q: usize| self.query_open.is_none_or(|open| open[b * self.queries + q]);
        let all = (0..self.batch).flat_map(|b| (0..self.queries).map(move |q| (b, q)));
        let tokens: Vec<(usize, usize)> = all.filter(|&(b, q)| open(b, q)).collect();
        let step = tokens.len().div_ceil(MOST_QUERIES).max(1);
        tokens.into_iter().step_by(step).collect()
    }

    /// Whether a query sees a key.
    fn sees(&self, b: usize, query: usize, key: usize) -> bool {
        let is_open = self.key_open.is_none_or(|open| open[b * self.keys + key]);
        is_open && self.mask.is_none_or(|mask| mask.is_in_view(query, key))
    }

    /// How many keys are visible to a query.
    fn visible(&self, b: usize, query: usize) -> usize {
        (0..self.keys).filter(|&key| self.sees(b, query, key)).count()
    }

    /// The sum of uniform weights on each key, over queries that see enough keys.
    fn uniform(&self, tokens: &[(usize, usize)], visible: &[usize]) -> Vec<f64> {
        let mut sum = vec![0f64; self.keys];
        for (&(b, q), &visible) in tokens.iter().zip(visible).filter(|&(_, &visible)| visible >= LEAST_KEYS) {
            let seen = sum.iter_mut().enumerate().filter(|(key, _)| self.sees(b, q, *key));
            seen.for_each(|(_, sum)| *sum += 1.0 / visible as f64);
        }
        sum
    }
}

/// Entropy, sink and similarity of heads from their weights, [batch, head, query, key].
pub(crate) fn weights_seen(extent: &Extent<'_>, values: &[f32]) -> (Vec<HeadSeen>, Vec<Pairwise>) {
    let Extent { heads, queries, keys, .. } = *extent;
    let row = |b: usize, h: usize, q: usize| &values[((b * heads + h) * queries + q) * keys..][..keys];
    let tokens = extent.tokens();
    let visible: Vec<usize> = tokens.iter().map(|&(b, q)| extent.visible(b, q)).collect();
    let uniform = extent.uniform(&tokens, &visible);
    let head = |h: usize| {
        let (mut entropy, mut counted) = (0.0, 0usize);
        let mut sum = vec![0f64; keys];
        for (&(b, q), &visible) in tokens.iter().zip(&visible) {
            let weights = row(b, h, q).iter().map(|&a| f64::from(a));
            let Some(share) = normalised_entropy(weights.clone(), visible) else { continue };
            sum.iter_mut().zip(weights).for_each(|(sum, a)| *sum += a);
            entropy += share;
            counted += 1;
        }
        let mean = |sum: f64| (counted > 0).then(|| sum / counted as f64);
        let sinks = sum.iter().zip(&uniform).enumerate().filter_map(|(position, (&sum, &uniform))| {
            Some(Sink { position, weight: mean(sum)?, uniform: mean(uniform)? })
        });
        let sink = sinks.max_by(|a, b| a.share().total_cmp(&b.share()));
        HeadSeen { entropy: mean(entropy), sink, norm: 0.0 }
    };
    let pair = |(first, second): (usize, usize)| {
        let each = tokens.iter().map(|&(b, q)| jensen_shannon(row(b, first, q), row(b, second, q)));
        let divergence = each.sum::<f64>() / tokens.len().max(1) as f64;
        Pairwise { first, second, divergence, cosine: 0.0 }
    };
    let all = (0..heads).flat_map(|i| (i + 1..heads).map(move |j| (i, j)));
    ((0..heads).map(head).collect(), all.map(pair).collect())
}

/// Half the divergence of each from their mean.
fn jensen_shannon(a: &[f32], b: &[f32]) -> f64 {
    let part = |p: f64, m: f64| if p > 0.0 { p * (p / m).ln() } else { 0.0 };
    let each = a.iter().zip(b).map(|(&a, &b)| {
        let (a, b) = (f64::from(a), f64::from(b));
        let mean = 0.5 * (a + b);
        0.5 * (part(a, mean) + part(b, mean))
    });
    each.sum()
}

/// What each head adds to the stream: root mean square norms, and cosines, [head, head]. `context` is
/// [batch, head, query, size], `out` the output projection, [width, head · size].
pub(crate) fn head_outputs(
    extent: &Extent<'_>,
    size: usize,
    context: &[f32],
    out: &[f32],
) -> (Vec<f64>, Vec<f64>) {
    let Extent { heads, queries, .. } = *extent;
    let inner = heads * size;
    let mut products = vec![0f64; heads * heads];
    let tokens = extent.tokens();
    let mut feature = vec![0f64; heads];
    for &(b, q) in &tokens {
        for weights in out.chunks(inner.max(1)) {
            // One feature of the stream, per head.
            for (h, feature) in feature.iter_mut().enumerate() {
                let context = &context[((b * heads + h) * queries + q) * size..][..size];
                *feature = context.iter().zip(&weights[h * size..]).map(|(&c, &w)| f64::from(c * w)).sum();
            }
            for i in 0..heads {
                for j in i..heads {
                    products[i * heads + j] += feature[i] * feature[j];
                }
            }
        }
    }
    let square = |i: usize| products[i * heads + i];
    let norms = (0..heads).map(|i| (square(i) / tokens.len().max(1) as f64).sqrt()).collect();
    let cosine = |n: usize| {
        let (i, j) = (n / heads, n % heads);
        products[n] / (square(i) * square(j)).sqrt()
    };
    (norms, (0..heads * heads).map(cosine).collect())
}

#[cfg(test)]
mod tests {
    use attnscope_graph::Side;

    use super::*;

    fn extent(heads: usize, queries: usize, keys: usize) -> Extent<'static> {
        Extent { batch: 1, heads, queries, keys, mask: None, query_open: None, key_open: None }
    }

    #[test]
    fn entropy_is_of_the_keys_that_can_be_seen() {
        // One head has uniform weights, one a single key.
        let values = [0.25f32, 0.25, 0.25, 0.25, 0.0, 1.0, 0.0, 0.0];
        let (heads, pairs) = weights_seen(&extent(2, 1, 4), &values);
        assert!((heads[0].entropy.unwrap() - 1.0).abs() < 1e-9);
        let sink = Sink { position: 1, weight: 1.0, uniform: 0.25 };
        assert_eq!((heads[1].entropy, heads[1].sink), (Some(0.0), Some(sink)));
        assert_eq!(heads[0].sink.unwrap().share(), 0.0);
        assert!(pairs[0].divergence > 0.2);
        // Two of four keys are padding: too few for an entropy.
        let open = [true, true, false, false];
        let narrow = Extent { key_open: Some(&open), ..extent(2, 1, 4) };
        let head = weights_seen(&narrow, &values).0[0];
        assert_eq!((head.entropy, head.sink), (None, None));
    }

    /// Under a causal mask uniform attention gives the first position more than any other: that is no sink.
    #[test]
    fn a_sink_is_what_uniform_attention_under_the_mask_would_not_give() {
        let mask =
            MaskKind { queries: Side::Target, keys: Side::Target, causal: true, padding: false, reach: None };
        let causal = Extent { mask: Some(mask), ..extent(2, 6, 6) };
        let uniform = |q: usize| (0..6).map(move |k| if k <= q { 1.0 / (q + 1) as f32 } else { 0.0 });
        let first = |_: usize| (0..6).map(|k| if k == 0 { 1.0 } else { 0.0 });
        let values: Vec<f32> = (0..6).flat_map(uniform).chain((0..6).flat_map(first)).collect();
        let (heads, _) = weights_seen(&causal, &values);
        let (flat, sink) = (heads[0].sink.unwrap(), heads[1].sink.unwrap());
        assert!(flat.share().abs() < 1e-6, "{flat:?}");
        // Queries 3, 4 and 5 see 4, 5 and 6 keys.
        assert_eq!(sink.position, 0);
        assert!((sink.uniform - (1.0 / 4.0 + 1.0 / 5.0 + 1.0 / 6.0) / 3.0).abs() < 1e-12, "{sink:?}");
        assert!((sink.share() - 1.0).abs() < 1e-12 && sink.weight > sink.limit(0.99), "{sink:?}");
    }

    #[test]
    fn equal_heads_do_not_diverge() {
        assert!(jensen_shannon(&[0.5, 0.5], &[0.5, 0.5]).abs() < 1e-12);
        assert!((jensen_shannon(&[1.0, 0.0], &[0.0, 1.0]) - 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn outputs_go_through_the_projection() {
        // Two heads of size 1, a stream of width 2; the second head's columns are 0.
        let (norms, cosines) = head_outputs(&extent(2, 1, 0), 1, &[3.0, 5.0], &[1.0, 0.0, 0.0, 0.0]);
        assert_eq!(norms, [3.0, 0.0]);
        assert!(cosines[1].is_nan());
        // Two heads that add the same.
        let (_, cosines) = head_outputs(&extent(2, 1, 0), 1, &[3.0, 6.0], &[2.0, 1.0, 4.0, 2.0]);
        assert!((cosines[1] - 1.0).abs() < 1e-9);
    }
}
