//! A worked example in print: every step with its formula, shapes and numbers; or a verdict a claim, the first mistake
//! first.

mod formula;
mod json;
mod verdict;

use attnscope_diagnose::worked::{Example, Judgement, Mask, Matrix, Operand, Part, Scale, Step, divisor};

use crate::array::Array;
use crate::layout::Options;
use crate::matrices::{Piece, beside};
use crate::text::Style;
use crate::wrap::{shown, width, wrap};
use formula::{formula, parts};

pub use json::example_json;

/// Digits after the point of what was worked out.
const DIGITS: usize = 4;

/// An example for a reader: worked out, or judged where it claims something.
pub fn example_text(
    file: &str,
    example: &Example,
    judgement: &Judgement,
    options: Options,
    style: Style,
) -> String {
    let page = Page { file, example, judgement, options, style };
    let claims = !example.claims.is_empty() || !example.words.is_empty();
    page.heading() + &if claims { page.verdicts() } else { page.steps() }
}

struct Page<'a> {
    file: &'a str,
    example: &'a Example,
    judgement: &'a Judgement,
    options: Options,
    style: Style,
}

impl Page<'_> {
    fn heading(&self) -> String {
        let title =
            if self.example.title.is_empty() { self.file.to_owned() } else { self.example.title.clone() };
        let heads = if self.example.heads == 1 {
            "1 head".to_owned()
        } else {
            format!("{} heads", self.example.heads)
        };
        let mut facts = vec![heads];
        if self.judgement.truth.get(Step::Products).is_some() {
            facts.push(format!("products divided by {}", self.scale()));
        }
        facts.push(match &self.example.mask {
            Mask::None => "no mask".into(),
            Mask::Causal => "causal mask".into(),
            Mask::Given(_) => "a mask of its own".into(),
        });
        if !self.example.claims.is_empty() {
            facts.push(format!("claims {}", self.example.tolerance.text()));
        }
        self.bold(&self.fill(&title)) + &self.fill(&facts.join(" · "))
    }

    fn scale(&self) -> String {
        let value = |scale| divisor(self.example, scale);
        let (scale, head) = (self.example.scale, value(Scale::SqrtHead));
        match (scale, value(scale)) {
            (Scale::SqrtModel, Some(x)) if head.is_some_and(|head| head != x) => {
                let head = head.map(number).unwrap_or_default();
                format!("√d_model = {}, where heads want √d_head = {head}", number(x))
            }
            (Scale::SqrtHead | Scale::SqrtModel, Some(x)) => format!("{scale} = {}", number(x)),
            _ => scale.to_string(),
        }
    }

    /// Text in the output's characters, in lines that fit.
    fn fill(&self, text: &str) -> String {
        wrap(&shown(text, self.options.glyphs), self.options.width).join("\n") + "\n"
    }

    fn painted(&self, text: &str, code: &str) -> String {
        match (self.style.color, text.strip_suffix('\n')) {
            (false, _) => text.to_owned(),
            (true, Some(line)) => format!("\x1b[{code}m{line}\x1b[0m\n"),
            (true, None) => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn bold(&self, text: &str) -> String {
        self.painted(text, "1")
    }

    /// Everything worked out, one step after the other.
    fn steps(&self) -> String {
        let mut out = String::new();
        // Without a mask they are the scores again.
        let masked = self.example.mask != Mask::None || self.example.is_given(Step::MaskedScores);
        for step in Step::ALL.into_iter().filter(|step| masked || *step != Step::MaskedScores) {
            for part in parts(self.example, self.judgement, step) {
                out.push('\n');
                out += &self.step(part);
            }
        }
        out
    }

    fn step(&self, part: Part) -> String {
        let Some(value) = self.judgement.truth.part(part) else { return String::new() };
        let [rows, columns] = value.shape();
        let given = self.example.is_given(part.step);
        let is_input = given || (self.example.unprojected() && part.step <= Step::V);
        let factors = if is_input { Vec::new() } else { self.factors(part) };
        let shapes: Vec<String> = factors.iter().filter_map(Piece::shape_text).collect();
        let shapes = match factors.iter().any(|piece| matches!(piece, Piece::Text(text) if text == "·")) {
            true => format!("[{}] = [{rows}×{columns}]", shapes.join("]·[")),
            false => format!("[{rows}×{columns}]"),
        };
        let formula = if given {
            format!("{part}, given")
        } else {
            format!("{part} = {}", formula(self.example, part.step))
        };
        let title = self.fill(&format!("{formula}   {shapes}"));
        let result = if is_input { Piece::exact(value) } else { Piece::rounded(value, DIGITS) };
        let equation: Vec<Piece> = match factors.is_empty() {
            true => vec![result.clone()],
            false => factors.into_iter().chain([Piece::Text("=".into()), result.clone()]).collect(),
        };
        self.bold(&title) + &self.set(&[equation, vec![result]])
    }

    /// The first of some settings that fits the width; numbers in lines that do, if none is.
    fn set(&self, settings: &[Vec<Piece>]) -> String {
        let set = |pieces: &Vec<Piece>| beside(pieces, self.options.glyphs);
        let fits = |text: &String| text.lines().all(|line| width(line) <= self.options.width);
        if let Some(text) = settings.iter().map(set).find(fits) {
            return text;
        }
        let matrices = settings.last().into_iter().flatten().filter_map(|piece| match piece {
            Piece::Matrix(matrix, _) => Some(matrix),
            Piece::Text(_) => None,
        });
        let array = |matrix: &Matrix| {
            Array { shape: &matrix.shape(), values: matrix.values(), whole: false }
                .text(self.options.width, false)
        };
        matrices.map(array).collect()
    }

    /// What a step is computed from, as it is written.
    fn factors(&self, part: Part) -> Vec<Piece> {
        let of = |step| {
            self.judgement.truth.part(Part { step, head: part.head }).map(|m| Piece::rounded(m, DIGITS))
        };
        let operand = |operand| self.example.operand(operand).cloned().map(Piece::exact);
        let text = |text: &str| Some(Piece::Text(text.into()));
        let projected = |source: Option<Piece>, weight: Operand, bias: Operand| match operand(weight) {
            None => vec![source],
            Some(weight) => {
                let bias = operand(bias).map(|bias| [text("+"), Some(bias)]);
                [source, text("·"), Some(weight)].into_iter().chain(bias.into_iter().flatten()).collect()
            }
        };
        let pieces = match part.step {
            Step::Q => projected(operand(self.example.query_source()), Operand::WQ, Operand::BQ),
            Step::K => projected(operand(Operand::X), Operand::WK, Operand::BK),
            Step::V => projected(operand(Operand::X), Operand::WV, Operand::BV),
            Step::Products => vec![of(Step::Q), text("·"), of(Step::K).map(Piece::transposed)],
            Step::Scores => {
                let by = divisor(self.example, self.example.scale).map_or_else(|| "1".into(), number);
                vec![of(Step::Products), text(&format!("/ {by}"))]
            }
            Step::MaskedScores => vec![of(Step::Scores), text("+"), self.mask(part).map(Piece::exact)],
            Step::Weights => vec![text("softmax"), of(Step::MaskedScores)],
            Step::Context => vec![of(Step::Weights), text("·"), of(Step::V)],
            Step::Output => projected(of(Step::Context), Operand::WO, Operand::BO),
        };
        pieces.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// The mask: 0 where the scores are kept, −∞ where they are not.
    fn mask(&self, part: Part) -> Option<Matrix> {
        let masked = self.judgement.truth.part(part)?;
        let [rows, columns] = masked.shape();
        let scores = self.judgement.truth.part(Part { step: Step::Scores, ..part })?;
        let cell = |(&masked, &score): (&f64, &f64)| if masked == score { 0.0 } else { f64::NEG_INFINITY };
        Matrix::new(rows, columns, masked.values().iter().zip(scores.values()).map(cell).collect())
    }
}

/// Four digits after the point at most.
fn number(x: f64) -> String {
    match x {
        f64::NEG_INFINITY => "−∞".into(),
        _ if x != 0.0 && x.abs() < 5e-5 => format!("{x:.1e}"),
        _ => {
            let text = format!("{x:.DIGITS$}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            if text == "-0" { "0".into() } else { text.to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_diagnose::worked::{judge, parse};

    use crate::glyphs::Glyphs;

    #[test]
    fn every_step_in_print() {
        let example = parse("mask = \"causal\"\n[given]\nX = [[1, 0.5], [0, -1]]").unwrap();
        let options = Options { width: 60, glyphs: Glyphs::Unicode };
        let text = example_text("a.toml", &example, &judge(&example), options, Style::default());
        insta::assert_snapshot!(text, @"
        a.toml
        1 head · products divided by √d_head = 1.4142 · causal mask

        Q = X   [2×2]
        ⎡1.0  0.5⎤
        ⎣0.0 -1.0⎦

        K = X   [2×2]
        ⎡1.0  0.5⎤
        ⎣0.0 -1.0⎦

        V = X   [2×2]
        ⎡1.0  0.5⎤
        ⎣0.0 -1.0⎦

        products = Q·Kᵀ   [2×2]·[2×2] = [2×2]
        ⎡1.0000  0.5000⎤ · ⎡1.0000  0.0000⎤ = ⎡ 1.2500 -0.5000⎤
        ⎣0.0000 -1.0000⎦   ⎣0.5000 -1.0000⎦   ⎣-0.5000  1.0000⎦

        scores = Q·Kᵀ / √d_head   [2×2]
        ⎡ 1.2500 -0.5000⎤ / 1.4142 = ⎡ 0.8839 -0.3536⎤
        ⎣-0.5000  1.0000⎦            ⎣-0.3536  0.7071⎦

        masked_scores = scores + mask   [2×2]
        ⎡ 0.8839 -0.3536⎤ + ⎡0 -∞⎤ = ⎡ 0.8839     -∞⎤
        ⎣-0.3536  0.7071⎦   ⎣0  0⎦   ⎣-0.3536 0.7071⎦

        weights = softmax(masked_scores)   [2×2]
        softmax ⎡ 0.8839     -∞⎤ = ⎡1.0000 0.0000⎤
                ⎣-0.3536 0.7071⎦   ⎣0.2572 0.7428⎦

        context = weights·V   [2×2]·[2×2] = [2×2]
        ⎡1.0000 0.0000⎤ · ⎡1.0000  0.5000⎤ = ⎡1.0000  0.5000⎤
        ⎣0.2572 0.7428⎦   ⎣0.0000 -1.0000⎦   ⎣0.2572 -0.6142⎦
        ");
    }
}
