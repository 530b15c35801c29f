//! What a node would be if a step before it were different: computed from a side's own tensors, each value with its rounding
//! bound. Large nodes are computed at a sample of positions first.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use attnscope_checkpoint::Error;
use attnscope_graph::{Node, Op};
use attnscope_run::{Formula, Kept};

use super::judge::{FAR, Judge, Local, TAILS, Tensors, worst};
use crate::rounding::{Bounded, BoundedInput, Computed, Errors, Rounding};

/// Positions of a sample.
const POSITIONS: usize = 8;
/// A node with fewer positions than this is computed whole at once.
const LONG: usize = 8 * POSITIONS;

/// A tensor and how far rounding may have moved each value.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) kept: Arc<Kept>,
    pub(super) error: Arc<Errors>,
}

impl Made {
    pub(super) fn exact(kept: Arc<Kept>) -> Self {
        Self { kept, error: Arc::new(Errors::None) }
    }

    pub(super) fn new(kept: Kept, error: Vec<f64>) -> Self {
        Self { kept: Arc::new(kept), error: Arc::new(Errors::Each(error)) }
    }

    /// The same shape, with each value and its error mapped.
    pub(super) fn map(&self, cell: impl Fn(usize, f64, f64) -> (f64, f64)) -> Self {
        let cells = self.kept.values.iter().enumerate();
        let (values, error) = cells.map(|(i, &x)| cell(i, x, self.error.at(i))).unzip();
        Self::new(Kept { shape: self.kept.shape.clone(), values }, error)
    }
}

/// Which positions of a tensor are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Extent {
    Whole,
    Sample,
}

/// An edited step that replaces one of the graph's.
pub(super) struct Edit<'e> {
    pub(super) step: usize,
    pub(super) make: Box<Make<'e>>,
}

/// Makes the tensor of an edited step; `None` where it cannot be made.
pub(super) type Make<'e> = dyn Fn(&Trial<'_, '_, '_>, Extent) -> Result<Option<Made>, Error> + 'e;

/// Whether an explanation fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Test {
    /// Every cell equals what was found, within rounding; the first so many positions are not compared.
    Equal { from: usize },
    /// What was found is this much closer to it, in root mean square, than to the expected tensor: for steps that round in
    /// their own way, where a few cells may differ.
    Closer(f64),
}

pub(super) struct Lab<'l, 'a> {
    pub(super) judge: &'l Judge<'a>,
    /// The node that was found to differ, and what is known of it.
    pub(super) target: usize,
    local: &'l Local,
    tensors: Tensors<'l>,
    given: Tensors<'l>,
    rounding: Rounding,
    sampled: Option<Formula<'a>>,
    /// What was found, expected and allowed at the sample.
    at_sample: [Kept; 3],
    known: RefCell<HashMap<(usize, Extent), Option<Made>>>,
}

impl<'l, 'a> Lab<'l, 'a> {
    pub(super) fn new(
        judge: &'l Judge<'a>,
        target: usize,
        local: &'l Local,
        [tensors, given]: [Tensors<'l>; 2],
        rounding: Rounding,
    ) -> Self {
        let sampled = sample(local).map(|positions| judge.formula.at_positions(positions));
        let cut = |values: &Vec<f64>| {
            let whole = Kept { shape: local.expected.shape.clone(), values: values.clone() };
            sampled
                .as_ref()
                .map_or_else(|| Kept { shape: vec![], values: vec![] }, |formula| formula.picked(&whole))
        };
        let at_sample = [cut(&local.found.values), cut(&local.expected.values), cut(&local.allowed)];
        Self { judge, target, local, tensors, given, rounding, sampled, at_sample, known: RefCell::default() }
    }

    /// The extents at which an explanation must fit, the cheapest first.
    fn extents(&self) -> &'static [Extent] {
        match self.sampled {
            Some(_) => &[Extent::Sample, Extent::Whole],
            None => &[Extent::Whole],
        }
    }

