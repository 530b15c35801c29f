//! A worked example in print: every step with its formula, shapes and numbers; or a verdict a claim, the first mistake
//! first.

mod verdict;

use attnscope::answer::{JudgedExample, WorkedExamples};
use attnscope::figures::trimmed;
use attnscope_diagnose::worked::{
    Example, Judgement, Mask, Matrix, Operand, Part, Scale, Step, divisor, formula, parts,
};

use crate::array::Array;
use crate::layout::Options;
use crate::matrices::{Piece, beside};
use crate::text::Style;
use crate::wrap::{shown, width, wrap};

/// Digits after the point of what was worked out.
const DIGITS: usize = 4;

/// Examples for a reader, one after the other.
pub fn text(answer: &WorkedExamples, options: Options, style: Style) -> String {
    let one = |judged: &JudgedExample| {
        let text = example_text(judged, options, style);
        // A title does not say which of the files it is in.
        let titled = answer.of_many && !judged.example.title.is_empty();
        if titled { format!("{}\n{text}", judged.file) } else { text }
    };
    let texts: Vec<String> = answer.examples.iter().map(one).collect();
    options.glyphs.lines(&texts.join("\n\n"))
}

/// An example: worked out, or judged where it claims something.
fn example_text(judged: &JudgedExample, options: Options, style: Style) -> String {
    let JudgedExample { file, example, judgement } = judged;
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
            format!("{} heads, each with its columns of Q, K and V", self.example.heads)
        };
        let mut facts = vec![heads];
        // Where there is something to project: with scores given there is not.
        if self.example.unprojected() && self.example.operand(Operand::X).is_some() {
            facts.push(match self.example.query_source() {
                Operand::C => "unprojected: Q is C, K and V are X".into(),
                _ => "unprojected: Q, K and V are X".into(),
            });
        }
        if self.judgement.truth.has(Step::Products) {
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
        self.bold(&self.fill(&title)) + &self.fill(&facts.join(" · ")) + &self.fully_masked_rows()
    }

    /// The rows in which the mask hides every key: their weights are a matter of definition.
    fn fully_masked_rows(&self) -> String {
        let part = Part { step: Step::MaskedScores, head: (self.example.heads > 1).then_some(0) };
        let Some(scores) = self.judgement.truth.part(part) else { return String::new() };
        let is_fully_masked = |(_, row): &(usize, &[f64])| row.iter().all(|x| *x == f64::NEG_INFINITY);
        let rows: Vec<String> = scores
            .each_row()
            .enumerate()
            .filter(is_fully_masked)
            .map(|(row, _)| (row + 1).to_string())
            .collect();
        let (which, whose) = match rows.as_slice() {
            [] => return String::new(),
            [row] => (format!("row {row} sees"), "its"),
            rows => (format!("rows {} see", rows.join(", ")), "their"),
        };
        self.fill(&format!(
            "! {which} no key; by definition {whose} weights are 0 (a softmax of −∞ alone is 0/0)"
        ))
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
        let shapes = match factors.iter().any(Piece::joins) {
            true => {
                format!("{} = [{rows}×{columns}]", factors.iter().map(Piece::shape_text).collect::<String>())
            }
            false => format!("[{rows}×{columns}]"),
        };
        let formula = if given {
            format!("{part}, given")
        } else {
            format!("{part} = {}", formula(self.example, part))
        };
        let title = self.fill(&format!("{formula}   {shapes}"));
        let result = if is_input { Piece::exact(value) } else { Piece::rounded(value, DIGITS) };
        let equation: Vec<Piece> = match factors.is_empty() {
            true => vec![result.clone()],
            false => factors.into_iter().chain([Piece::Text("=".into()), result.clone()]).collect(),
        };
        self.bold(&title) + &self.set(&equation, &result)
    }

    /// Pieces in one line of formula, if they fit the width.
    fn in_line(&self, pieces: &[Piece]) -> Option<String> {
        let text = beside(pieces, self.options.glyphs);
        text.lines().all(|line| width(line) <= self.options.width).then_some(text)
    }

    /// An equation, or its result alone where it is too wide.
    fn set(&self, equation: &[Piece], result: &Piece) -> String {
        self.in_line(equation).unwrap_or_else(|| self.alone("", result))
    }

    /// One matrix after its name; in lines of numbers where it is too wide for brackets.
    fn alone(&self, name: &str, piece: &Piece) -> String {
        let label = (!name.is_empty()).then(|| Piece::Text(name.to_owned()));
        let pieces: Vec<Piece> = label.into_iter().chain([piece.clone()]).collect();
        self.in_line(&pieces).unwrap_or_else(|| {
            let Piece::Matrix(matrix, _) = piece else { return String::new() };
            let array = Array { shape: &matrix.shape(), values: matrix.values(), whole: false };
            let name = if name.is_empty() { String::new() } else { format!("{name}\n") };
            name + &array.text(self.options.width, false)
        })
    }

    /// Named matrices beside each other, below each other where that is too wide: none is left out.
    fn named(&self, matrices: &[(&str, Piece)]) -> String {
        let longest = matrices.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
        let in_line = |(n, (name, piece)): (usize, &(&str, Piece))| {
            let gap = if n == 0 { "  " } else { " " };
            [Piece::Text(format!("{gap}{name}")), piece.clone()]
        };
        let line: Vec<Piece> = matrices.iter().enumerate().flat_map(in_line).collect();
        let stacked = |(name, piece): &(&str, Piece)| {
            self.alone(&format!("  {name}{}", " ".repeat(longest - width(name))), piece)
        };
        self.in_line(&line).unwrap_or_else(|| matrices.iter().map(stacked).collect())
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
            Step::Context if part.head.is_none() && self.example.heads > 1 => self.beside_heads(),
            Step::Context => vec![of(Step::Weights), text("·"), of(Step::V)],
            Step::Output => projected(of(Step::Context), Operand::WO, Operand::BO),
        };
        pieces.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// Every head's context, side by side.
    fn beside_heads(&self) -> Vec<Option<Piece>> {
        let head = |head: usize| {
            let part = Part { step: Step::Context, head: Some(head) };
            let bar = (head > 0).then(|| Some(Piece::Text("|".into())));
            bar.into_iter().chain([self.judgement.truth.part(part).map(|m| Piece::rounded(m, DIGITS))])
        };
        (0..self.example.heads).flat_map(head).collect()
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
        f64::NEG_INFINITY => "-∞".into(),
        _ if x != 0.0 && x.abs() < 5e-5 => format!("{x:.1e}"),
        _ => {
            let text = trimmed(x, DIGITS);
            if text == "-0" { "0".into() } else { text }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_diagnose::worked::{judge, parse};

    #[test]
    fn every_step_in_print() {
        let text = printed("mask = \"causal\"\n[given]\nX = [[1, 0.5], [0, -1]]", 60);
        insta::assert_snapshot!(text, @"
        a.toml
        1 head · unprojected: Q, K and V are X · products divided by
          √d_head = 1.4142 · causal mask

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

    fn printed(text: &str, width: usize) -> String {
        let example = parse(text).unwrap();
        let options = Options { width, ..Options::default() };
        let judgement = judge(&example);
        let judged = JudgedExample { file: "a.toml".into(), example, judgement };
        example_text(&judged, options, Style::default())
    }

    #[test]
    fn heads_are_multiplied_one_by_one_and_then_put_side_by_side() {
        let text = printed(
            "heads = 2\n[given]\nweights.0 = [[1, 0]]\nweights.1 = [[0.5, 0.5]]\nV = [[1, 2], [3, 4]]",
            80,
        );
        insta::assert_snapshot!(text, @"
        a.toml
        2 heads, each with its columns of Q, K and V · no mask

        V, given   [2×2]
        ⎡1 2⎤
        ⎣3 4⎦

        weights.0, given   [1×2]
        [1 0]

        weights.1, given   [1×2]
        [0.5 0.5]

        context.0 = weights.0·V.0   [1×2]·[2×1] = [1×1]
        [1.0000 0.0000] · ⎡1.0000⎤ = [1.0000]
                          ⎣3.0000⎦

        context.1 = weights.1·V.1   [1×2]·[2×1] = [1×1]
        [0.5000 0.5000] · ⎡2.0000⎤ = [3.0000]
                          ⎣4.0000⎦

        context = [context.0 | context.1]   [1×1] | [1×1] = [1×2]
        [1.0000] | [3.0000] = [1.0000 3.0000]
        ");
    }

    #[test]
    fn a_bias_is_added_and_a_row_that_sees_nothing_is_named() {
        let text = printed(
            "mask = [[\"-inf\"]]\n[given]\nX = [[1, 0]]\nW_Q = [[1], [2]]\nW_K = [[1], [1]]\nb_Q = [0.5]",
            80,
        );
        assert!(text.contains("Q = X·W_Q + b_Q   [1×2]·[2×1] + [1×1] = [1×1]\n"), "{text}");
        assert!(text.contains("! row 1 sees no key"), "{text}");
    }

    #[test]
    fn what_was_claimed_is_never_left_out() {
        let text = "[given]\nscores = [[0.11, 0.22, 0.33, 0.44]]\n[claims]\nweights = [[0.1234, 0.2345, 0.3456, 0.2965]]";
        for width in [40, 60, 80, 120] {
            let text = printed(text, width);
            assert!(text.contains("0.1234") && text.contains("claimed") && text.contains("true"), "{text}");
            assert!(text.lines().all(|line| super::width(line) <= width), "{text}");
        }
    }
}
