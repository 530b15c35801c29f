//! What is wrong with the file, in words: the mistake that an edit undoes.

use std::fmt::Display;

use attnscope_graph::figures::{counted, trimmed};
use attnscope_graph::{AttentionStep, Model, WeightKind, WeightRole};

use super::Repair;
use super::edit::{RowOrder, WeightEdit};
use super::lossy::Loss;
use super::sites::Sublayer;

/// The most names that are listed; the rest are counted.
const NAMED: usize = 4;

impl WeightEdit {
    /// The mistake: "decoder.1.cross_attn.k and decoder.1.cross_attn.v are exchanged".
    pub fn mistake(&self) -> String {
        match self {
            Self::SwapLayers { stack, layers: [a, b] } => {
                format!("layers {a} and {b} of the {} are exchanged", stack.name())
            }
            Self::Transpose { weights } => format!("{} {} transposed", listed(weights), is(weights)),
            Self::Exchange { pairs } => exchanged(pairs),
            Self::PermuteHeads { weights, order } => {
                let order: Vec<String> = order.iter().map(ToString::to_string).collect();
                format!(
                    "the heads of {} are not in the order of the other projections (right: {})",
                    listed(&modules(weights)),
                    order.join(", ")
                )
            }
            // The same order of q and k within a head is seen where they are rotated.
            Self::Interleave { weights, rows } if rows.is_within_head() && are_queries_and_keys(weights) => {
                let how = match rows {
                    RowOrder::PairsToHalves => "from halves to pairs, or not from pairs to halves",
                    _ => "from pairs to halves once too often",
                };
                format!("the rows of {}, which are rotated, were moved {how}", listed(&modules(weights)))
            }
            Self::Interleave { weights, rows } => {
                let how = match rows {
                    RowOrder::HalvesToPairs => "each head's even rows stand before its odd rows",
                    RowOrder::PairsToHalves => "the two halves of each head's rows are interleaved",
                    RowOrder::RowsToHeads => "the heads' rows are interleaved",
                    RowOrder::HeadsToRows => {
                        "the heads' rows stand head by head, and were interleaved in training"
                    }
                };
                format!("{how} in {}", listed(&modules(weights)))
            }
            Self::Negate { weights } => format!("{} {} the wrong sign", named(weights), has(weights)),
            Self::Scale { weights, factor } => scaled(weights, &[1.0 / factor]),
            Self::Roll { weights, rows } => {
                let by = counted(usize::try_from(rows.unsigned_abs()).unwrap_or(usize::MAX), "row");
                let way = if *rows > 0 { "up" } else { "down" };
                format!("the rows of {} are moved {way} by {by}", listed(weights))
            }
        }
    }
}

impl WeightEdit {
    /// The layer, the sublayer or the weight that a finding stands at.
    pub(crate) fn place(&self, model: &Model) -> Option<String> {
        match self {
            Self::SwapLayers { stack, layers: [first, _] } => Some(format!("{}.{first}", stack.name())),
            Self::Exchange { pairs } => match sublayers(pairs) {
                Some([first, _]) => Some(first.to_string()),
                None => pairs.first().map(|[first, _]| first.to_string()),
            },
            _ => self.weights(model).first().map(ToString::to_string),
        }
    }
}

impl Repair {
    /// The mistake that it undoes, and those that explain the pairs as well. Factors of the same weights are one mistake: "is 4
    /// to
    /// 5.657 times as large as trained".
    pub fn mistakes(&self) -> (String, Vec<String>) {
        let factor_of = |edit: &WeightEdit| match (edit, &self.edit) {
            (WeightEdit::Scale { weights, factor }, WeightEdit::Scale { weights: own, .. })
                if weights == own =>
            {
                Some(1.0 / factor)
            }
            _ => None,
        };
        let others = self.as_good.iter().filter(|edit| factor_of(edit).is_none());
        let others = others.map(WeightEdit::mistake).collect();
        let factors = [&self.edit].into_iter().chain(&self.as_good).filter_map(factor_of);
        let (least, most) =
            factors.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| (least.min(x), most.max(x)));
        let mistake = match &self.edit {
            WeightEdit::Scale { weights, .. } if least < most => scaled(weights, &[least, most]),
            edit => edit.mistake(),
        };
        (mistake, others)
    }
}

