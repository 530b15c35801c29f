//! What became of the claims: the first mistake, a line each, then numbers.

use attnscope_diagnose::worked::{Judged, JudgedWord, Mistake, Part, Step, Verdict, formula};

use super::{DIGITS, Page, number};
use crate::matrices::Piece;
use crate::table::{Column, Table};
use crate::wrap::{shown, wrap};

impl Page<'_> {
    /// The first mistake, a line a claim, then everything that is not right with its numbers.
    pub(super) fn verdicts(&self) -> String {
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
                formula(self.example, part)
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
        let mut out =
            self.bold(&self.fill(&format!("{mark} {part} = {}: {verdict}", formula(self.example, part))));
        for line in self.reasons(judged) {
            let lines = wrap(&shown(&line, self.options.glyphs), self.options.width.saturating_sub(2));
            out += &lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
        }
        let mut matrices = vec![
            ("claimed", Piece::exact(judged.claim.stated.matrix.clone())),
            ("true", Piece::rounded(judged.truth.clone(), DIGITS)),
        ];
        if let (Verdict::Wrong(_) | Verdict::Follows { .. }, Some(follows)) =
            (&judged.verdict, &judged.follows)
        {
            matrices.push(("from the claims before", Piece::rounded(follows.clone(), DIGITS)));
        }
        out + &self.named(&matrices)
    }

    /// What is known about a claim that is not right.
    fn reasons(&self, judged: &Judged) -> Vec<String> {
        match &judged.verdict {
            Verdict::Right => vec![],
            Verdict::RightFromRounded => {
                vec!["within the tolerance of what the rounded numbers before it give".into()]
            }
            Verdict::Follows { from } => {
                vec![format!(
                    "it follows from the claims before it, within their rounding; {}",
                    because(from)
                )]
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
