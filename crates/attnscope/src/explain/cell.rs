//! The arithmetic of one cell, written out.

use crate::answer::Page;
use attnscope_checkpoint::Remedy;
use attnscope_diagnose::cell::{Arithmetic, Cells, Step, Term, TermForm, needed};
use attnscope_graph::{Dim, Node, NodeId, Role, ShapeText, Side};
use attnscope_run::trace::Precision;

use super::Subject;
use crate::failure::{Argument, Failure};
use crate::ready::Token;
use crate::trace::{in_f64, rounding_of};

/// The arithmetic of a cell of a run that kept what it needs.
pub(crate) fn arithmetic(subject: &Subject<'_>, node: NodeId, at: &[usize]) -> Result<Arithmetic, Failure> {
    let Some(run) = &subject.run else {
        let failure = Failure::new("a cell has a value only in a run", Remedy::InputForCell);
        return Err(failure.about(Argument::Cell));
    };
    arithmetic_of(
        &Cells {
            model: subject.model,
            weights: run.ready.weights(),
            input: &run.input,
            sizes: &subject.sizes,
            precision: rounding_of(run.precision),
            tensors: &in_f64(&run.kept, &needed(subject.graph(), node)),
        },
        node,
        at,
    )
}

/// The arithmetic of a cell, or why there is none.
pub(crate) fn arithmetic_of(cells: &Cells<'_>, node: NodeId, at: &[usize]) -> Result<Arithmetic, Failure> {
    cells.arithmetic(node, at).map_err(|e| {
        let dims = &cells.model.graph.node(node).dims;
        let text = |symbolic: bool| ShapeText { dims, sizes: cells.sizes, symbolic }.to_string();
        Failure::new(
            e.to_string(),
            format!("the shape is {} = {}; indices count from 0", text(true), text(false)),
        )
        .about(Argument::Cell)
    })
}

/// The cell for readers.
pub(crate) fn cell_page(subject: &Subject<'_>, node: NodeId, told: &Arithmetic, full: bool) -> Page {
    let Node { dims, role, .. } = subject.graph().node(node);
    let fixed = if *role == Role::Logits { "class" } else { "feature" };
    let row = dims.iter().position(|&dim| dim == Dim::Batch).map_or(0, |i| told.at[i]);
    let place: Vec<String> =
        dims.iter().zip(&told.at).map(|(&dim, &index)| place(subject, row, fixed, dim, index)).collect();
    let mut page = Page::new(format!("{}[{}]", told.node, joined(&told.at)));
    page.facts([("cell", Some(place.join(", "))), ("stored", Some(digits(told.stored)))]);
    for (i, step) in told.steps.iter().enumerate() {
        page.words(format!("{}. {} = {}", i + 1, step.name, step.formula));
        if !step.terms.is_empty() {
            page.table(&["term", "written", "#value"], term_rows(step, full));
        }
        page.formula(format!("{} = {}", step.name, digits(step.value)));
    }
    let precision = subject.run.as_ref().map_or(Precision::F32, |run| run.precision);
    page.words(verdict(told, precision));
    page
}

/// `t 2 (▁Mann)`.
fn place(subject: &Subject<'_>, row: usize, fixed: &str, dim: Dim, index: usize) -> String {
    if let Dim::Fixed(size) = dim {
        // A size of 1 is a dimension along which there is nothing to choose.
        return if size == 1 { format!("{index} of 1") } else { format!("{fixed} {index}") };
    }
    let letter = dim.symbol(&subject.sizes).to_lowercase();
    if let (Dim::Vocab(side), Some(run)) = (dim, &subject.run) {
        let piece = |t: &attnscope_run::Tokenizer| t.piece(side, u32::try_from(index).unwrap_or(u32::MAX));
        let token = run.ready.tokenizer.as_ref().and_then(piece).map(|piece| format!(" ({piece})"));
        return format!("{letter} {index}{}", token.unwrap_or_default());
    }
    let side = [Side::Source, Side::Target].into_iter().find(|side| side.length() == dim);
    let token = side.and_then(|side| subject.row(side, row)?.get(index).map(Token::label));
    match token {
        Some(token) => format!("{letter} {index} ({token})"),
        None => format!("{letter} {index}"),
    }
}

/// How far the arithmetic, in f64, is from what the run stored.
fn verdict(told: &Arithmetic, precision: Precision) -> String {
    let (derived, stored) = (told.value(), told.stored);
    if derived == stored || (derived.is_nan() && stored.is_nan()) {
        return format!("The run stored {}: the same.", digits(stored));
    }
    let name = precision.name();
    let why = match told.agrees() {
        true => format!("which is {name}'s rounding"),
        false => format!("which is more than {name}'s rounding explains"),
    };
    format!(
        "The run stored {}; the arithmetic above, in f64, gives {}: {:.1e} apart, {why}.",
        digits(stored),
        digits(derived),
        (derived - stored).abs()
    )
}

/// Up to this many terms are all shown: products of features are many and similar, keys are tokens that a reader knows.
const MOST_PRODUCTS: usize = 10;
const MOST_KEYS: usize = 24;
/// Terms shown at each end of more.
const EDGE: usize = 3;

/// The terms; of many, the middle is replaced by its sum, so that the printed numbers add up.
fn term_rows(step: &Step, full: bool) -> Vec<Vec<String>> {
    let terms = &step.terms;
    let row = |t: &Term| vec![t.label.clone(), written(&t.written), digits(t.value)];
    let are_keys = terms.first().is_some_and(|t| t.label.starts_with("key"));
    let most = if are_keys { MOST_KEYS } else { MOST_PRODUCTS };
    if full || terms.len() <= most {
        return terms.iter().map(row).collect();
    }
    let (middle, last) = (&terms[EDGE..terms.len() - EDGE], &terms[terms.len() - EDGE..]);
    let folded: f64 = middle.iter().map(|t| t.value).sum();
    let fold = vec!["…".to_owned(), format!("{} more, added up", middle.len()), digits(folded)];
    terms[..EDGE].iter().map(row).chain([fold]).chain(last.iter().map(row)).collect()
}

fn written(how: &TermForm) -> String {
    match *how {
        TermForm::Product(a, b) => format!("{} × {}", digits(a), digits(b)),
        TermForm::Quotient(a, b) => format!("{} / {}", digits(a), digits(b)),
        TermForm::Exp(a, b) => format!("e^({} - {})", digits(a), digits(b)),
        TermForm::Itself => String::new(),
    }
}

/// Enough digits for sums to be checked by hand, in signs that other programs read as a number.
fn digits(x: f64) -> String {
    match x {
        _ if x == f64::NEG_INFINITY => "-inf".into(),
        _ if x == f64::INFINITY => "inf".into(),
        _ if x.is_nan() => "nan".into(),
        _ if x != 0.0 && (x.abs() < 1e-4 || x.abs() >= 1e6) => format!("{x:.6e}"),
        _ => format!("{x:.7}"),
    }
}

fn joined(at: &[usize]) -> String {
    at.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
