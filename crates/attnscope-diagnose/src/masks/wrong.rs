//! The usual mistakes with masks, on a model's own scores, compared with the right mask.

use attnscope_run::MaskReason;

use super::Attention;

/// A mistake with a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A causal mask in cross-attention.
    CausalCross,
    /// Weights multiplied by 0 and 1 after the softmax.
    MultiplyAfter,
    /// Scores multiplied by 0 and 1 before the softmax.
    MultiplyBefore,
    /// Padding left visible.
    NoPadding,
    /// The future left visible.
    NoCausal,
}

impl Mistake {
    /// Every mistake.
    pub const ALL: [Self; 5] =
        [Self::CausalCross, Self::MultiplyAfter, Self::MultiplyBefore, Self::NoPadding, Self::NoCausal];

    /// Its name on the command line and in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::CausalCross => "causal-cross",
            Self::MultiplyAfter => "multiply-after",
            Self::MultiplyBefore => "multiply-before",
            Self::NoPadding => "no-padding",
            Self::NoCausal => "no-causal",
        }
    }

    /// The attention in which it is made.
    pub fn attention(self) -> Attention {
        match self {
            Self::CausalCross => Attention::Cross,
            Self::MultiplyAfter | Self::MultiplyBefore | Self::NoCausal => Attention::Decoder,
            Self::NoPadding => Attention::Encoder,
        }
    }

    /// What is computed instead of softmax(scores + mask).
    pub fn formula(self) -> &'static str {
        match self {
            Self::CausalCross => "softmax(scores + causal mask)",
            Self::MultiplyAfter => "softmax(scores) × (1 visible, 0 masked)",
            Self::MultiplyBefore => "softmax(scores × (1 visible, 0 masked))",
            Self::NoPadding => "softmax(scores), padding visible",
            Self::NoCausal => "softmax(scores), the future visible",
        }
    }
}

/// The weights of one head with the right mask and with a mistake.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The mistake.
    pub mistake: Mistake,
    /// How many queries and keys.
    pub queries: usize,
    /// How many keys.
    pub keys: usize,
    /// [query, key]: why the right mask hides a key; nothing where it is visible.
    pub masked: Vec<Option<MaskReason>>,
    /// [query, key], with the right mask.
    pub right: Vec<f64>,
    /// [query, key], with the mistake.
    pub wrong: Vec<f64>,
    /// Which queries are tokens: queries at padding do not matter.
    pub tokens: Vec<bool>,
    /// What it does to each query.
    pub rows: Vec<RowDifference>,
}

/// What a mistake does to the weights of one query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowDifference {
    /// The sum of its weights; 1 is right.
    pub sum: f64,
    /// The weight on keys that should be masked; 0 is right.
    pub leaked: f64,
    /// The weight, with the right mask, of keys that the mistake hides; 0 is right.
    pub lost: f64,
}

impl Compared {
    /// The mistake on given scores, [query, key], of one head. `masked` is the right mask; `tokens` says which queries are not
    /// padding.
    pub fn new(mistake: Mistake, scores: &[f64], masked: &[Option<MaskReason>], tokens: &[bool]) -> Self {
        let queries = tokens.len();
        let keys = (scores.len() / queries.max(1)).max(1);
        let is_future = |cell: usize| cell % keys > cell / keys;
        let visible = |cell: usize| masked.get(cell).is_none_or(Option::is_none);
        // What the mistake still masks.
        let hides = |cell: usize| match (mistake, masked.get(cell).copied().flatten()) {
            (Mistake::CausalCross, why) => why.is_some() || is_future(cell),
            (Mistake::MultiplyAfter | Mistake::MultiplyBefore, _) => false,
            (Mistake::NoPadding, why) => why.and_then(MaskReason::without_padding).is_some(),
            (Mistake::NoCausal, why) => why.and_then(MaskReason::without_future).is_some(),
        };
        let factor = |cell: usize| if visible(cell) { 1.0 } else { 0.0 };
        let before = |cell: usize| if mistake == Mistake::MultiplyBefore { factor(cell) } else { 1.0 };
        let after = |cell: usize| if mistake == Mistake::MultiplyAfter { factor(cell) } else { 1.0 };
        let right =
            softmax(scores, keys, |cell, score| if visible(cell) { score } else { f64::NEG_INFINITY });
        let mut wrong =
            softmax(
                scores,
                keys,
                |cell, score| {
                    if hides(cell) { f64::NEG_INFINITY } else { score * before(cell) }
                },
            );
        wrong.iter_mut().enumerate().for_each(|(cell, weight)| *weight *= after(cell));
        let row = |query: usize| {
            let cells = || query * keys..(query + 1) * keys;
            RowDifference {
                sum: wrong[cells()].iter().sum(),
                leaked: cells().filter(|&cell| !visible(cell)).map(|cell| wrong[cell]).sum(),
                lost: cells().filter(|&cell| visible(cell) && hides(cell)).map(|cell| right[cell]).sum(),
            }
        };
        let rows = (0..queries).map(row).collect();
        Self { mistake, queries, keys, masked: masked.to_vec(), right, wrong, tokens: tokens.to_vec(), rows }
    }

