//! Whether an example's matrices fit together, and whether what it claims can be worked out.

use attnscope_checkpoint::Remedy;

use std::collections::{BTreeMap, BTreeSet};

use super::error::ExampleError;
use super::example::{Example, Mask, Operand, Scale, Stated, Step};
use super::parse::MOST_CELLS;

type Result<T> = std::result::Result<T, ExampleError>;
type Shape = [usize; 2];

/// A matrix with a name, for the sentence about its shape.
struct Named<'a> {
    name: &'a str,
    shape: Shape,
    line: Option<usize>,
}

impl Named<'_> {
    fn text(&self) -> String {
        format!("{} is {}×{}", self.name, self.shape[0], self.shape[1])
    }
}

/// Refuses what cannot be multiplied, masked, split into heads or judged.
pub(super) fn check(example: &Example) -> Result<()> {
    let mut check = Check { example, shapes: BTreeMap::new(), used: BTreeSet::new() };
    for step in Step::ALL {
        let given = check.given(step)?;
        let computed = match given {
            Some(_) => None,
            None => check.step(step)?,
        };
        if let Some(shape) = given.or(computed) {
            check.size(step, shape)?;
            check.shapes.insert(step, shape);
        }
    }
    check.heads()?;
    check.unused()?;
    check.claims()
}

struct Check<'a> {
    example: &'a Example,
    /// The shapes of the steps; for those with heads, of one head.
    shapes: BTreeMap<Step, Shape>,
    used: BTreeSet<Operand>,
}

impl<'a> Check<'a> {
    fn stated(&self, step: Step) -> Option<&'a Stated> {
        self.example.given.iter().find(|given| given.part.step == step).map(|given| &given.stated)
    }

    fn named_step(&self, step: Step) -> Option<Named<'a>> {
        let line = self.stated(step).map(|stated| stated.line);
        self.shapes.get(&step).map(|&shape| Named { name: step.name(), shape, line })
    }

    /// Takes an input or a weight; it counts as used.
    fn take(&mut self, operand: Operand) -> Option<Named<'a>> {
        let stated = self.example.operands.get(&operand)?;
        self.used.insert(operand);
        Some(Named { name: operand.name(), shape: stated.matrix.shape(), line: Some(stated.line) })
    }

    /// The shape of a step that is given: every head of it, all alike.
    fn given(&self, step: Step) -> Result<Option<Shape>> {
        let heads = self.example.heads;
        let parts: Vec<_> = self.example.given.iter().filter(|given| given.part.step == step).collect();
        let Some(first) = parts.first() else { return Ok(None) };
        let shape = first.stated.matrix.shape();
        let by_head = first.part.head.is_some();
        if by_head && parts.len() < heads {
            let missing =
                (0..heads).find(|&h| parts.iter().all(|part| part.part.head != Some(h))).unwrap_or(0);
            let what = format!("head {missing} is missing; heads = {heads}");
            let place = format!("given.{}", step.name());
            return Err(ExampleError::new(
                Some(first.stated.line),
                &place,
                what,
                "give every head its matrix",
            ));
        }
        for part in &parts {
            if part.stated.matrix.shape() != shape {
                let [rows, columns] = part.stated.matrix.shape();
                let what = format!("{rows}×{columns}, and {} is {}×{}", first.part, shape[0], shape[1]);
                let place = format!("given.{}", part.part);
                return Err(ExampleError::new(Some(part.stated.line), &place, what, "heads have one shape"));
            }
        }
        let whole = if by_head && !step.per_head() { [shape[0], shape[1] * heads] } else { shape };
        Ok(Some(whole))
    }

    /// The shape of a step that is computed, as far as its inputs are there.
    fn step(&mut self, step: Step) -> Result<Option<Shape>> {
        match step {
            Step::Q => self.projection(self.example.query_source(), Operand::WQ, Operand::BQ),
            Step::K => self.projection(Operand::X, Operand::WK, Operand::BK),
            Step::V => self.projection(Operand::X, Operand::WV, Operand::BV),
            Step::Products => self.products(),
            Step::Scores => self.scores(),
            Step::MaskedScores => self.masked_scores(),
            Step::Weights => Ok(self.shapes.get(&Step::MaskedScores).copied()),
            Step::Context => self.context(),
            Step::Output => {
                let Some(context) = self.named_step(Step::Context) else { return Ok(None) };
                let Some(weight) = self.take(Operand::WO) else { return Ok(None) };
                let shape = meet(&context, &weight)?;
                self.bias(Operand::BO, shape).map(Some)
            }
        }
    }

    fn projection(&mut self, source: Operand, weight: Operand, bias: Operand) -> Result<Option<Shape>> {
        let unprojected = self.example.unprojected();
        if !unprojected && !self.example.operands.contains_key(&weight) {
            return Ok(None);
        }
        let Some(source) = self.take(source) else { return Ok(None) };
        if unprojected {
            return Ok(Some(source.shape));
        }
        let Some(weight) = self.take(weight) else { return Ok(None) };
        let shape = meet(&source, &weight)?;
        self.bias(bias, shape).map(Some)
    }

    fn bias(&mut self, bias: Operand, shape: Shape) -> Result<Shape> {
        match self.take(bias) {
            Some(bias) if bias.shape != [1, shape[1]] => {
                let what =
                    format!("{}, and the product it is added to is {}×{}", bias.text(), shape[0], shape[1]);
                let place = format!("given.{}", bias.name);
                Err(ExampleError::new(bias.line, &place, what, "a bias is one row, as wide as the product"))
            }
            _ => Ok(shape),
        }
    }

    fn products(&self) -> Result<Option<Shape>> {
        let (Some(q), Some(k)) = (self.named_step(Step::Q), self.named_step(Step::K)) else {
            return Ok(None);
        };
        if q.shape[1] == k.shape[1] {
            return Ok(Some([q.shape[0], k.shape[0]]));
        }
        let what = format!("{} and {}: Q·Kᵀ needs as many columns in both", q.text(), k.text());
        Err(ExampleError::new(k.line.or(q.line), "given", what, "check W_Q and W_K, or Q and K"))
    }

    fn scores(&self) -> Result<Option<Shape>> {
        let sizes_unknown = self.example.is_given(Step::Products) && !self.shapes.contains_key(&Step::Q);
        if let (true, Scale::SqrtHead | Scale::SqrtModel) = (sizes_unknown, self.example.scale) {
            let what = format!("products are given, and {} cannot be known from them", self.example.scale);
            let help = "write the number to divide by: scale = 2";
            return Err(ExampleError::new(self.stated(Step::Products).map(|s| s.line), "scale", what, help));
        }
        Ok(self.shapes.get(&Step::Products).copied())
    }

    fn masked_scores(&self) -> Result<Option<Shape>> {
        let Some(scores) = self.named_step(Step::Scores) else { return Ok(None) };
        match &self.example.mask {
            Mask::Given(mask) if mask.matrix.shape() != scores.shape => {
                let [rows, columns] = mask.matrix.shape();
                let what = format!("mask is {rows}×{columns} and {}", scores.text());
                let help = "a mask has a row for each query and a column for each key";
                Err(ExampleError::new(Some(mask.line), "mask", what, help))
            }
            _ => Ok(Some(scores.shape)),
        }
    }

    fn context(&self) -> Result<Option<Shape>> {
        let (Some(weights), Some(v)) = (self.named_step(Step::Weights), self.named_step(Step::V)) else {
            return Ok(None);
        };
        meet(&weights, &v).map(Some)
    }

    /// Derived matrices are to be read, too.
    fn size(&self, step: Step, shape: Shape) -> Result<()> {
        if shape[0].saturating_mul(shape[1]) <= MOST_CELLS {
            return Ok(());
        }
        let what =
            format!("{} would be {}×{}: more than {MOST_CELLS} numbers", step.name(), shape[0], shape[1]);
        Err(ExampleError::new(None, "given", what, Remedy::SmallerExample))
    }

    fn heads(&self) -> Result<()> {
        let heads = self.example.heads;
        for step in [Step::Q, Step::K, Step::V] {
            let Some(named) = self.named_step(step) else { continue };
            if named.shape[1] % heads != 0 {
                let what =
                    format!("{} heads do not divide the {} columns of {}", heads, named.shape[1], named.name);
                let help = "give a number of heads that divides them";
                return Err(ExampleError::new(named.line, "heads", what, help));
            }
        }
        Ok(())
    }

    fn unused(&self) -> Result<()> {
        let unused = |operand: &&Operand| !self.used.contains(operand);
        match self.example.operands.keys().find(unused) {
            Some(operand) => {
                let line = self.example.operands.get(operand).map(|stated| stated.line);
                let place = format!("given.{}", operand.name());
                let help = "remove it, or what is given in its place, or give what it is multiplied with";
                Err(ExampleError::new(line, &place, "no step uses it", help))
            }
            None => Ok(()),
        }
    }

    /// Every claim is about something that follows from what is given.
    fn claims(&self) -> Result<()> {
        for claim in &self.example.claims {
            let (step, line) = (claim.part.step, Some(claim.stated.line));
            let place = format!("claims.{}", claim.part);
            if self.example.is_given(step) {
                let what = "it is given, so there is nothing to check";
                return Err(ExampleError::new(line, &place, what, "keep it under [given] or under [claims]"));
            }
            if !self.shapes.contains_key(&step) {
                let what = "nothing that is given leads to it";
                return Err(ExampleError::new(line, &place, what, needs(step, self.example)));
            }
        }
        Ok(())
    }
}