/// "encoder.0.self_attn.q is 4 times as large as trained", or "4 to 5.657 times".
fn scaled(weights: &[WeightRole], times: &[f64]) -> String {
    let times: Vec<String> = times.iter().copied().map(number).collect();
    format!("{} {} {} times as large as trained", named(weights), is(&modules(weights)), times.join(" to "))
}

impl Loss {
    /// What is lost.
    pub fn mistake(&self) -> String {
        match self {
            Self::DroppedBias { siblings, .. } => {
                let others = if *siblings == 1 {
                    "1 other layer".to_owned()
                } else {
                    format!("{siblings} other layers")
                };
                format!("every value is 0, and not so in {others}: it was dropped")
            }
            Self::ZeroBiases { modules, weights } => format!(
                "every bias of {} is 0, in all layers ({}), but the gains of the norms are trained: either the model was trained without these biases, or they were lost when the file was made",
                listed(modules),
                counted(weights.len(), "tensor"),
            ),
            Self::CopiedLayer { stack, layers: [a, b] } => {
                format!("layer {b} of the {} holds the values of layer {a}, to the last bit", stack.name())
            }
            Self::MissingLayer { stack, found, declared, source } => {
                format!("{source} says {declared} {} layers, and the file has {found}", stack.name())
            }
        }
    }
}

/// A number with few digits: 4, 5.66, 0.25.
pub(crate) fn number(x: f64) -> String {
    trimmed(x, if x.abs() >= 100.0 { 0 } else { 3 })
}

/// Modules whose matrix is among some weights, each once.
fn modules(weights: &[WeightRole]) -> Vec<String> {
    let mut owners: Vec<_> = weights.iter().map(|weight| weight.owner).collect();
    owners.dedup();
    owners.iter().map(ToString::to_string).collect()
}

/// The module's name where its bias is included, else the weight's.
fn named(weights: &[WeightRole]) -> String {
    let with_bias = weights.iter().any(|weight| weight.kind == WeightKind::Bias);
    if with_bias { listed(&modules(weights)) } else { listed(weights) }
}

/// The sublayers that an exchange is of, where all of its pairs are of two of them: `decoder.0.cross_attn` and
/// `decoder.1.cross_attn`.
fn sublayers(pairs: &[[WeightRole; 2]]) -> Option<[Sublayer; 2]> {
    let of = |pair: &[WeightRole; 2]| pair.map(|weight| Sublayer::of(weight.owner));
    let [Some(a), Some(b)] = of(pairs.first()?) else { return None };
    let all = pairs.len() > 1 && pairs.iter().all(|pair| of(pair) == [Some(a), Some(b)]);
    (all && a.is_of_another_layer(b)).then_some([a, b])
}

fn exchanged(pairs: &[[WeightRole; 2]]) -> String {
    if let Some([a, b]) = sublayers(pairs) {
        let norms = match pairs.iter().any(|[weight, _]| weight.owner.is_norm()) {
            true => "",
            false => ", but for their norms",
        };
        return format!("{a} and {b} are exchanged{norms}");
    }
    let with_bias = pairs.iter().any(|[a, _]| a.kind == WeightKind::Bias);
    let side = |i: usize| -> Vec<String> {
        let weights: Vec<WeightRole> = pairs.iter().map(|pair| pair[i]).collect();
        if with_bias { modules(&weights) } else { weights.iter().map(ToString::to_string).collect() }
    };
    let both: Vec<String> = side(0).iter().zip(side(1)).map(|(a, b)| format!("{a} and {b}")).collect();
    format!("{} are exchanged", listed(&both))
}

fn are_queries_and_keys(weights: &[WeightRole]) -> bool {
    let step = |weight: &WeightRole| weight.owner.attention().map(|(_, step)| step);
    let has = |wanted: AttentionStep| weights.iter().any(|weight| step(weight) == Some(wanted));
    let is_other = |weight: &WeightRole| !matches!(step(weight), Some(AttentionStep::Q | AttentionStep::K));
    has(AttentionStep::Q) && has(AttentionStep::K) && !weights.iter().any(is_other)
}