    fn formula(&self, extent: Extent) -> &Formula<'a> {
        self.sampled.as_ref().filter(|_| extent == Extent::Sample).unwrap_or(self.judge.formula)
    }

    /// A whole tensor at the positions of an extent.
    fn cut(&self, kept: Arc<Kept>, extent: Extent) -> Arc<Kept> {
        match extent {
            Extent::Whole => kept,
            Extent::Sample => Arc::new(self.formula(extent).picked(&kept)),
        }
    }

    /// Whether the edited steps explain what was found: at the sample, then everywhere.
    pub(super) fn explains(&self, edits: &[Edit<'_>], test: Test) -> Result<bool, Error> {
        for &extent in self.extents() {
            let trial = Trial::new(self, edits);
            let Some(made) = trial.value(self.target, extent)? else { return Ok(false) };
            if !self.passes(&made, test, extent) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn passes(&self, made: &Made, test: Test, extent: Extent) -> bool {
        let local = self.local;
        let [found, expected, allowed]: [&[f64]; 3] = match (extent, &self.at_sample) {
            (Extent::Sample, [found, expected, allowed]) => {
                [&found.values, &expected.values, &allowed.values]
            }
            (Extent::Whole, _) => [&local.found.values, &local.expected.values, &local.allowed],
        };
        if found.len() != made.kept.values.len() {
            return false;
        }
        match test {
            Test::Equal { from } => {
                let ignored = self.ignored(&made.kept.shape, from, extent);
                let masked = self.judge.frame.is_masked(self.target);
                let off = |values: &[f64], error: &dyn Fn(usize) -> f64, counts: &dyn Fn(usize) -> bool| {
                    // Padding does not matter.
                    let skipped = |i: usize| allowed[i].is_infinite() || ignored(i) || !counts(i);
                    let own = |i: usize| if skipped(i) { f64::INFINITY } else { error(i) };
                    let own: Vec<f64> = (0..found.len()).map(own).collect();
                    worst(values, found, &own, masked)
                };
                // A candidate's bounds are also composed, and grow with its values.
                let most = self.local.spread.map_or(f64::INFINITY, |spread| {
                    let size =
                        |values: &[f64]| values.iter().filter(|x| x.is_finite()).map(|x| x * x).sum::<f64>();
                    let larger = (size(&made.kept.values) / size(expected).max(f64::MIN_POSITIVE)).sqrt();
                    TAILS * spread * larger.max(1.0)
                });
                let error = |i: usize| made.error.at(i).min(most);
                if off(&made.kept.values, &error, &|_| true) <= 1.0 {
                    return true;
                }
                // A mistake that mixes positions also mixes in padding, in which the two sides may differ.
                let Some(full) =
                    self.judge.frame.full_rows().filter(|rows| made.kept.shape.first() == Some(&rows.len()))
                else {
                    return false;
                };
                let cells = found.len() / full.len().max(1);
                let in_full = |i: usize| full[i / cells.max(1)];
                off(&made.kept.values, &error, &in_full) <= 1.0
                    && off(expected, &|i| allowed[i], &in_full) > FAR
            }
            Test::Closer(much) => {
                let distance = |values: &[f64]| -> f64 {
                    let cells = values.iter().zip(found).zip(allowed);
                    cells.filter(|(_, allowed)| allowed.is_finite()).map(|((a, b), _)| (a - b).powi(2)).sum()
                };
                let (near, far) = (distance(&made.kept.values).sqrt(), distance(expected).sqrt());
                near.is_finite() && far.is_finite() && near < much * far
            }
        }
    }

    /// Whether a cell is at one of the first so many positions.
    fn ignored(&self, shape: &[usize], from: usize, extent: Extent) -> Box<dyn Fn(usize) -> bool> {
        let [.., length, width] = *shape else { return Box::new(|_| false) };
        let positions = self.formula(extent).positions().map(<[usize]>::to_vec);
        Box::new(move |i: usize| {
            let row = i / width.max(1) % length.max(1);
            let position = positions.as_ref().and_then(|all| all.get(row).copied()).unwrap_or(row);
            position < from
        })
    }

    /// A node as it is without any edit.
    pub(super) fn unedited(&self, node: usize, extent: Extent) -> Result<Option<Made>, Error> {
        Trial::new(self, &[]).value(node, extent)
    }

    /// A node with its own bound.
    pub(super) fn evaluate(
        &self,
        node: &Node,
        inputs: &[Made],
        weights: Option<&[&[f32]]>,
        extent: Extent,
    ) -> Option<Made> {
        let own;
        let weights = match weights {
            Some(weights) => weights,
            None => {
                own = self.judge.weights_of(node)?;
                &own
            }
        };
        let formula = self.formula(extent);
        let kept: Vec<Arc<Kept>> = inputs.iter().map(|made| made.kept.clone()).collect();
        let output = formula.compute(node, &kept, weights).ok()?;
        let readings: Vec<BoundedInput<'_>> =
            inputs.iter().map(|made| BoundedInput { kept: &made.kept, error: &made.error }).collect();
        let of = Computed { formula, node, inputs: &readings, weights, output: &output };
        let error = self.rounding.bounds(of).all();
        Some(Made::new(output, error))
    }

    /// A tensor that the side has, or was given.
    fn dumped(&self, node: usize) -> Result<Option<Arc<Kept>>, Error> {
        if node == self.target {
            return Ok(None);
        }
        let frame = self.judge.frame;
        match self.tensors.get(frame, node)? {
            None if matches!(self.judge.node(node).op, Op::Ids(_) | Op::Features) => {
                self.given.get(frame, node)
            }
            value => Ok(value),
        }
    }
}

/// One set of edits, tried.
pub(super) struct Trial<'t, 'l, 'a> {
    pub(super) lab: &'t Lab<'l, 'a>,
    edits: &'t [Edit<'t>],
    /// Nodes before every edit are the same in all trials.
    first: usize,
    made: RefCell<HashMap<(usize, Extent), Option<Made>>>,
}

