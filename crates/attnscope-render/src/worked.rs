//! A worked example in print: every step with its formula, shapes and numbers; or a verdict a claim, the first mistake
//! first.

use attnscope_diagnose::worked::{
    Example, Judged, JudgedWord, Judgement, Mask, Matrix, Mistake, Operand, Part, Scale, Step, Verdict,
    divisor,
};
use serde_json::{Value, json};

use crate::array::Array;
use crate::layout::Options;
use crate::matrices::{Piece, beside};
use crate::table::{Column, Table};
use crate::text::Style;
use crate::wrap::{shown, width, wrap};

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
        let mut facts = vec![heads, format!("products divided by {}", self.scale())];
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
        let value = divisor(self.example, self.example.scale).map(number);
        match (self.example.scale, value) {
            (Scale::SqrtHead | Scale::SqrtModel, Some(value)) => format!("{} = {value}", self.example.scale),
            (scale, _) => scale.to_string(),
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
        let factors = if given { Vec::new() } else { self.factors(part) };
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
        let result = if given { Piece::exact(value) } else { Piece::rounded(value, DIGITS) };
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
            Step::MaskedScores => vec![of(Step::Scores)],
            Step::Weights => vec![text("softmax"), of(Step::MaskedScores)],
            Step::Context => vec![of(Step::Weights), text("·"), of(Step::V)],
            Step::Output => projected(of(Step::Context), Operand::WO, Operand::BO),
        };
        pieces.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// The first mistake, a line a claim, then everything that is not right with its numbers.
    fn verdicts(&self) -> String {
        let mut out = format!("\n{}\n", self.first_mistake());
        let mut table =
            Table::new(["claim", "line", "verdict", ""].map(Column::left).to_vec(), self.options.glyphs)
                .flexible(3);
        for step in Step::ALL {
            for word in self.judgement.words.iter().filter(|word| word.step == step) {
                let verdict = if word.wrong { "✗ wrong here" } else { "✓ right" };
                let claim = format!("{} = {}", word.name, word.claimed);
                table.row([claim, word.line.to_string(), verdict.to_owned(), word.sentence.clone()]);
            }
            for judged in self.judgement.claims.iter().filter(|judged| judged.claim.part.step == step) {
                let (mark, verdict) = mark(&judged.verdict);
                let (claim, line) = (judged.claim.part.to_string(), judged.claim.stated.line.to_string());
                table.row([claim, line, format!("{mark} {verdict}"), remark(judged)]);
            }
        }
        out += &table.render(self.options.width);
        for judged in self.judgement.claims.iter().filter(|judged| judged.verdict != Verdict::Right) {
            out.push('\n');
            out += &self.details(judged);
        }
        out
    }

    fn first_mistake(&self) -> String {
        let line = match self.judgement.first_mistake() {
            None => return self.painted(&self.fill("Every claim is right."), "1;32"),
            Some(Mistake::Claim(judged)) => self.mistake(judged),
            Some(Mistake::Word(JudgedWord { name, line, claimed, sentence, .. })) => {
                format!("{name} = {claimed} (line {line}): {sentence}")
            }
        };
        self.painted(&self.fill(&format!("First mistake: {line}.")), "1;31")
    }

    fn mistake(&self, judged: &Judged) -> String {
        let (part, line) = (judged.claim.part, judged.claim.stated.line);
        let Verdict::Wrong(diagnosis) = &judged.verdict else { return part.to_string() };
        let rows = match diagnosis.worst {
            Some(_) => format!(
                "{} not {}",
                rows_text(&diagnosis.rows, judged.truth.rows()),
                formula(self.example, part.step)
            ),
            None => shapes_differ(judged),
        };
        let why = match diagnosis.fits.first() {
            Some(fit) if fit.rows.len() == diagnosis.rows.len() => {
                format!("; {}", fit.explanation.sentence(self.example))
            }
            _ => String::new(),
        };
        format!("{part} (line {line}): {rows}{why}")
    }

    fn details(&self, judged: &Judged) -> String {
        let part = judged.claim.part;
        let (mark, verdict) = mark(&judged.verdict);
        let mut out = self
            .bold(&self.fill(&format!("{mark} {part} = {}: {verdict}", formula(self.example, part.step))));
        for line in self.reasons(judged) {
            let lines = wrap(&shown(&line, self.options.glyphs), self.options.width.saturating_sub(2));
            out += &lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
        }
        let text = |text: &str| Piece::Text(text.into());
        let claimed = Piece::exact(judged.claim.stated.matrix.clone());
        let truth = Piece::rounded(judged.truth.clone(), DIGITS);
        let mut all = vec![text("  claimed"), claimed, text(" true"), truth.clone()];
        if let (Verdict::Wrong(_), Some(follows)) = (&judged.verdict, &judged.follows) {
            all.extend([text(" from the claims before"), Piece::rounded(follows.clone(), DIGITS)]);
        }
        let two = all[..4].to_vec();
        out + &self.set(&[all, two, vec![text("  true"), truth]])
    }

    /// What is known about a claim that is not right.
    fn reasons(&self, judged: &Judged) -> Vec<String> {
        match &judged.verdict {
            Verdict::Right => vec![],
            Verdict::RightFromRounded => {
                vec!["within the tolerance of what the rounded numbers before it give".into()]
            }
            Verdict::Follows { from } => {
                vec![format!("it follows from the claims before it; {}", because(from))]
            }
            Verdict::Wrong(diagnosis) => {
                let mut lines = Vec::new();
                match diagnosis.worst {
                    Some(cell) => {
                        let place = format!("row {}, column {}", cell.row + 1, cell.column + 1);
                        let follows = match judged.follows.is_some() && cell.follows != cell.truth {
                            true => format!(", from the claims before {}", number(cell.follows)),
                            false => String::new(),
                        };
                        let (claimed, truth) = (number(cell.claimed), number(cell.truth));
                        lines
                            .push(format!("furthest off: {place}: claimed {claimed}, true {truth}{follows}"));
                    }
                    None => lines.push(shapes_differ(judged)),
                }
                for fit in &diagnosis.fits {
                    let part = match fit.rows.len() < diagnosis.rows.len() {
                        true => format!(
                            " ({} only)",
                            rows_text(&fit.rows, usize::MAX).trim_end_matches(" is").trim_end_matches(" are")
                        ),
                        false => String::new(),
                    };
                    let off = if fit.off < 1e-9 {
                        "to the digit".into()
                    } else {
                        format!("within {}", number(fit.off))
                    };
                    lines.push(format!("fits, {off}{part}: {}", fit.explanation.sentence(self.example)));
                }
                if diagnosis.fits.is_empty() {
                    lines.push(format!("none of the {} explanations that were tried fits", diagnosis.tried));
                }
                lines
            }
        }
    }
}

