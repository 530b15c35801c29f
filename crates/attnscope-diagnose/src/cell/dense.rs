//! Cells outside of attention: lookups, maps, norms, activations.

use attnscope_graph::{Activation, Factor, NormGain, NormKind, PositionCount, Positions, Side};

use super::{Cell, CellError, Step, Term, TermForm, products, row, value};

impl Cell<'_> {
    /// E[id, i] · scale
    pub(super) fn embed(&self, scale: Factor) -> Result<Vec<Step>, CellError> {
        let &[b, t, i] = self.at else { return Ok(Vec::new()) };
        let id = value(self.input(0)?, &[b, t]);
        let width = self.cells.tensor(self.id)?.shape[2];
        let entry = self.weight(0)?.get(id as usize * width + i).map_or(f64::NAN, |&x| f64::from(x));
        let looked_up = Step::plain("E", &format!("{}[id {id}, {i}]", self.weight_name(0)), entry);
        let formula = match scale {
            Factor::One => "E, not scaled".to_owned(),
            _ => format!("E × {}", scale.text(self.cells.sizes, false)),
        };
        let scaled = Step::plain(self.leaf(), &formula, entry * self.factor(scale));
        Ok(vec![looked_up, scaled])
    }

    pub(super) fn positions(
        &self,
        kind: Positions,
        offset: usize,
        count: PositionCount,
        side: Side,
    ) -> Result<Vec<Step>, CellError> {
        let &[b, p, i] = self.at else { return Ok(Vec::new()) };
        let width = self.cells.tensor(self.id)?.shape[2];
        let place = match count {
            PositionCount::Places => p.to_string(),
            PositionCount::Tokens => self.token_number(side, offset, b, p),
        };
        let place = if offset > 0 { format!("{place} + {offset}") } else { place };
        let formula = match kind {
            Positions::Table => format!("{}[{place}, {i}]", self.weight_name(0)),
            _ => format!("sinusoid of position {place}, feature {i} of {width}"),
        };
        Ok(vec![Step::plain(self.leaf(), &formula, self.derived()?)])
    }

    /// The index of a token in its row, without padding.
    fn token_number(&self, side: Side, offset: usize, b: usize, p: usize) -> String {
        let Some(rows) = self.cells.input.rows(side) else { return p.to_string() };
        let number = rows.token_numbers(b, offset).get(p).copied().flatten();
        number.map_or_else(|| "padding".to_owned(), |number| number.to_string())
    }

    /// out[b, o, t] = bias[o] + Σ over c, k of w[o, c, k] · x[b, c, t · stride + k − padding]
    pub(super) fn conv(&self, kernel: usize, stride: usize, padding: usize) -> Result<Vec<Step>, CellError> {
        let &[b, o, t] = self.at else { return Ok(Vec::new()) };
        let x = self.input(0)?;
        let [_, channels, frames] = x.shape[..] else { return Ok(Vec::new()) };
        let kernels = self.weight(0)?;
        let place = if self.cells.model.graph.reads_audio() { "frame" } else { "position" };
        let mut terms = Vec::new();
        for c in 0..channels {
            for k in 0..kernel {
                // Zeros beyond the ends.
                let Some(frame) = (t * stride + k).checked_sub(padding).filter(|&f| f < frames) else {
                    continue;
                };
                let w = kernels.get((o * channels + c) * kernel + k).map_or(f64::NAN, |&w| f64::from(w));
                let x = value(x, &[b, c, frame]);
                let label = format!("channel {c}, {place} {frame}");
                terms.push(Term { label, written: TermForm::Product(w, x), value: w * x });
            }
        }
        let formula = match padding {
            1 => format!("Σ over {channels} channels and 3 {place}s around {} of w × x", t * stride),
            _ => format!(
                "Σ over {channels} channels and {kernel} {place}s from {} on of w × x",
                (t * stride).saturating_sub(padding)
            ),
        };
        let steps = vec![Step::sum("w·x", &formula, terms)];
        self.with_bias(steps, o)
    }

    /// x · scale · Wᵀ + b
    pub(super) fn linear(&self, scale: Factor) -> Result<Vec<Step>, CellError> {
        let Some((&o, place)) = self.at.split_last() else { return Ok(Vec::new()) };
        let x = row(self.input(0)?, place);
        let weight = self.weight(0)?;
        let w = weight.get(o * x.len()..(o + 1) * x.len()).unwrap_or_default();
        let terms = products(x.iter().copied(), w.iter().map(|&w| f64::from(w)));
        let place: String = place.iter().map(|i| format!("{i}, ")).collect();
        let formula = format!("Σᵢ x[{place}i] × W[{o}, i], {} products", terms.len());
        let mut steps = vec![Step::sum("x·W", &formula, terms)];
        let factor = self.factor(scale);
        if scale != Factor::One {
            let scaled = steps[0].value * factor;
            steps.push(Step::plain(
                "scaled",
                &format!("x·W × {}", scale.text(self.cells.sizes, false)),
                scaled,
            ));
        }
        self.with_bias(steps, o)
    }

    /// The last step, plus the bias where there is one.
    fn with_bias(&self, mut steps: Vec<Step>, output: usize) -> Result<Vec<Step>, CellError> {
        let Some(before) = steps.last() else { return Ok(steps) };
        let (name, value) = (before.name.clone(), before.value);
        let term =
            |label: &str, value: f64| Term { label: label.to_owned(), written: TermForm::Itself, value };
        let last = match self.weight(1)?.get(output) {
            Some(&bias) => {
                let terms = vec![term(&name, value), term(&format!("b[{output}]"), f64::from(bias))];
                Step::sum(self.leaf(), &format!("{name} + b[{output}]"), terms)
            }
            None => Step::plain(self.leaf(), &format!("{name}, no bias"), value),
        };
        steps.push(last);
        Ok(steps)
    }

    /// (x − mean) / √(var + eps) · g + b, or x / √(mean x² + eps) · g
    pub(super) fn norm(&self, kind: NormKind, eps: f64, gain: NormGain) -> Result<Vec<Step>, CellError> {
        let &[b, t, feature] = self.at else { return Ok(Vec::new()) };
        // The group of features that are normed together: all, or those of a head.
        let weights = self.weight(0)?;
        let (group, i) = (feature / weights.len().max(1), feature % weights.len().max(1));
        let whole = row(self.input(0)?, &[b, t]);
        let x = whole.get(group * weights.len()..(group + 1) * weights.len()).unwrap_or_default();
        let n = x.len() as f64;
        let own = x.get(i).copied().unwrap_or(f64::NAN);
        let x_itself = Step::plain("x", &format!("{}[{b}, {t}, {feature}]", self.input_name(0)), own);
        let mut steps = vec![x_itself];
        let mean = match kind {
            NormKind::Layer => {
                let term = |(i, &v): (usize, &f64)| Term {
                    label: i.to_string(),
                    written: TermForm::Itself,
                    value: v,
                };
                let terms = x.iter().enumerate().map(term).collect();
                let sum = Step::sum(
                    "Σx",
                    &format!(
                        "the {n} features of this {}, added up",
                        if x.len() == whole.len() { "position" } else { "head" }
                    ),
                    terms,
                );
                let mean = Step::quotient("mean", "Σx", sum.value, n);
                let value = mean.value;
                steps.extend([sum, mean]);
                value
            }
            NormKind::Rms => 0.0,
        };
        let (squares, name, normed) = match kind {
            NormKind::Layer => ("Σ(x − mean)²", "var", "(x − mean) / √(var + eps)"),
            NormKind::Rms => ("Σx²", "mean x²", "x / √(mean x² + eps)"),
        };
        let terms = products(x.iter().map(|v| v - mean), x.iter().map(|v| v - mean));
        let sum = Step::sum(squares, &format!("{n} squares, added up"), terms);
        let spread = Step::quotient(name, squares, sum.value, n);
        let unit = (own - mean) / (spread.value + eps).sqrt();
        let normed = Step::plain("normed", &format!("{normed}, eps {eps:e}"), unit);
        steps.extend([sum, spread, normed]);
        let factor = f64::from(gain.offset()) + weights.get(i).map_or(1.0, |&g| f64::from(g));
        let label = match gain {
            NormGain::Weight => format!("normed × g[{i}]"),
            NormGain::OnePlusWeight => format!("normed × (1 + g[{i}])"),
        };
        let scaled =
            Term { label: label.clone(), written: TermForm::Product(unit, factor), value: unit * factor };
        steps.push(Step::sum("scaled", &label, vec![scaled]));
        self.with_bias(steps, i)
    }

    pub(super) fn activate(&self, activation: Activation) -> Result<Vec<Step>, CellError> {
        let x = value(self.input(0)?, self.at);
        let input = Step::plain("x", &format!("{} at the same place", self.input_name(0)), x);
        let y = attnscope_run::activate(activation, x);
        Ok(vec![
            input,
            Step::plain(self.leaf(), &format!("{} = {}", activation.name(), activation.formula()), y),
        ])
    }

    /// cap · tanh(x / cap), from the arithmetic of x.
    pub(super) fn soft_cap(&self, cap: f64) -> Result<Vec<Step>, CellError> {
        let (mut steps, _) = self.before()?;
        let x = steps.last().map_or(f64::NAN, |step| step.value);
        let name = self.input_name(0);
        steps.push(Step::plain(
            self.leaf(),
            &format!("{cap} × tanh({name} / {cap})"),
            cap * (x / cap).tanh(),
        ));
        Ok(steps)
    }

    pub(super) fn gate(&self) -> Result<Vec<Step>, CellError> {
        let (a, b) = (value(self.input(0)?, self.at), value(self.input(1)?, self.at));
        let label = format!("{} × {}", self.input_name(0), self.input_name(1));
        let term = Term { label: label.clone(), written: TermForm::Product(a, b), value: a * b };
        Ok(vec![Step::sum(self.leaf(), &label, vec![term])])
    }
}