/// The shape of a product, if the two can be multiplied.
fn meet(left: &Named<'_>, right: &Named<'_>) -> Result<Shape> {
    if left.shape[1] == right.shape[0] {
        return Ok([left.shape[0], right.shape[1]]);
    }
    let what = format!(
        "{} and {}: {} columns cannot meet {} rows",
        left.text(),
        right.text(),
        left.shape[1],
        right.shape[0]
    );
    let help = format!("{}·{} needs as many columns on the left as rows on the right", left.name, right.name);
    Err(ExampleError::new(right.line.or(left.line), "given", what, help))
}

/// What is to be given for a step: of an input and its weight, what is missing.
fn needs(step: Step, example: &Example) -> String {
    let projected = |sources: &str, weight: Operand| {
        let source = if step == Step::Q { example.query_source() } else { Operand::X };
        match (example.operand(source), example.operand(weight)) {
            (Some(_), None) => format!("{} is there; give {}", source.name(), weight.name()),
            (None, Some(_)) => format!("{} is there; give {sources}", weight.name()),
            _ => format!("give {sources} and {}", weight.name()),
        }
    };
    match step {
        Step::Q => projected("X (or C)", Operand::WQ),
        Step::K => projected("X", Operand::WK),
        Step::V => projected("X", Operand::WV),
        Step::Products | Step::Scores | Step::MaskedScores | Step::Weights => {
            "give Q and K, or X, W_Q and W_K, or scores".into()
        }
        Step::Context => "give V, and what leads to the weights".into(),
        Step::Output => "give W_O, and what leads to the context".into(),
    }
}
