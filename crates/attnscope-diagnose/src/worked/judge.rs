//! A verdict a claim: right, wrong here, or wrong only because an earlier one is.

use super::derive::{Derived, Fixed, derive};
use super::example::{Claim, Example, Part, Step, Tolerance};
use super::explain::Explanation;
use super::hypotheses::hypotheses;
use super::matrix::Matrix;
use super::pattern::{Suspect, patterns};
use super::recipe::Recipe;
use super::rounded::Rounded;
use super::rounding::{apart, near, reach, slack};
use super::word::{JudgedWord, judge_word};

/// An example, worked out, and what became of its claims.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Every step from what is given alone.
    pub truth: Derived,
    /// The claims in the order of computation.
    pub claims: Vec<Judged>,
    /// The statements in words.
    pub words: Vec<JudgedWord>,
}

/// A claim and its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// What was claimed.
    pub claim: Claim,
    /// What is true.
    pub truth: Matrix,
    /// What follows from the claims before it, where that is something else.
    pub follows: Option<Matrix>,
    /// Its tolerance.
    pub tolerance: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// What is to be said of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It is true, within the tolerance.
    Right,
    /// It follows from the claims before it, which are right but rounded.
    RightFromRounded,
    /// It follows from the claims before it, and some of those are wrong.
    Follows {
        /// Where the mistakes are.
        from: Vec<Part>,
    },
    /// It does not follow from what is before it.
    Wrong(Diagnosis),
}

/// What is wrong with a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// The rows that are wrong, from 0. All of them where the shape is.
    pub rows: Vec<usize>,
    /// The cell that is furthest off; nothing where the shape is wrong.
    pub worst: Option<Cell>,
    /// What would explain it, the best first.
    pub fits: Vec<Fit>,
    /// How many explanations were tried.
    pub tried: usize,
}

/// One cell of a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// From 0.
    pub row: usize,
    /// From 0.
    pub column: usize,
    /// What was claimed.
    pub claimed: f64,
    /// What is true.
    pub truth: f64,
    /// What follows from the claims before.
    pub follows: f64,
}

/// What an explanation was computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The claims before this one.
    Claims,
    /// What is given.
    Truth,
}

/// An explanation that fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// What happened.
    pub explanation: Explanation,
    /// The wrong rows that it explains, from 0.
    pub rows: Vec<usize>,
    /// From which numbers.
    pub basis: Basis,
    /// How far the claim is from what it predicts, at most.
    pub off: f64,
}

/// The first mistake of an example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mistake<'a> {
    /// In a step.
    Claim(&'a Judged),
    /// In a word.
    Word(&'a JudgedWord),
}

impl Judgement {
    /// The first claim that does not follow from what is before it.
    pub fn first_mistake(&self) -> Option<Mistake<'_>> {
        let claim = self.claims.iter().find(|judged| matches!(judged.verdict, Verdict::Wrong(_)));
        let word = self.words.iter().filter(|word| word.wrong).min_by_key(|word| word.step);
        match (claim, word) {
            (Some(claim), Some(word)) if claim.claim.part.step < word.step => Some(Mistake::Claim(claim)),
            (_, Some(word)) => Some(Mistake::Word(word)),
            (claim, None) => claim.map(Mistake::Claim),
        }
    }

    /// Whether nothing that was claimed is wrong.
    pub fn is_right(&self) -> bool {
        let right = |judged: &Judged| matches!(judged.verdict, Verdict::Right | Verdict::RightFromRounded);
        self.claims.iter().all(right) && self.words.iter().all(|word| !word.wrong)
    }
}

/// Works an example out and judges what it claims.
pub fn judge(example: &Example) -> Judgement {
    let plain = Recipe::of(example);
    let truth = derive(example, &plain, &[]);
    let court = Court { example, plain: &plain, truth: &truth, hypotheses: hypotheses(example) };
    let mut claims: Vec<Judged> = Vec::new();
    for claim in &example.claims {
        let judged = court.judge(claim, &claims);
        claims.extend(judged);
    }
    let words = example.words.iter().map(|word| judge_word(example, *word, &claims)).collect();
    Judgement { claims, words, truth }
}

