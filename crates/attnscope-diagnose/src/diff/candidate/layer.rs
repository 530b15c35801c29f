//! Usual mistakes of everything that is not attention: norms, activations, positions, constants, residual sums.

use std::borrow::Cow;

use attnscope_graph::{Activation, Dim, Factor, LayerStep, Node, NodeId, NormGain, NormKind, Op, Positions};

use super::{CLOSER_IN_HALF, Candidate, SHORTER, Shorten, Steps, with_inputs, with_op, with_weights};
use crate::diff::lab::{Edit, Extent, Test, Trial};
use crate::diff::relation::Relation;

/// Epsilons in use.
pub(in crate::diff) const EPSILONS: [f64; 7] = [1e-5, 1e-6, 1e-12, 1e-8, 1e-7, 1e-3, 0.0];

impl<'a> Steps<'_, 'a> {
    pub(super) fn norms(
        &self,
        step: usize,
        kind: NormKind,
        expected: f64,
        gain: NormGain,
    ) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let mut found: Vec<Candidate<'a>> = EPSILONS
            .into_iter()
            .filter(|eps| *eps != expected)
            .map(|eps| {
                let relation = Relation::OtherEps { eps, expected, fits: vec![eps] };
                Candidate::new(relation, vec![with_op(node, step, Op::Norm { kind, eps, gain })])
            })
            .collect();
        let other = if kind == NormKind::Layer { NormKind::Rms } else { NormKind::Layer };
        let edit = with_op(node, step, Op::Norm { kind: other, eps: expected, gain });
        found.push(Candidate::new(Relation::OtherNorm { kind: other }, vec![edit]));
        if kind == NormKind::Layer {
            let spreads = [
                (true, false, Relation::UnbiasedStd { eps_outside: false }),
                (true, true, Relation::UnbiasedStd { eps_outside: true }),
                (false, true, Relation::EpsOutsideRoot),
            ];
            for (unbiased, eps_outside, relation) in spreads {
                let edit = self.other_std(step, unbiased, eps_outside, expected);
                found.push(Candidate::new(relation, vec![edit]));
            }
        }
        found.extend(self.missing_bias(step));
        found
    }

    /// A spread that is divided by n − 1, or to which eps is added after the root.
    fn other_std(&self, step: usize, unbiased: bool, eps_outside: bool, eps: f64) -> Edit<'a> {
        let node = self.node(step).clone();
        let input = node.inputs.first().copied();
        let own = self.judge.weights_of(&node).unwrap_or_default();
        let bias: Vec<f64> =
            own.get(1).map(|b| b.iter().map(|&b| f64::from(b)).collect()).unwrap_or_default();
        Edit {
            step,
            make: Box::new(move |trial, extent| {
                let (Some(normed), Some(x)) = (
                    trial.computed(&node, None, extent)?,
                    input.map(|id| trial.value(id.index(), extent)).transpose()?.flatten(),
                ) else {
                    return Ok(None);
                };
                let width = x.kept.shape.last().copied().unwrap_or(1).max(1);
                let factors: Vec<f64> = x
                    .kept
                    .values
                    .chunks(width)
                    .map(|row| {
                        let n = row.len() as f64;
                        let mean = row.iter().sum::<f64>() / n;
                        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
                        let of = if unbiased { variance * n / (n - 1.0) } else { variance };
                        let spread = if eps_outside { of.sqrt() + eps } else { (of + eps).sqrt() };
                        (variance + eps).sqrt() / spread
                    })
                    .collect();
                Ok(Some(normed.map(|i, y, e| {
                    let (factor, bias) = (factors[i / width], bias.get(i % width).copied().unwrap_or(0.0));
                    ((y - bias) * factor + bias, e * factor.max(1.0))
                })))
            }),
        }
    }

    pub(super) fn activations(&self, step: usize, expected: Activation) -> Vec<Candidate<'a>> {
        let others = Activation::ALL.into_iter().filter(|other| *other != expected);
        others
            .map(|activation| {
                let edit = with_op(self.node(step), step, Op::Activate(activation));
                Candidate::new(Relation::OtherActivation { activation, expected }, vec![edit])
            })
            .collect()
    }

    pub(super) fn positions(&self, step: usize) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let Op::Positions { kind, offset: expected, count, side } = node.op else { return Vec::new() };
        let near = [-1, 1, -2, 2].into_iter().filter_map(|by| expected.checked_add_signed(by));
        let mut found: Vec<Candidate<'a>> = near
            .map(|offset| {
                let by = offset as i64 - expected as i64;
                let edit = with_op(node, step, Op::Positions { kind, offset, count, side });
                Candidate::new(Relation::OffByOnePosition { by, offset: Some(offset) }, vec![edit])
            })
            .collect();
        let kinds = [Positions::SinusoidHalves, Positions::SinusoidInterleaved, Positions::SinusoidFairseq];
        for other in kinds.into_iter().filter(|other| *other != kind) {
            let op = Op::Positions { kind: other, offset: expected, count, side };
            let edited = Node { op, weights: vec![], ..node.clone() };
            let edit = Edit {
                step,
                make: Box::new(move |trial, extent| trial.computed(&edited, Some(&[]), extent)),
            };
            found.push(Candidate::new(Relation::OtherPositions { kind: other }, vec![edit]));
        }
        found
    }

    /// Another constant in front.
    pub(super) fn factors(&self, step: usize, own: Factor, op: &dyn Fn(Factor) -> Op) -> Vec<Candidate<'a>> {
        let sizes = self.judge.formula.sizes();
        let words = [
            (Factor::One, "no scale"),
            (Factor::Rsqrt(Dim::Head(self.stack(step))), "1/√d_head"),
            (Factor::Rsqrt(Dim::Model), "1/√d_model"),
            (Factor::Sqrt(Dim::Model), "√d_model"),
        ];
        let others = words.into_iter().filter(|(factor, _)| factor.value(sizes) != own.value(sizes));
        others
            .filter_map(|(factor, word)| {
                let ratio = factor.value(sizes)? / own.value(sizes)?;
                let known = Some(format!("{word} in place of {}", own.text(sizes, true)));
                let edit = with_op(self.node(step), step, op(factor));
                Some(Candidate::new(Relation::Scale { factor: ratio, known }, vec![edit]))
            })
            .collect()
    }

    /// A lookup that was dumped without its factor, which later steps do not apply either.
    pub(in crate::diff) fn not_scaled(&self) -> Vec<Candidate<'a>> {
        let sizes = self.judge.formula.sizes();
        let candidate = |&(step, scale): &(usize, f64)| {
            let Op::Embed { scale: own } = self.node(step).op else { return None };
            let known = Some(format!("no scale in place of {}", own.text(sizes, true)));
            let make = move |trial: &Trial<'_, '_, '_>, extent: Extent| {
                let scaled = trial.lab.unedited(step, extent)?;
                Ok(scaled.map(|made| made.map(|_, x, e| (x / scale, e / scale))))
            };
            let edit = Edit { step, make: Box::new(make) };
            Some(Candidate::new(Relation::Scale { factor: 1.0 / scale, known }, vec![edit]))
        };
        self.rescaled.iter().filter_map(candidate).collect()
    }

    pub(super) fn missing_bias(&self, step: usize) -> Option<Candidate<'a>> {
        let (weight, own) = (self.weight_path(step, 1)?, self.judge.weights_of(self.node(step))?);
        let (matrix, length) = (*own.first()?, own.get(1)?.len());
        // Zeros add nothing.
        let without = move || vec![Cow::Borrowed(matrix), Cow::Owned(vec![0.0; length])];
        let edit = with_weights(self.node(step), step, without);
        Some(Candidate::new(Relation::MissingBias { weight }, vec![edit]))
    }

    pub(super) fn residuals(&self, step: usize, expected: f32) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let mut found: Vec<Candidate<'a>> = [2.0, 0.0, 0.5, 1.0]
            .into_iter()
            .filter(|gain| *gain != expected)
            .map(|gain| {
                let edit = with_op(node, step, Op::Residual { gain });
                Candidate::new(Relation::OtherResidualGain { gain }, vec![edit])
            })
            .collect();
        for scale in [2.0, 0.0] {
            let (node, stream) = (node.clone(), node.inputs.first().copied());
            let make = move |trial: &Trial<'_, '_, '_>, extent: Extent| {
                let stream = stream.map(|id| trial.value(id.index(), extent)).transpose()?.flatten();
                let (Some(sum), Some(stream)) = (trial.computed(&node, None, extent)?, stream) else {
                    return Ok(None);
                };
                let more = |i: usize| (scale - 1.0) * stream.kept.values[i];
                let own =
                    |i: usize| stream.error.at(i) + f64::from(f32::EPSILON) * stream.kept.values[i].abs();
                Ok(Some(sum.map(|i, x, e| (x + more(i), e + own(i)))))
            };
            let edit = Edit { step, make: Box::new(make) };
            found.push(Candidate::new(Relation::ResidualScale { scale }, vec![edit]));
        }
        found
    }

    /// A step that returns its input.
    pub(super) fn not_applied(&self, step: usize) -> Option<Candidate<'a>> {
        let node = self.node(step);
        let first = *node.inputs.first()?;
        // A sum without an addend is another relation.
        if self.graph().node(first).dims != node.dims
            || matches!(node.op, Op::Same | Op::Residual { .. } | Op::AddMask { .. })
        {
            return None;
        }
        let edit = Edit { step, make: Box::new(move |trial, extent| trial.value(first.index(), extent)) };
        Some(Candidate::new(Relation::NotApplied, vec![edit]))
    }

    /// The node computed from another tensor: the one before a norm, or the stream.
    pub(in crate::diff) fn other_inputs(&self) -> Vec<Candidate<'a>> {
        let target = self.target();
        let node = self.node(target);
        if !matches!(
            node.op,
            Op::Linear | Op::Logits { .. } | Op::Residual { .. } | Op::Norm { .. } | Op::Same
        ) {
            return Vec::new();
        }
        let Some(&first) = node.inputs.first() else { return Vec::new() };
        let candidate = |other: NodeId| {
            let mut inputs = node.inputs.clone();
            inputs[0] = other;
            let path = self.graph().node(other).path.as_str().to_owned();
            let relation = match node.op {
                Op::Residual { .. } => Relation::OtherResidual { node: path },
                _ => Relation::OtherInput { node: path },
            };
            Candidate::new(relation, vec![with_inputs(node, target, inputs)])
        };
        self.nearby(first).into_iter().map(candidate).collect()
    }

    /// Nodes of the same shape next to the one that should have been read.
    fn nearby(&self, input: NodeId) -> Vec<NodeId> {
        let graph = self.graph();
        let dims = &graph.node(input).dims;
        let mut near: Vec<NodeId> = Vec::new();
        let mut last = input;
        // Back along the stream.
        for _ in 0..3 {
            let Some(&before) = graph.node(last).inputs.first() else { break };
            near.push(before);
            last = before;
        }
        near.extend(graph.iter().filter(|(_, n)| n.inputs.contains(&input)).map(|(id, _)| id));
        // The output of another layer, such as an encoder output that is taken too early.
        let is_out = |node: &Node| node.role.layer_step() == Some(LayerStep::Out);
        near.extend(graph.iter().filter(|(_, n)| is_out(n)).map(|(id, _)| id));
        near.retain(|&id| id != input && id.index() < self.target() && graph.node(id).dims == *dims);
        near.dedup();
        near
    }
}

