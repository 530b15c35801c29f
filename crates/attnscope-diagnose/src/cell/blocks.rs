//! Cells of a classifier's blocks: recurrent layers, pools, tensors side by side.

use attnscope_graph::{Pooling, RecurrentCell, Side};

use super::{Cell, CellError, Step, Term, TermForm, indices, products, row, value};

impl Cell<'_> {
    /// One cell of a state: its gates from the state before, which the run has stored.
    pub(super) fn recur(&self, cell: RecurrentCell, reverse: bool) -> Result<Vec<Step>, CellError> {
        let &[b, t, i] = self.at else { return Ok(Vec::new()) };
        let states = self.cells.tensor(self.id)?;
        let [_, length, _] = states.shape[..] else { return Ok(Vec::new()) };
        let before = if reverse { Some(t + 1).filter(|&t| t < length) } else { t.checked_sub(1) };
        let hidden = self.input(0)?.shape.get(2).copied().unwrap_or(1) / cell.gates();
        let carried = |i: usize| before.map_or(0.0, |t| value(states, &[b, t, i]));
        let unit = i % hidden.max(1);
        match cell {
            RecurrentCell::Rnn => {
                let mut steps = self.recurrent_gate("x + h·W", [b, t, unit], before, hidden)?;
                let sum = steps.last().map_or(f64::NAN, |step| step.value);
                steps.push(Step::plain(self.leaf(), "tanh(x + h·W)", sum.tanh()));
                Ok(steps)
            }
            RecurrentCell::Lstm => {
                let mut steps = Vec::new();
                let mut gates = [0.0; 4];
                let names = ["input gate", "forget gate", "new content", "output gate"];
                for (n, name) in names.into_iter().enumerate() {
                    steps.extend(self.recurrent_gate(
                        &format!("z of the {name}"),
                        [b, t, n * hidden + unit],
                        before,
                        hidden,
                    )?);
                    let z = steps.last().map_or(f64::NAN, |step| step.value);
                    let (formula, y) = match n {
                        2 => ("tanh(z)", z.tanh()),
                        _ => ("1 / (1 + e^−z)", 1.0 / (1.0 + (-z).exp())),
                    };
                    gates[n] = y;
                    steps.push(Step::plain(name, formula, y));
                }
                let [input, forget, new, output] = gates;
                let old = carried(hidden + unit);
                let term = |label: &str, a: f64, b: f64| Term {
                    label: label.to_owned(),
                    written: TermForm::Product(a, b),
                    value: a * b,
                };
                let terms = vec![
                    term("forget gate × c before", forget, old),
                    term("input gate × new content", input, new),
                ];
                let c = Step::sum("c", "forget gate × c before + input gate × new content", terms);
                let new_c = c.value;
                steps.push(c);
                if i < hidden {
                    steps.push(Step::plain(self.leaf(), "h = output gate × tanh(c)", output * new_c.tanh()));
                } else {
                    steps.push(Step::plain(self.leaf(), "c", new_c));
                }
                Ok(steps)
            }
        }
    }

    /// x + Σ W·h + b of one gate.
    fn recurrent_gate(
        &self,
        name: &str,
        at: [usize; 3],
        before: Option<usize>,
        hidden: usize,
    ) -> Result<Vec<Step>, CellError> {
        let [b, t, gate] = at;
        let (states, weight) = (self.cells.tensor(self.id)?, self.weight(0)?);
        let x = value(self.input(0)?, &[b, t, gate]);
        let w = weight.get(gate * hidden..(gate + 1) * hidden).unwrap_or_default();
        let bias = self.weight(1)?.get(gate).map_or(0.0, |&b| f64::from(b));
        let h = before.map(|t| row(states, &[b, t])).unwrap_or_default();
        let terms = products(h.iter().take(hidden).copied(), w.iter().map(|&w| f64::from(w)));
        let formula = match before {
            Some(t) => format!("Σᵢ h[{b}, {t}, i] × W[{gate}, i], {} products", terms.len()),
            None => "nothing was read before: h is 0".to_owned(),
        };
        let product = Step::sum("h·W", &formula, terms);
        let term = |label: String, value: f64| Term { label, written: TermForm::Itself, value };
        let sum = vec![
            term(format!("{}{}", self.input_name(0), indices(&[b, t, gate])), x),
            term("h·W".to_owned(), product.value),
            term(format!("b[{gate}]"), bias),
        ];
        let sum = Step::sum(name, "x + h·W + b", sum);
        Ok(vec![product, sum])
    }

    /// The largest value or the mean over positions.
    pub(super) fn pool(
        &self,
        pooling: Pooling,
        axis: usize,
        padding_of: Option<Side>,
    ) -> Result<Vec<Step>, CellError> {
        let &[b, f] = self.at else { return Ok(Vec::new()) };
        let x = self.input(0)?;
        let positions = x.shape.get(axis).copied().unwrap_or(0);
        let rows = padding_of.and_then(|side| self.cells.input.rows(side));
        let is_token = |p: usize| rows.is_none_or(|rows| rows.open().get(b * positions + p) == Some(&true));
        let cell = |p: usize| value(x, &if axis == 1 { [b, p, f] } else { [b, f, p] });
        let terms = (0..positions).filter(|&p| is_token(p)).map(|p| Term {
            label: format!("position {p}"),
            written: TermForm::Itself,
            value: cell(p),
        });
        let terms: Vec<Term> = terms.collect();
        let count = terms.len();
        Ok(match pooling {
            Pooling::Max => {
                let best =
                    terms.iter().reduce(|a, b| if b.value > a.value || b.value.is_nan() { b } else { a });
                let (at, value) = best.map_or((String::new(), 0.0), |term| (term.label.clone(), term.value));
                vec![Step::plain(self.leaf(), &format!("the largest of {count} positions, at {at}"), value)]
            }
            Pooling::First | Pooling::Last => {
                let one = if pooling == Pooling::First { terms.first() } else { terms.last() };
                let (at, value) = one.map_or((String::new(), 0.0), |term| (term.label.clone(), term.value));
                vec![Step::plain(self.leaf(), &at, value)]
            }
            Pooling::Mean => {
                let sum =
                    Step::sum("Σx", &format!("{count} positions that are not padding, added up"), terms);
                let mean = Step::quotient(self.leaf(), "Σx", sum.value, count.max(1) as f64);
                vec![sum, mean]
            }
        })
    }

    /// A cell of one of the tensors that stand side by side.
    pub(super) fn beside(&self) -> Result<Vec<Step>, CellError> {
        let Some((&feature, place)) = self.at.split_last() else { return Ok(Vec::new()) };
        let mut from = 0;
        for i in 0..self.node.inputs.len() {
            let x = self.input(i)?;
            let width = x.shape.last().copied().unwrap_or(0);
            if feature < from + width {
                let at: Vec<usize> = place.iter().copied().chain([feature - from]).collect();
                let path = self.cells.model.graph.node(self.node.inputs[i]).path.as_str();
                return Ok(vec![Step::plain(self.leaf(), &format!("{path}{}", indices(&at)), value(x, &at))]);
            }
            from += width;
        }
        Ok(Vec::new())
    }
}