fn mark(verdict: &Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Right => ("✓", "right"),
        Verdict::RightFromRounded => ("✓", "right as rounded"),
        Verdict::Follows { .. } => ("→", "follows"),
        Verdict::Wrong(_) => ("✗", "wrong here"),
    }
}

fn remark(judged: &Judged) -> String {
    match &judged.verdict {
        Verdict::Right | Verdict::RightFromRounded => String::new(),
        Verdict::Follows { from } => because(from),
        Verdict::Wrong(diagnosis) => match diagnosis.worst {
            Some(cell) => format!(
                "row {}, column {}: {}, true {}",
                cell.row + 1,
                cell.column + 1,
                number(cell.claimed),
                number(cell.truth)
            ),
            None => shapes_differ(judged),
        },
    }
}

fn because(from: &[Part]) -> String {
    let names: Vec<String> = from.iter().map(Part::to_string).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("wrong only because {} {verb}", names.join(" and "))
}

fn shapes_differ(judged: &Judged) -> String {
    let ([a, b], [c, d]) = (judged.claim.stated.matrix.shape(), judged.truth.shape());
    format!("claimed as {a}×{b}, it is {c}×{d}")
}

/// `row 2 is`, `rows 1 and 3 are`, `it is` for all.
fn rows_text(rows: &[usize], all: usize) -> String {
    let names: Vec<String> = rows.iter().map(|row| (row + 1).to_string()).collect();
    match names.as_slice() {
        _ if rows.len() == all => "it is".into(),
        [one] => format!("row {one} is"),
        many => format!("rows {} are", many.join(", ")),
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

/// A step, or its heads where it has several.
fn parts(example: &Example, judgement: &Judgement, step: Step) -> Vec<Part> {
    let heads = if step.per_head() && example.heads > 1 { example.heads } else { 0 };
    let parts: Vec<Part> = match heads {
        0 => vec![Part { step, head: None }],
        _ => (0..heads).map(|head| Part { step, head: Some(head) }).collect(),
    };
    parts.into_iter().filter(|part| judgement.truth.part(*part).is_some()).collect()
}

/// How a step is computed.
fn formula(example: &Example, step: Step) -> String {
    let plus =
        |bias: Operand| example.operand(bias).map(|_| format!(" + {}", bias.name())).unwrap_or_default();
    let projection = |source: Operand, weight: Operand, bias: Operand| match example.unprojected() {
        true => source.name().to_owned(),
        false => format!("{}·{}{}", source.name(), weight.name(), plus(bias)),
    };
    match step {
        Step::Q => projection(example.query_source(), Operand::WQ, Operand::BQ),
        Step::K => projection(Operand::X, Operand::WK, Operand::BK),
        Step::V => projection(Operand::X, Operand::WV, Operand::BV),
        Step::Products => "Q·Kᵀ".into(),
        Step::Scores => match example.is_given(Step::Products) {
            true => format!("products / {}", example.scale),
            false => format!("Q·Kᵀ / {}", example.scale),
        },
        Step::MaskedScores => match example.mask {
            Mask::None => "scores".into(),
            _ => "scores + mask".into(),
        },
        Step::Weights if example.mask == Mask::None && !example.is_given(Step::MaskedScores) => {
            "softmax(scores)".into()
        }
        Step::Weights => "softmax(masked_scores)".into(),
        Step::Context if example.heads > 1 => "weights·V, head beside head".into(),
        Step::Context => "weights·V".into(),
        Step::Output => format!("context·W_O{}", plus(Operand::BO)),
    }
}

/// An example for programs.
pub fn example_json(file: &str, example: &Example, judgement: &Judgement) -> Value {
    let first = judgement.first_mistake().map(|mistake| match mistake {
        Mistake::Claim(judged) => judged.claim.part.to_string(),
        Mistake::Word(word) => word.name.to_owned(),
    });
    let steps = Step::ALL.into_iter().flat_map(|step| parts(example, judgement, step)).filter_map(|part| {
        let value = judgement.truth.part(part)?;
        let given = example.is_given(part.step);
        Some(json!({
            "step": part.to_string(), "given": given,
            "formula": (!given).then(|| formula(example, part.step)),
            "shape": value.shape(), "values": rows_json(&value),
        }))
    });
    let word = |word: &JudgedWord| {
        json!({
            "claim": word.name, "line": word.line, "claimed": word.claimed,
            "verdict": if word.wrong { "wrong" } else { "right" }, "sentence": word.sentence,
        })
    };
    json!({
        "file": file,
        "title": example.title,
        "heads": example.heads,
        "scale": { "name": example.scale.to_string(), "value": divisor(example, example.scale) },
        "right": judgement.is_right(),
        "first_mistake": first,
        "steps": steps.collect::<Vec<_>>(),
        "claims": judgement.claims.iter().map(|judged| judged_json(example, judged)).collect::<Vec<_>>(),
        "words": judgement.words.iter().map(word).collect::<Vec<_>>(),
    })
}

fn judged_json(example: &Example, judged: &Judged) -> Value {
    let mut value = json!({
        "claim": judged.claim.part.to_string(),
        "line": judged.claim.stated.line,
        "verdict": match &judged.verdict {
            Verdict::Right => "right",
            Verdict::RightFromRounded => "right_as_rounded",
            Verdict::Follows { .. } => "follows",
            Verdict::Wrong(_) => "wrong",
        },
        "tolerance": judged.tolerance,
        "claimed": rows_json(&judged.claim.stated.matrix),
        "true": rows_json(&judged.truth),
        "from_claims": judged.follows.as_ref().map(rows_json),
    });
    if let Verdict::Follows { from } = &judged.verdict {
        value["because_of"] = from.iter().map(Part::to_string).collect();
    }
    if let Verdict::Wrong(diagnosis) = &judged.verdict {
        value["rows"] = json!(diagnosis.rows);
        value["worst"] = diagnosis.worst.map_or(Value::Null, |cell| {
            json!({
                "row": cell.row, "column": cell.column, "claimed": finite(cell.claimed),
                "true": finite(cell.truth), "from_claims": finite(cell.follows),
            })
        });
        let fit = |fit: &attnscope_diagnose::worked::Fit| {
            json!({
                "kind": fit.explanation.kind(), "sentence": fit.explanation.sentence(example),
                "rows": fit.rows, "off": fit.off,
            })
        };
        value["explanations"] = diagnosis.fits.iter().map(fit).collect();
        value["tried"] = json!(diagnosis.tried);
    }
    value
}

fn finite(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::Null }
}

fn rows_json(matrix: &Matrix) -> Value {
    matrix.each_row().map(|row| row.iter().map(|&x| finite(x)).collect::<Value>()).collect()
}

/// Only in tests and documentation is a page made for the width of a screen.
#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_diagnose::worked::{judge, parse};

    use crate::glyphs::Glyphs;

    #[test]
    fn one_step_in_print() {
        let example = parse("[given]\nX = [[1, 0.5], [0, -1]]").unwrap();
        let options = Options { width: 60, glyphs: Glyphs::Unicode };
        let text = example_text("a.toml", &example, &judge(&example), options, Style::default());
        insta::assert_snapshot!(text, @"");
    }
}