impl<'a> Steps<'_, 'a> {
    /// A single projection in a shorter type: its input and its output are rounded.
    pub(super) fn short_projection(&self, step: usize) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let (Op::Linear, Some(&input)) = (node.op, node.inputs.first()) else { return Vec::new() };
        let candidate = |(to, round): (&'static str, Shorten)| {
            let node = node.clone();
            let part = node.path.as_str().to_owned();
            let make = move |trial: &Trial<'_, '_, '_>, extent: Extent| {
                let Some(x) = trial.value(input.index(), extent)? else { return Ok(None) };
                let x = x.map(|_, x, e| (round(x), e));
                let made = trial.lab.evaluate(&node, &[x], None, extent);
                Ok(made.map(|made| made.map(|_, x, e| (round(x), e))))
            };
            let edits = vec![Edit { step, make: Box::new(make) }];
            let candidate = Candidate::new(Relation::LowerPrecision { to, part }, edits);
            Candidate { test: Test::Closer(CLOSER_IN_HALF), ..candidate }
        };
        SHORTER.into_iter().map(candidate).collect()
    }
}

/// The probability of dropout that explains a tensor: some cells are 0, the others are larger by the same factor, each within
/// its bound.
pub(in crate::diff) fn dropout(expected: &[f64], found: &[f64], allowed: &[f64]) -> Option<f64> {
    // Cells that rounding alone could make 0 are no evidence.
    let telling = |i: &usize| expected[*i].is_finite() && expected[*i].abs() > 4.0 * allowed[*i];
    let cells: Vec<usize> = (0..expected.len().min(found.len())).filter(telling).collect();
    let (zero, kept): (Vec<usize>, Vec<usize>) = cells.iter().partition(|&&i| found[i].abs() <= allowed[i]);
    if zero.len() < 4 || kept.len() < 4 || cells.len() < 64 {
        return None;
    }
    let (products, squares) = kept
        .iter()
        .fold((0.0, 0.0), |(p, s), &i| (p + found[i] * expected[i], s + expected[i] * expected[i]));
    let factor = products / squares;
    let fits = |&i: &usize| (found[i] - factor * expected[i]).abs() <= (1.0 + factor.abs()) * allowed[i];
    if factor <= 1.0 || !kept.iter().all(fits) {
        return None;
    }
    // The factor is 1/(1 − p), and the number of zeros must fit p within chance.
    let (p, n) = (1.0 - 1.0 / factor, cells.len() as f64);
    let likely = 5.0 * (p * (1.0 - p) / n).sqrt() + 1.0 / n;
    ((zero.len() as f64 / n - p).abs() <= likely).then_some(p)
}