/// The claims before a step, to stand for what they are about. Where one of them is wrong, what it was rounded from is
/// not known, and the rounding is carried along.
fn earlier(step: Step, before: &[Judged], carry: bool) -> Vec<Fixed<'_>> {
    let usable = |b: &&Judged| step > b.claim.part.step && b.truth.shape() == b.claim.stated.matrix.shape();
    let mut fixed = Vec::new();
    for judged in before.iter().filter(usable) {
        let known = sources(judged.claim.part, before).is_empty();
        fixed.push(Fixed { claim: &judged.claim, reach: reach(judged, known).filter(|_| carry) });
    }
    fixed
}

struct Court<'a> {
    example: &'a Example,
    plain: &'a Recipe,
    truth: &'a Derived,
    hypotheses: Vec<Explanation>,
}

impl Court<'_> {
    fn judge(&self, claim: &Claim, before: &[Judged]) -> Option<Judged> {
        let truth = self.truth.part(claim.part)?;
        let tolerance = self.example.tolerance.of(&claim.stated);
        if claim.stated.matrix.shape() != truth.shape() {
            let verdict = Verdict::Wrong(wrong_shape(claim, &truth, tolerance));
            return Some(Judged { claim: claim.clone(), truth, follows: None, tolerance, verdict });
        }
        let from = sources(claim.part, before);
        let earlier = earlier(claim.part.step, before, !from.is_empty());
        let follows = derive(self.example, self.plain, &earlier).rounded(claim.part)?;
        let claimed = |row: usize| claim.stated.matrix.row(row);
        let is_true = |&row: &usize| apart(claimed(row), truth.row(row)) <= slack(tolerance);
        let rows = || 0..truth.rows();
        let wrong: Vec<usize> =
            rows().filter(|r| !is_true(r) && !near(claimed(*r), &follows, *r, tolerance)).collect();
        let verdict = if rows().all(|r| is_true(&r)) {
            Verdict::Right
        } else if wrong.is_empty() {
            if from.is_empty() { Verdict::RightFromRounded } else { Verdict::Follows { from } }
        } else {
            let case = Case { claim, truth: &truth, follows: &follows, tolerance, wrong, earlier };
            Verdict::Wrong(self.diagnose(&case, before))
        };
        let follows = Some(follows.middle).filter(|follows| *follows != truth);
        Some(Judged { claim: claim.clone(), truth, follows, tolerance, verdict })
    }

    fn diagnose(&self, case: &Case<'_>, before: &[Judged]) -> Diagnosis {
        let mut fits = Vec::new();
        // The true inputs are another basis only where a claim has replaced some of them.
        let bases: &[Basis] =
            if case.earlier.is_empty() { &[Basis::Truth] } else { &[Basis::Claims, Basis::Truth] };
        let about = |explanation: &&Explanation| explanation.is_about(case.claim.part.step);
        for explanation in self.hypotheses.iter().filter(about) {
            let Some(recipe) = explanation.edit(self.plain.clone()) else { continue };
            for &basis in bases {
                let fixed: &[Fixed<'_>] = if basis == Basis::Claims { &case.earlier } else { &[] };
                let derived = derive(self.example, &recipe, fixed);
                let fit = derived
                    .rounded(case.claim.part)
                    .and_then(|predicted| case.fit(explanation, &predicted, basis));
                if let Some(fit) = fit {
                    fits.push(fit);
                    break;
                }
            }
        }
        let suspect = Suspect { case, example: self.example, truth: self.truth, before };
        let (tried, found) = patterns(&suspect);
        fits.extend(found);
        fits.sort_by_key(|fit| std::cmp::Reverse(fit.rows.len()));
        let most = fits.first().map_or(0, |fit| fit.rows.len());
        // What explains everything leaves nothing to those that explain a part.
        fits.retain(|fit| most < case.wrong.len() || fit.rows.len() == most);
        fits.truncate(MOST_FITS);
        Diagnosis {
            worst: case.worst(),
            rows: case.wrong.clone(),
            fits,
            tried: self.hypotheses.iter().filter(about).count() + tried,
        }
    }
}