    /// Whether a cell that should be visible is masked by the mistake.
    pub fn hides(&self, cell: usize) -> bool {
        let future = cell % self.keys.max(1) > cell / self.keys.max(1);
        self.mistake == Mistake::CausalCross && future && self.masked.get(cell).is_none_or(Option::is_none)
    }

    /// How the two differ, with numbers.
    pub fn difference(&self) -> String {
        if self.right == self.wrong {
            return "nothing in this input falls under that rule, so nothing differs".into();
        }
        let worst = |of: fn(&RowDifference) -> f64| {
            let rows = self.rows.iter().map(of).enumerate().filter(|(query, _)| self.tokens[*query]);
            rows.fold((0, 0.0), |most, row| if row.1 > most.1 { row } else { most })
        };
        let (leaking, leaked) = worst(|row| row.leaked);
        match self.mistake {
            Mistake::MultiplyAfter => {
                let rows = self.rows.iter().zip(&self.tokens).filter(|(_, token)| **token);
                let sums: Vec<f64> = rows.map(|(row, _)| row.sum).collect();
                let least = sums.iter().copied().fold(f64::INFINITY, f64::min);
                let short = sums.iter().filter(|&&sum| (sum - 1.0).abs() > 1e-9).count();
                format!(
                    "{short} of {} rows no longer sum to 1, the least to {least:.3}: what the softmax gave to masked keys \
                     is lost, not given to the visible ones",
                    sums.len()
                )
            }
            Mistake::MultiplyBefore => format!(
                "a score of 0 is not −∞: exp(0) = 1, so masked keys keep {leaked:.3} of the weight of query {leaking}"
            ),
            Mistake::NoPadding => {
                format!(
                    "padding takes up to {leaked:.3} of a query's weight (query {leaking}), and means nothing"
                )
            }
            Mistake::NoCausal => format!(
                "tokens that are still to be predicted take up to {leaked:.3} of a query's weight (query {leaking}): in \
                 training the model reads the answer from them, and in use they do not exist yet"
            ),
            Mistake::CausalCross => {
                let (losing, lost) = worst(|row| row.lost);
                let last =
                    (0..self.keys).rev().find(|&key| self.masked.get(key).is_some_and(Option::is_none));
                let all = self.tokens.iter().filter(|&&token| token).count();
                let before = self.tokens.iter().take(last.unwrap_or(0));
                let cut_off = before.filter(|&&token| token).count();
                format!(
                    "{cut_off} of {all} queries cannot see the end of the source; query {losing} loses {lost:.3} of its weight"
                )
            }
        }
    }
}