/// The bound with dropout: a cell may be larger than expected, and its rounding with it.
pub(in crate::diff) fn dropout_rounding(allowed: &[f64], found: &[f64]) -> Vec<f64> {
    allowed.iter().zip(found).map(|(a, f)| a + f64::from(f32::EPSILON) * f.abs()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_run::SplitMix;

    fn noise(seed: u64, n: usize) -> Vec<f64> {
        let mut random = SplitMix::new(seed);
        (0..n).map(|_| f64::from(random.unit())).collect()
    }

    /// Dropout by its definition: an independent draw for each cell.
    fn dropped(values: &[f64], p: f64) -> Vec<f64> {
        let coins = noise(7, values.len());
        values.iter().zip(coins).map(|(x, c)| if (c + 1.0) / 2.0 < p { 0.0 } else { x / (1.0 - p) }).collect()
    }

    #[test]
    fn dropout_is_told_by_its_zeros_and_its_factor() {
        let values = noise(1, 2000);
        let allowed = vec![1e-6; values.len()];
        for p in [0.05, 0.1, 0.3, 0.5] {
            let found = dropout(&values, &dropped(&values, p), &allowed);
            assert!(found.is_some_and(|q| (q - p).abs() < 1e-4), "{p}: {found:?}");
        }
        // Zeros without the factor, the factor without zeros, and a factor that does not fit the zeros.
        let zeros: Vec<f64> = dropped(&values, 0.1).iter().map(|x| x * 0.9).collect();
        assert_eq!(dropout(&values, &zeros, &allowed), None);
        let scaled: Vec<f64> = values.iter().map(|x| x / 0.9).collect();
        assert_eq!(dropout(&values, &scaled, &allowed), None);
        let other: Vec<f64> = dropped(&values, 0.1).iter().map(|x| x * 1.5).collect();
        assert_eq!(dropout(&values, &other, &allowed), None);
        assert_eq!(dropout(&values, &values, &allowed), None);
    }
}