/// Nobody reads more.
const MOST_FITS: usize = 3;

/// A claim that is wrong, and what it is held against.
pub(super) struct Case<'a> {
    pub(super) claim: &'a Claim,
    pub(super) truth: &'a Matrix,
    pub(super) follows: &'a Rounded,
    pub(super) tolerance: f64,
    pub(super) wrong: Vec<usize>,
    pub(super) earlier: Vec<Fixed<'a>>,
}

impl Case<'_> {
    pub(super) fn claimed(&self, row: usize) -> &[f64] {
        self.claim.stated.matrix.row(row)
    }

    /// The wrong rows that a prediction gets right, if any. Who has left the earlier claims aside has done so for every
    /// row.
    fn fit(&self, explanation: &Explanation, predicted: &Rounded, basis: Basis) -> Option<Fit> {
        if predicted.middle.shape() != self.truth.shape() {
            return None;
        }
        let off = |r: usize| apart(self.claimed(r), predicted.middle.row(r));
        let near = |r: usize| near(self.claimed(r), predicted, r, self.tolerance);
        if basis == Basis::Truth && !self.earlier.is_empty() && !(0..self.truth.rows()).all(near) {
            return None;
        }
        let rows: Vec<usize> = self.wrong.iter().copied().filter(|&r| near(r)).collect();
        let off = rows.iter().map(|&r| off(r)).fold(0.0, f64::max);
        (!rows.is_empty()).then(|| Fit { explanation: explanation.clone(), rows, basis, off })
    }

    fn worst(&self) -> Option<Cell> {
        let cells =
            self.wrong.iter().flat_map(|&row| (0..self.truth.columns()).map(move |column| (row, column)));
        let cell = |(row, column): (usize, usize)| Cell {
            row,
            column,
            claimed: self.claimed(row)[column],
            truth: self.truth.row(row)[column],
            follows: self.follows.middle.row(row)[column],
        };
        let off = |cell: &Cell| apart(&[cell.claimed], &[cell.follows]);
        cells.map(cell).max_by(|a, b| off(a).total_cmp(&off(b)))
    }
}

/// The wrong claims that a part is computed from.
fn sources(part: Part, before: &[Judged]) -> Vec<Part> {
    let same_head = |other: Part| part.head.is_none() || other.head.is_none() || part.head == other.head;
    let wrong = |judged: &&Judged| matches!(judged.verdict, Verdict::Wrong(_));
    let parts = before.iter().filter(wrong).map(|judged| judged.claim.part);
    parts.filter(|other| part.step.depends_on(other.step) && same_head(*other)).collect()
}

/// A claim of another shape than the truth's can only be its transpose.
fn wrong_shape(claim: &Claim, truth: &Matrix, tolerance: f64) -> Diagnosis {
    let turned = claim.stated.matrix.transposed();
    let rows: Vec<usize> = (0..claim.stated.matrix.rows()).collect();
    let off = apart(turned.values(), truth.values());
    let fits = turned.shape() == truth.shape() && off <= slack(tolerance);
    let fit = Fit { explanation: Explanation::Transposed, rows: rows.clone(), basis: Basis::Truth, off };
    Diagnosis { rows, worst: None, fits: fits.then_some(fit).into_iter().collect(), tried: 1 }
}

impl Tolerance {
    /// In words.
    pub fn text(self) -> String {
        match self {
            Self::Absolute(tolerance) => format!("within {tolerance}"),
            Self::Decimals(digits) => format!("to {digits} decimals"),
            Self::AsWritten => "to the last digit written".into(),
        }
    }
}
