//! Explanations that are seen in the numbers themselves, whatever they were computed by.

use super::derive::Derived;
use super::example::{Example, Operand, Part, Step, unit};
use super::explain::{Coarse, Explanation};
use super::judge::{Basis, Case, Fit, Judged};
use super::matrix::Matrix;
use super::rounding::{apart, copy_tolerance};

/// A wrong claim and everything it may have been taken from.
pub(super) struct Suspect<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) example: &'a Example,
    pub(super) truth: &'a Derived,
    pub(super) before: &'a [Judged],
}

/// How many patterns were looked for, and those that fit.
pub(super) fn patterns<'a>(suspect: &Suspect<'a>) -> (usize, Vec<Fit>) {
    let looked_for: [fn(&Suspect<'a>) -> Option<Fit>; 4] =
        [Suspect::transposed, Suspect::sign, Suspect::copied, Suspect::too_coarse];
    (looked_for.len(), looked_for.iter().filter_map(|look| look(suspect)).collect())
}

impl Suspect<'_> {
    /// What the claim should have been, from either basis.
    fn references(&self) -> [(Basis, &Matrix); 2] {
        [(Basis::Claims, &self.case.follows.middle), (Basis::Truth, self.case.truth)]
    }

    /// The wrong rows that are right by some measure, against the reference that makes most of them so.
    fn best(&self, off: impl Fn(&[f64], &[f64]) -> f64, most: f64) -> Option<(Basis, Vec<usize>, f64)> {
        let by_basis = self.references().map(|(basis, reference)| {
            let off = |row: usize| off(self.case.claimed(row), reference.row(row));
            let near = |row: &usize| off(*row) <= most + self.reach(basis, *row);
            let rows: Vec<usize> = self.case.wrong.iter().copied().filter(near).collect();
            let off = rows.iter().map(|&row| off(row)).fold(0.0, f64::max);
            (basis, rows, off)
        });
        let best = by_basis.into_iter().rev().max_by_key(|(_, rows, _)| rows.len())?;
        (!best.1.is_empty()).then_some(best)
    }

    /// How far a row of a reference may be off, at most: what is given is exact.
    fn reach(&self, basis: Basis, row: usize) -> f64 {
        match basis {
            Basis::Claims => self.case.follows.reach_of(row).iter().copied().fold(0.0, f64::max),
            Basis::Truth => 0.0,
        }
    }

    fn transposed(&self) -> Option<Fit> {
        let turned = self.case.claim.stated.matrix.transposed();
        if turned.shape() != self.case.truth.shape() {
            return None;
        }
        let off = |(basis, reference): (Basis, &Matrix)| (basis, apart(turned.values(), reference.values()));
        let (basis, off) = self.references().map(off).into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let rows = self.case.wrong.clone();
        let reach = (0..self.case.truth.rows()).map(|row| self.reach(basis, row)).fold(0.0, f64::max);
        (off <= self.tolerance() + reach).then_some(Fit {
            explanation: Explanation::Transposed,
            rows,
            basis,
            off,
        })
    }

    fn tolerance(&self) -> f64 {
        copy_tolerance(0, self.case.tolerance)
    }

    fn sign(&self) -> Option<Fit> {
        let sizes = |row: &[f64]| row.iter().map(|x| x.abs()).collect::<Vec<_>>();
        let (basis, rows, off) = self.best(|a, b| apart(&sizes(a), &sizes(b)), self.tolerance())?;
        let turned = |row: &usize| {
            let cells = self.case.claimed(*row).iter().zip(self.reference(basis).row(*row));
            let most = self.tolerance() + self.reach(basis, *row);
            cells.filter(|(a, b)| (*a - *b).abs() > most && **a * **b < 0.0).count()
        };
        let cells = rows.iter().map(turned).sum();
        (cells > 0).then_some(Fit { explanation: Explanation::Sign { cells }, rows, basis, off })
    }

    fn too_coarse(&self) -> Option<Fit> {
        let digits = self.case.claim.stated.digits;
        // To whole numbers: only if each is the nearest one.
        let unit = if digits == 0 { 0.5 } else { unit(digits) };
        if unit <= self.case.tolerance {
            return None;
        }
        let (basis, rows, off) = self.best(apart, unit)?;
        // A row that is off by more was not rounded, and then nor were its neighbours.
        let all = rows.len() == self.case.wrong.len();
        let how = self.coarse(self.reference(basis), &rows);
        all.then_some(Fit { explanation: Explanation::TooCoarse { digits, how }, rows, basis, off })
    }

    /// What was done to rows that are right but for their last digit.
    fn coarse(&self, reference: &Matrix, rows: &[usize]) -> Coarse {
        let digits = self.case.claim.stated.digits;
        let unit = unit(digits);
        // Of one row, whether every cell was treated so.
        let all = |row: usize, treated: &dyn Fn(f64, f64) -> bool| {
            self.case.claimed(row).iter().zip(reference.row(row)).all(|(a, b)| treated(*a, *b))
        };
        let rounded = |a: f64, b: f64| (a - b).abs() <= unit * (0.5 + 1e-9);
        let cut = |a: f64, b: f64| a * b >= 0.0 && a.abs() <= b.abs() + 1e-9 && b.abs() - a.abs() < unit;
        if rows.iter().all(|&row| all(row, &rounded)) {
            return Coarse::Rounded;
        }
        match rows.iter().find(|&&row| !all(row, &cut) && !all(row, &rounded)) {
            None => Coarse::Cut,
            Some(&row) => {
                let nearest = |x: &f64| (x / unit).round() * unit;
                Coarse::Astray { row, rounded: reference.row(row).iter().map(nearest).collect() }
            }
        }
    }

    fn reference(&self, basis: Basis) -> &Matrix {
        if basis == Basis::Claims { &self.case.follows.middle } else { self.case.truth }
    }

    /// Every matrix that rows may have been copied from, the nearest first.
    fn originals(&self) -> Vec<(String, Matrix)> {
        let here = self.case.claim.part;
        let claim = |part: Part| self.before.iter().find(|judged| judged.claim.part == part);
        let claims = self.example.claims.iter().filter(|claim| claim.part.step > here.step);
        let mut originals = Vec::new();
        let earlier = Step::ALL.into_iter().rev().filter(|step| *step < here.step);
        let later = Step::ALL.into_iter().filter(|step| *step > here.step);
        for step in earlier.chain(later) {
            let part = Part { step, head: here.head.filter(|_| step != Step::Output) };
            originals
                .extend(claim(part).map(|judged| (part.to_string(), judged.claim.stated.matrix.clone())));
            originals.extend(self.truth.part(part).map(|matrix| (part.to_string(), matrix)));
        }
        originals.extend(claims.map(|claim| (claim.part.to_string(), claim.stated.matrix.clone())));
        let operands = Operand::ALL
            .into_iter()
            .filter_map(|o| Some((o.name().to_owned(), self.example.operand(o)?.clone())));
        originals.extend(operands);
        originals.push((format!("{here}, as it should be"), self.case.truth.clone()));
        originals
    }

    fn copied(&self) -> Option<Fit> {
        let tolerance = copy_tolerance(self.case.claim.stated.digits, self.case.tolerance);
        // One number is in every matrix, more or less.
        if self.case.truth.columns() < 2 {
            return None;
        }
        let from = |(name, original): (String, Matrix)| {
            let near = |here: usize, there: usize| apart(self.case.claimed(here), original.row(there));
            let copy = |&here: &usize| {
                if self.case.claimed(here).iter().all(|x| *x == 0.0) {
                    return None;
                }
                // The same row of the original is likelier than another that is as near.
                let rows = std::iter::once(here).chain(0..original.rows());
                let there = rows
                    .filter(|&there| there < original.rows())
                    .find(|&there| near(here, there) <= tolerance)?;
                Some((here, there))
            };
            let rows: Vec<(usize, usize)> = self.case.wrong.iter().filter_map(copy).collect();
            let off = rows.iter().map(|&(here, there)| near(here, there)).fold(0.0, f64::max);
            let explained = rows.iter().map(|&(here, _)| here).collect();
            let explanation = Explanation::Copied { from: name, rows };
            Fit { explanation, rows: explained, basis: Basis::Claims, off }
        };
        let fits = self.originals().into_iter().map(from).filter(|fit| !fit.rows.is_empty());
        // Of equals the first, which is the nearest.
        fits.reduce(|best, fit| if fit.rows.len() > best.rows.len() { fit } else { best })
    }
}