/// The softmax of every row of adjusted scores; 0 where a row is fully masked.
fn softmax(scores: &[f64], keys: usize, adjust: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    let adjusted: Vec<f64> = scores.iter().enumerate().map(|(cell, &score)| adjust(cell, score)).collect();
    let row = |row: &[f64]| -> Vec<f64> {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most == f64::NEG_INFINITY {
            return vec![0.0; row.len()];
        }
        let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(|x| (x - most).exp() / sum).collect()
    };
    adjusted.chunks(keys.max(1)).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUTURE: Option<MaskReason> = Some(MaskReason::Future);

    fn close(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
    }

    /// Scores [[ln 1, ln 3], [ln 2, ln 2]]: weights are [[1, 3] / 4, [2, 2] / 4] without a mask.
    fn scores() -> [f64; 4] {
        [0.0, 3f64.ln(), 2f64.ln(), 2f64.ln()]
    }

    #[test]
    fn multiplied_after_the_softmax_rows_do_not_sum_to_one() {
        let c = Compared::new(Mistake::MultiplyAfter, &scores(), &[None, FUTURE, None, None], &[true; 2]);
        close(&c.right, &[1.0, 0.0, 0.5, 0.5]);
        close(&c.wrong, &[0.25, 0.0, 0.5, 0.5]);
        close(&c.rows.iter().map(|r| r.sum).collect::<Vec<_>>(), &[0.25, 1.0]);
        assert!(c.difference().starts_with("1 of 2 rows no longer sum to 1, the least to 0.250"));
    }

    #[test]
    fn multiplied_before_the_softmax_a_masked_key_keeps_weight() {
        let c = Compared::new(Mistake::MultiplyBefore, &scores(), &[None, FUTURE, None, None], &[true; 2]);
        // exp(0) and exp(0 · ln 3): half each.
        close(&c.wrong, &[0.5, 0.5, 0.5, 0.5]);
        close(&[c.rows[0].leaked, c.rows[1].leaked], &[0.5, 0.0]);
        assert!(c.difference().contains("0.500 of the weight of query 0"), "{}", c.difference());
    }

    #[test]
    fn what_is_left_open_takes_weight() {
        let c = Compared::new(Mistake::NoCausal, &scores(), &[None, FUTURE, None, None], &[true; 2]);
        close(&c.wrong, &[0.25, 0.75, 0.5, 0.5]);
        assert!((c.rows[0].leaked - 0.75).abs() < 1e-12);
        let padding = Some(MaskReason::Padding);
        let c = Compared::new(Mistake::NoPadding, &scores(), &[None, padding, None, padding], &[true; 2]);
        close(&c.right, &[1.0, 0.0, 1.0, 0.0]);
        close(&[c.rows[0].leaked, c.rows[1].leaked], &[0.75, 0.5]);
        // The other rule still applies.
        let both = [padding, FUTURE, padding, None];
        close(&Compared::new(Mistake::NoPadding, &scores(), &both, &[true; 2]).wrong, &[1.0, 0.0, 0.5, 0.5]);
        close(&Compared::new(Mistake::NoCausal, &scores(), &both, &[true; 2]).wrong, &[0.0, 1.0, 0.0, 1.0]);
    }

    #[test]
    fn a_causal_cross_mask_hides_the_end_of_the_source() {
        let scores = [0.0; 6];
        let c = Compared::new(Mistake::CausalCross, &scores, &[None; 6], &[true; 2]);
        let third = 1.0 / 3.0;
        close(&c.wrong, &[1.0, 0.0, 0.0, 0.5, 0.5, 0.0]);
        close(&[c.rows[0].lost, c.rows[1].lost], &[2.0 * third, third]);
        assert!(
            c.difference()
                .starts_with("2 of 2 queries cannot see the end of the source; query 0 loses 0.667")
        );
    }

    #[test]
    fn a_query_with_nothing_to_see_has_no_weights() {
        let c = Compared::new(Mistake::NoPadding, &[1.0, 2.0], &[Some(MaskReason::Padding); 2], &[true]);
        close(&c.right, &[0.0, 0.0]);
        let alone = Compared::new(Mistake::NoCausal, &[1.0], &[None], &[true]);
        assert!(alone.difference().ends_with("nothing differs"), "{}", alone.difference());
        let padding =
            Compared::new(Mistake::NoPadding, &scores(), &[Some(MaskReason::Padding); 4], &[true, false]);
        assert!(padding.difference().contains("(query 0)"), "{}", padding.difference());
        assert!(c.wrong.iter().all(|w| w.is_finite()));
    }
}