fn listed(names: &[impl Display]) -> String {
    let shown = if names.len() <= NAMED { names } else { &names[..NAMED - 1] };
    let list = shown.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match names.len() - shown.len() {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

fn is<T>(names: &[T]) -> &'static str {
    if names.len() == 1 { "is" } else { "are" }
}

fn has(weights: &[WeightRole]) -> &'static str {
    if modules(weights).len() == 1 { "has" } else { "have" }
}

#[cfg(test)]
mod tests {
    use attnscope_graph::{AttentionKind, AttentionPlace, EntryStep, Role, Side, Stack};

    use super::*;
    use crate::corpus::CorpusKind;
    use crate::misconversion::BesideWiring;
    use crate::score::Scores;

    fn cross(layer: usize, step: AttentionStep) -> Role {
        AttentionPlace { stack: Stack::Decoder, layer, kind: AttentionKind::CrossAttention }.step(step)
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        use AttentionStep::{K, Norm, Out, Q, V};
        let (k, v) = (cross(1, K), cross(1, V));
        let exchange = WeightEdit::Exchange { pairs: vec![[k.weight(), v.weight()], [k.bias(), v.bias()]] };
        assert_eq!(exchange.mistake(), "decoder.1.cross_attn.k and decoder.1.cross_attn.v are exchanged");
        let swap = WeightEdit::SwapLayers { stack: Stack::Encoder, layers: [0, 1] };
        assert_eq!(swap.mistake(), "layers 0 and 1 of the encoder are exchanged");
        let scale = WeightEdit::Scale { weights: vec![cross(0, Q).weight()], factor: 0.25 };
        assert_eq!(scale.mistake(), "decoder.0.cross_attn.q.weight is 4 times as large as trained");
        let moved = |weight: WeightRole| [weight, weight.in_layer(3)];
        let (q, out) = (cross(1, Q), cross(1, Out));
        let mut pairs = vec![moved(q.weight()), moved(q.bias()), moved(out.weight())];
        let exchange = WeightEdit::Exchange { pairs: pairs.clone() };
        let sublayers = "decoder.1.cross_attn and decoder.3.cross_attn are exchanged";
        assert_eq!(exchange.mistake(), format!("{sublayers}, but for their norms"));
        pairs.push(moved(cross(1, Norm).weight()));
        assert_eq!(WeightEdit::Exchange { pairs }.mistake(), sublayers);
        let table = Role::Entry(Side::Source, EntryStep::Embed).weight();
        let roll = WeightEdit::Roll { weights: vec![table], rows: -1 };
        assert_eq!(roll.mistake(), "the rows of src.embed.weight are moved down by 1 row");
    }

    /// The set says what the pairs do not tell apart; factors of the same weights are one mistake.
    #[test]
    fn factors_that_do_as_well_are_a_range() {
        use AttentionStep::{K, Q};
        let scale = |step, factor| WeightEdit::Scale { weights: vec![cross(0, step).weight()], factor };
        let repair = |as_good: Vec<WeightEdit>| Repair {
            edit: scale(Q, 0.25),
            as_good,
            nll_declared: 2.0,
            nll_best: 1.0,
            gain: 1.0,
            p: 0.001,
            kind: CorpusKind::Pairs,
            pairs: 20,
            unseen: 12,
            beside_wiring: BesideWiring::Better,
            scores: Scores::none(0),
            unseen_pairs: Vec::new(),
        };
        let at = "decoder.0.cross_attn";
        let (mistake, others) = repair(vec![scale(Q, 0.2), scale(K, 0.25), scale(Q, 0.4)]).mistakes();
        assert_eq!(mistake, format!("{at}.q.weight is 2.5 to 5 times as large as trained"));
        assert_eq!(others, [format!("{at}.k.weight is 4 times as large as trained")]);
        assert_eq!(repair(Vec::new()).mistakes().0, format!("{at}.q.weight is 4 times as large as trained"));
    }

    #[test]
    fn long_lists_are_counted() {
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c and 3 more");
        assert_eq!(listed(&["a", "b", "c", "d"]), "a, b, c, d");
        assert_eq!(number(5.656_854), "5.657");
        assert_eq!(number(16.0), "16");
    }
}