impl<'t, 'l, 'a> Trial<'t, 'l, 'a> {
    fn new(lab: &'t Lab<'l, 'a>, edits: &'t [Edit<'t>]) -> Self {
        let first = edits.iter().map(|edit| edit.step).min().unwrap_or(usize::MAX);
        Self { lab, edits, first, made: RefCell::default() }
    }

    /// A node's tensor: edited, the side's own, or computed.
    pub(super) fn value(&self, node: usize, extent: Extent) -> Result<Option<Made>, Error> {
        let extent = if self.lab.sampled.is_some() { extent } else { Extent::Whole };
        let memory = if node < self.first { &self.lab.known } else { &self.made };
        if let Some(made) = memory.borrow().get(&(node, extent)) {
            return Ok(made.clone());
        }
        let edit = self.edits.iter().find(|edit| edit.step == node);
        let made = match edit {
            Some(edit) => (edit.make)(self, extent)?,
            None => match self.lab.dumped(node)? {
                Some(kept) => {
                    let Bounded { kept, error } = self.lab.tensors.bounded(self.lab.judge, node, kept);
                    Some(self.cut(Made { kept, error: Arc::new(error) }, extent))
                }
                None => self.computed(self.lab.judge.node(node), None, extent)?,
            },
        };
        memory.borrow_mut().insert((node, extent), made.clone());
        Ok(made)
    }

    /// The position of a row of a tensor.
    pub(super) fn position(&self, row: usize, extent: Extent) -> usize {
        let extent = if self.lab.sampled.is_some() { extent } else { Extent::Whole };
        let positions = self.lab.formula(extent).positions();
        positions.and_then(|all| all.get(row).copied()).unwrap_or(row)
    }

    /// A node, or an edited copy of one, computed from its inputs.
    pub(super) fn computed(
        &self,
        node: &Node,
        weights: Option<&[&[f32]]>,
        extent: Extent,
    ) -> Result<Option<Made>, Error> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, id) in node.inputs.iter().enumerate() {
            let extent = if node.op.facets().reads_input_whole(i) { Extent::Whole } else { extent };
            match self.value(id.index(), extent)? {
                Some(made) => inputs.push(made),
                None => return Ok(None),
            }
        }
        Ok(self.lab.evaluate(node, &inputs, weights, extent))
    }

    /// A whole tensor at the positions of an extent.
    pub(super) fn cut(&self, made: Made, extent: Extent) -> Made {
        if extent == Extent::Whole || self.lab.sampled.is_none() {
            return made;
        }
        if matches!(*made.error, Errors::None) {
            return Made::exact(self.lab.cut(made.kept, extent));
        }
        let error = (0..made.kept.values.len()).map(|i| made.error.at(i)).collect();
        let error = Arc::new(Kept { shape: made.kept.shape.clone(), values: error });
        let error = Errors::Each(self.lab.cut(error, extent).values.clone());
        Made { kept: self.lab.cut(made.kept, extent), error: Arc::new(error) }
    }
}

/// The sample of positions of a long node: where the error is largest, the ends, and some between.
fn sample(local: &Local) -> Option<Vec<usize>> {
    let [_, .., length, width] = local.expected.shape[..] else { return None };
    if length < LONG {
        return None;
    }
    let off = |i: usize| {
        let off = (local.expected.values[i] - local.found.values[i]).abs() / local.allowed[i];
        if off.is_nan() { 0.0 } else { off }
    };
    let most = (0..local.found.values.len()).max_by(|&a, &b| off(a).total_cmp(&off(b)))?;
    let mut positions: Vec<usize> = (0..POSITIONS - 1).map(|i| i * (length - 1) / (POSITIONS - 2)).collect();
    positions.push(most / width.max(1) % length);
    positions.sort_unstable();
    positions.dedup();
    Some(positions)
}
