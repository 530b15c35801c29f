//! Projections whose size does not fit that of their partner, and the factors that could repair them. Training keeps q about as
//! large as k, v as the output projection, and the two matrices of a feed-forward layer in a fixed proportion.

use attnscope_graph::{AttentionStep, Dim, FeedForwardStep, Model, Role, Stack};
use attnscope_run::Weights;

use super::balance;
use super::edit::{WeightEdit, matrix};
use super::sites::{attentions, feed_forwards, weights_of};

/// A projection is examined if its root mean square, relative to its partner's, differs from that of other layers by more than
/// this factor. In trained models the factor was up to 1.3.
const OUT_OF_LINE: f64 = 1.6;
/// Factors are tried up to this far from the one that would make it as large as its siblings.
const REACH: f64 = 2.5;
/// A factor nearer to 1 than this is not reported: a smaller factor also reduces the harm of noise a little, and looks the
/// same.
const LEAST: f64 = 1.9;
/// Steps between them.
const STEP: f64 = std::f64::consts::SQRT_2;
/// How far a usual factor may be from the best one, as a logarithm: the pairs cannot distinguish them.
const NEAR: f64 = 0.4;

/// Whether a factor is large enough to be distinguished from noise.
pub(super) fn is_plain_to_see(factor: f64) -> bool {
    factor.abs().ln().abs() >= LEAST.ln()
}

/// A projection that may have been multiplied by a number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Suspect {
    /// `encoder.0.self_attn.q`
    pub(super) module: Role,
    /// Its size relative to its partner, divided by the usual value of the other layers.
    pub(super) ratio: f64,
}

/// Every projection of unusual size.
pub(super) fn suspects(model: &Model, weights: &Weights) -> Vec<Suspect> {
    let is_out = |suspect: &Suspect| suspect.ratio.ln().abs() > OUT_OF_LINE.ln();
    ratios(model, weights).into_iter().filter(is_out).collect()
}

/// Whether a projection is similar to its partner, as in other layers, regardless of its size.
pub(super) fn is_trained_together(model: &Model, weights: &Weights, module: Role) -> bool {
    roles(model).iter().any(|role| {
        let at = role.iter().position(|[own, _]| *own == module);
        at.is_some_and(|at| balance::is_trained_together(model, weights, role, at))
    })
}

fn ratios(model: &Model, weights: &Weights) -> Vec<Suspect> {
    let mut all = Vec::new();
    for role in roles(model) {
        let sizes: Vec<f64> = role
            .iter()
            .map(|&[module, partner]| size(model, weights, module) / size(model, weights, partner))
            .collect();
        for (i, &[module, _]) in role.iter().enumerate() {
            let others: Vec<f64> =
                sizes.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, size)| *size).collect();
            let Some(usual) = median(others) else { continue };
            let ratio = sizes[i] / usual;
            if ratio.is_finite() && ratio > 0.0 {
                all.push(Suspect { module, ratio });
            }
        }
    }
    all
}

/// Modules that do the same in different layers, each with its partner.
fn roles(model: &Model) -> Vec<Vec<[Role; 2]>> {
    let (attentions, ffns) = (attentions(&model.graph), feed_forwards(&model.graph));
    let has = |module: &Role| !weights_of(&model.graph, *module, false).is_empty();
    let with_both = |pairs: Vec<[Role; 2]>| -> Vec<[Role; 2]> {
        pairs.into_iter().filter(|modules| modules.iter().all(has)).collect()
    };
    let of_attention = {
        use AttentionStep::{K, Out, Q, V};
        [[Q, K], [K, Q], [V, Out], [Out, V]]
            .map(|pair| attentions.iter().map(|place| pair.map(|step| place.step(step))).collect())
    };
    let of_ffn = {
        use FeedForwardStep::{Gate, Hidden, Out};
        [[Hidden, Out], [Gate, Out], [Out, Hidden]]
            .map(|pair| ffns.iter().map(|site| pair.map(|step| site.step(step))).collect())
    };
    of_attention.into_iter().chain(of_ffn).map(with_both).collect()
}

/// The root mean square of a module's matrix; NaN where it has none that can be read.
fn size(model: &Model, weights: &Weights, module: Role) -> f64 {
    let Some((id, _)) = matrix(model, module.weight()) else { return f64::NAN };
    let Ok(values) = weights.get(id) else { return f64::NAN };
    (values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Repairs that bring a projection nearer to the usual size.
pub(super) fn rescaled(model: &Model, suspect: &Suspect) -> Vec<WeightEdit> {
    let middle = 1.0 / suspect.ratio;
    let mut factors = Vec::new();
    let mut factor = middle / REACH;
    while factor <= middle * REACH {
        // Only factors that bring it towards the usual size.
        if (factor < 1.0) == (suspect.ratio > 1.0) && factor.ln().abs() > OUT_OF_LINE.ln() / 2.0 {
            factors.push(factor);
        }
        factor *= STEP;
    }
    let weights = weights_of(&model.graph, suspect.module, true);
    factors.into_iter().map(|factor| WeightEdit::Scale { weights: weights.clone(), factor }).collect()
}

/// Usual factors near a number, the most likely first: powers of two, the widths and their roots, then others.
pub(super) fn plain_factors(model: &Model, near: f64) -> Vec<f64> {
    let widths = [Dim::Head(Stack::Encoder), Dim::Head(Stack::Decoder), Dim::Model];
    let widths: Vec<f64> = widths.iter().filter_map(|dim| model.sizes.get(*dim)).map(|n| n as f64).collect();
    let mut plain = vec![2.0, 4.0, 8.0, 16.0];
    plain.extend(widths.iter().map(|width| width.sqrt()));
    plain.extend(widths);
    plain.extend([10.0, 32.0, 64.0, 100.0, 1000.0, 3.0, 5.0, 6.0]);
    let both = plain.iter().flat_map(|&x| [x, 1.0 / x]);
    let mut close: Vec<f64> = Vec::new();
    for factor in both.filter(|factor| (factor / near).ln().abs() < NEAR) {
        if !close.contains(&factor) {
            close.push(factor);
        }
    }
    close
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_near_one_are_not_told_of() {
        assert!(
            is_plain_to_see(0.25) && is_plain_to_see(2.0) && !is_plain_to_see(0.6) && !is_plain_to_see(1.7)
        );
    }

    #[test]
    fn the_median_leaves_out_what_is_no_number() {
        assert_eq!(median(vec![3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![f64::NAN]), None);
    }
}
