//! Cells of an attention: scores, bias, mask, weights, context.

use attnscope_graph::{Factor, KvSharing, MaskKind, Normaliser, Rotary, Stack};
use attnscope_run::{Kept, Rotations, is_fully_masked, relative_bucket, used_buckets};

use super::{Cell, CellError, Step, Term, TermForm, indices, products, row, value, within};

impl Cell<'_> {
    /// The head of keys or values that head `h` of queries reads.
    fn shared_head(&self, h: usize, sharing: KvSharing) -> Result<usize, CellError> {
        let heads = |kept: &Kept| kept.shape.get(1).copied().unwrap_or(1);
        Ok(sharing.head(h, heads(self.input(0)?), heads(self.input(1)?)))
    }

    /// x · cos − y · sin for the first of a pair of features, y · cos + x · sin for the second
    pub(super) fn rotate(&self, rotary: Rotary) -> Result<Vec<Step>, CellError> {
        let &[b, h, l, i] = self.at else { return Ok(Vec::new()) };
        let head = row(self.input(0)?, &[b, h, l]);
        let length = self.input(0)?.shape.get(2).copied().unwrap_or(0);
        let factors = self.weight(rotary.list_of(length))?;
        let turn = Rotations { rotary, factors: &factors, size: head.len(), length }.at(l, i);
        if turn.partner == i {
            let own = head.get(i).copied().unwrap_or(f64::NAN);
            let formula = format!("{}[{b}, {h}, {l}, {i}], which is not rotated", self.input_name(0));
            return Ok(vec![Step::plain(self.leaf(), &formula, own)]);
        }
        let (cos, sin) = turn.factors();
        let times = match turn.magnitude {
            1.0 => String::new(),
            magnitude => format!(" × {magnitude}"),
        };
        let at = |i: usize| head.get(i).copied().unwrap_or(f64::NAN);
        let angle = Step::plain("angle", &format!("position {l} × frequency of the pair"), turn.angle);
        let name = self.input_name(0);
        let term = |label: String, x: f64, factor: f64| Term {
            label,
            written: TermForm::Product(x, factor),
            value: x * factor,
        };
        let terms = vec![
            term(format!("{name}[…, {i}] × cos{times}"), at(i), cos),
            term(format!("{name}[…, {}] × sin{times}", turn.partner), at(turn.partner), sin),
        ];
        let sign = if turn.sign < 0.0 { "−" } else { "+" };
        let formula = format!("{name}[{i}] × cos{times} {sign} {name}[{}] × sin{times}", turn.partner);
        Ok(vec![angle, Step::sum(self.leaf(), &formula, terms)])
    }

    /// scores[b, h, t, s] = scale · Σ over i of q[b, h, t, i] · k[b, g, s, i], g the head of keys that h reads
    pub(super) fn scores(&self, scale: Factor, sharing: KvSharing) -> Result<Vec<Step>, CellError> {
        let &[b, h, t, s] = self.at else { return Ok(Vec::new()) };
        let g = self.shared_head(h, sharing)?;
        let (q, k) = (row(self.input(0)?, &[b, h, t]), row(self.input(1)?, &[b, g, s]));
        let terms = products(q.iter().copied(), k.iter().copied());
        let formula = format!("Σᵢ q[{b}, {h}, {t}, i] × k[{b}, {g}, {s}, i], {} products", terms.len());
        let dot = Step::sum("q·k", &formula, terms);
        let factor = self.factor(scale);
        let formula = match scale {
            Factor::One => "q·k, not scaled".to_owned(),
            _ => format!("q·k × {}", scale.text(self.cells.sizes, false)),
        };
        let own = Term {
            label: "q·k".to_owned(),
            written: TermForm::Product(dot.value, factor),
            value: dot.value * factor,
        };
        let scaled = Step::sum(self.leaf(), &formula, vec![own]);
        Ok(vec![dot, scaled])
    }

    pub(super) fn relative_bias(
        &self,
        stack: Stack,
        buckets: usize,
        max_distance: usize,
    ) -> Result<Vec<Step>, CellError> {
        let &[_, h, t, s] = self.at else { return Ok(Vec::new()) };
        let heads = self.cells.tensor(self.id)?.shape[1].max(1);
        let table = self.weight(0)?;
        let bucket = relative_bucket(stack, t, s, used_buckets(buckets, table.len() / heads), max_distance);
        let distance = s as i64 - t as i64;
        let formula = format!("{}[bucket {bucket}, head {h}], of distance {distance:+}", self.weight_name(0));
        let entry = table.get(bucket * heads + h).map_or(f64::NAN, |&x| f64::from(x));
        Ok(vec![Step::plain(self.leaf(), &formula, entry)])
    }

    /// Why a cell is visible or masked.
    pub(super) fn mask(&self, kind: MaskKind) -> Result<Step, CellError> {
        let derived = self.derived()?;
        let (t, s) = (self.at.get(2).copied().unwrap_or(0), self.at.get(3).copied().unwrap_or(0));
        let reason = match (derived == 0.0, kind.causal && s > t, kind.reach) {
            (true, ..) => format!("query {t} sees key {s}"),
            (false, true, _) => format!("key {s} is after query {t}"),
            (false, false, Some(reach)) if t.abs_diff(s) > reach => {
                format!("key {s} is {} positions from query {t}; it sees {reach}", t.abs_diff(s))
            }
            (false, false, _) => format!("key {s} is padding"),
        };
        Ok(Step::plain(self.leaf(), &reason, derived))
    }

    /// scores + bias + mask, the latter two broadcast over batch or heads.
    pub(super) fn add_mask(&self) -> Result<Vec<Step>, CellError> {
        let (mut steps, _) = self.before()?;
        let mut terms = Vec::new();
        for i in 0..self.node.inputs.len() {
            let kept = self.input(i)?;
            let name = self.input_name(i);
            // The first term continues the arithmetic before it; the others are looked up.
            let x = match steps.last().filter(|_| i == 0) {
                Some(step) => step.value,
                None => value(kept, &within(self.at, &kept.shape)),
            };
            terms.push(Term { label: name.to_owned(), written: TermForm::Itself, value: x });
        }
        let formula = terms.iter().map(|t| t.label.as_str()).collect::<Vec<_>>().join(" + ");
        steps.push(Step::sum(self.leaf(), &formula, terms));
        Ok(steps)
    }

    pub(super) fn normalise(&self, normaliser: Normaliser) -> Result<Vec<Step>, CellError> {
        let &[b, h, t, s] = self.at else { return Ok(Vec::new()) };
        let (mut steps, _) = self.before()?;
        let mut scores = row(self.input(0)?, &[b, h, t]).to_vec();
        // The cell's own score continues the arithmetic before it; the scores of the other keys are those of the run.
        let x = steps.last().map_or(f64::NAN, |step| step.value);
        if let Some(own) = scores.get_mut(s) {
            *own = x;
        }
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if is_fully_masked(&scores) {
            let formula = format!("query {t} has no visible key: every weight is 0");
            steps.push(Step::plain(self.leaf(), &formula, 0.0));
            return Ok(steps);
        }
        let weight = match normaliser {
            Normaliser::Sigmoid => {
                Step::plain(self.leaf(), "1 / (1 + e^−x), x the masked score", 1.0 / (1.0 + (-x).exp()))
            }
            Normaliser::Softmax => {
                let name = self.input_name(0);
                let formula = format!("the largest of {name}[{b}, {h}, {t}, ·]");
                steps.push(Step::plain("max", &formula, most));
                let term = |(s, &x): (usize, &f64)| Term {
                    label: format!("key {s}"),
                    written: TermForm::Exp(x, most),
                    value: (x - most).exp(),
                };
                let terms = scores.iter().enumerate().map(term).collect();
                let sum = Step::sum("sum", &format!("Σ over keys of e^({name} − max)"), terms);
                let total = sum.value;
                let quotient = (x - most).exp() / total;
                steps.push(sum);
                let own = Term {
                    label: format!("key {s}"),
                    written: TermForm::Quotient((x - most).exp(), total),
                    value: quotient,
                };
                Step::sum(self.leaf(), &format!("e^({name}{} − max) / sum", indices(self.at)), vec![own])
            }
        };
        steps.push(weight);
        Ok(steps)
    }

    /// context[b, h, t, i] = Σ over s of weights[b, h, t, s] · v[b, h, s, i]
    pub(super) fn context(&self, sharing: KvSharing) -> Result<Vec<Step>, CellError> {
        let &[b, h, t, i] = self.at else { return Ok(Vec::new()) };
        let (weights, v) = (row(self.input(0)?, &[b, h, t]), self.input(1)?);
        let g = self.shared_head(h, sharing)?;
        let of_key = |s: usize| value(v, &[b, g, s, i]);
        let mut terms = products(weights.iter().copied(), (0..weights.len()).map(of_key));
        terms.iter_mut().for_each(|term| term.label = format!("key {}", term.label));
        let formula = format!("Σ over keys s of weights[{b}, {h}, {t}, s] × v[{b}, {g}, s, {i}]");
        Ok(vec![Step::sum(self.leaf(), &formula, terms)])
    }
}
