//! Two weight files, weight by weight under their names in the graph, so that files with different naming schemes can be
//! compared.

use std::collections::{HashMap, HashSet};

use attnscope_checkpoint::{Checkpoint, DType, Error, ErrorKind, TensorInfo, check_memory_within};
use attnscope_graph::{AttentionStep, Dim, Model, Slot, WeightId, WeightRole};
use attnscope_run::{Counted, Limits};

use super::direct::{self, Two};
use super::frame::Frame;
use super::judge::worst;
use super::measure::{Cells, Measure, roundoff};
use super::relation::Relation;
use super::swapped_layers::swapped_layers;
use super::weight_part::weight_part;
use super::{Compared, DiffError, Divergence, Grounds, Judged, Kind, Order, Report, State, Which};

/// A weight file and its model, if it is recognised.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// Its tensors.
    pub checkpoint: &'a Checkpoint,
    /// What they are.
    pub model: Option<&'a Model>,
}

/// Relative differences up to this count as drift where nothing explains them: further training, another quantisation.
const SMALL: f64 = 0.02;
/// Weights for which a relation is looked for.
const EXPLAINED: usize = 64;

/// A tensor or a part of one, under the name by which both files have it.
#[derive(Clone)]
struct Weight<'a> {
    path: String,
    /// What it is in the model; `None` where files are compared by the names of their tensors.
    role: Option<WeightRole>,
    info: &'a TensorInfo,
    rows: Option<std::ops::Range<usize>>,
}

/// What replaces a weight that a file does not have under its name.
enum Instead<'a> {
    /// One that several nodes share.
    Tied(Weight<'a>),
    /// A computed table, which only some files of a family store.
    Computed,
    Nothing,
}

impl<'a> File<'a> {
    /// Every weight, in the order in which the model uses them.
    fn weights(&self, by_graph: bool) -> Vec<Weight<'a>> {
        let tensors = self.checkpoint.tensors();
        let Some(model) = self.model.filter(|_| by_graph) else {
            let named =
                |info: &'a TensorInfo| Weight { path: info.name.clone(), role: None, info, rows: None };
            return tensors.iter().map(named).collect();
        };
        let slots = model.binding.iter();
        slots.filter_map(|(id, slot)| self.bound(slot, model.graph.weight(id).role)).collect()
    }

    fn bound(&self, slot: &Slot, role: WeightRole) -> Option<Weight<'a>> {
        let (Slot::Bound(found) | Slot::Mismatched { found, .. }) = slot else { return None };
        let info = self.checkpoint.tensors().get(found.tensor)?;
        Some(Weight { path: role.to_string(), role: Some(role), info, rows: found.rows.clone() })
    }

    /// What the model has for a weight that it does not have under its own name.
    fn instead(&self, weight: &Weight<'_>) -> Instead<'a> {
        let known = self
            .model
            .zip(weight.role)
            .and_then(|(model, role)| Some((model, model.graph.node(model.graph.at(role.owner)?), role)));
        let Some((model, node, role)) = known else { return Instead::Nothing };
        if node.weights.is_empty() {
            return Instead::Computed;
        }
        let is_kind = |id: &&WeightId| model.graph.weight(**id).role.kind == role.kind;
        let tied = node.weights.iter().find(is_kind).and_then(|&id| self.bound(model.binding.slot(id), role));
        tied.map_or(Instead::Nothing, Instead::Tied)
    }

    fn read(&self, weight: &Weight<'_>) -> Result<Vec<f64>, Error> {
        let all = self.checkpoint.read_f64(weight.info)?;
        let Some(rows) = &weight.rows else { return Ok(all) };
        let row = all.len() / weight.info.shape.first().copied().unwrap_or(1).max(1);
        Ok(all.get(rows.start * row..rows.end * row).unwrap_or_default().to_vec())
    }
}

impl Weight<'_> {
    /// Without dimensions of one, which files add and drop.
    fn shape(&self) -> Vec<usize> {
        let mut shape = self.info.shape.clone();
        if let (Some(rows), Some(first)) = (&self.rows, shape.first_mut()) {
            *first = rows.len();
        }
        shape.retain(|&n| n != 1);
        shape
    }

    fn name(&self) -> String {
        match &self.rows {
            Some(rows) => format!("{}[{}..{}]", self.info.name, rows.start, rows.end),
            None => self.info.name.clone(),
        }
    }

    /// The absolute error that a type allows: half the distance between its numbers next to 0.
    fn least(&self) -> f64 {
        match self.info.dtype {
            DType::F16 => 0.5f64.powi(25),
            DType::F8E4M3 => 0.5f64.powi(10),
            DType::F8E5M2 => 0.5f64.powi(17),
            _ => 0.0,
        }
    }

    /// The relative error that a type allows; for blocks with a shared scale, about that of their bits.
    fn unit(&self) -> f64 {
        match self.info.dtype {
            dtype if dtype.is_plain() => roundoff(dtype),
            DType::Q8_0 | DType::AprQ8 => 0.5f64.powi(8),
            DType::Q6K => 0.5f64.powi(6),
            DType::Q5_0 | DType::Q5_1 | DType::Q5K => 0.5f64.powi(5),
            _ => 0.5f64.powi(4),
        }
    }
}

/// Compares two weight files.
///
/// # Errors
/// When a tensor cannot be read, the files have no weight in common, or it is cancelled.
pub fn compare_weights(a: File<'_>, b: File<'_>, limits: &Limits) -> Result<Report, DiffError> {
    let by_graph = a.model.is_some() && b.model.is_some();
    let all = [a.weights(by_graph), b.weights(by_graph)];
    let mut comparison = Comparison {
        files: [a, b],
        all: &all,
        limits,
        nodes: Vec::new(),
        first: None,
        explained: 0,
        moved: Vec::new(),
    };
    let of_b: HashMap<&str, &Weight<'_>> = all[1].iter().rev().map(|w| (w.path.as_str(), w)).collect();
    for weight in &all[0] {
        match of_b.get(weight.path.as_str()) {
            Some(other) => comparison.compare(weight, other)?,
            None => match b.instead(weight) {
                Instead::Tied(other) => comparison.compare(weight, &other)?,
                Instead::Computed => {}
                Instead::Nothing => comparison.missing(weight, Which::B),
            },
        }
    }
    let of_a: HashSet<&str> = all[0].iter().map(|weight| weight.path.as_str()).collect();
    for weight in all[1].iter().filter(|weight| !of_a.contains(weight.path.as_str())) {
        match a.instead(weight) {
            Instead::Tied(other) => comparison.compare(&other, weight)?,
            Instead::Computed => {}
            Instead::Nothing => comparison.missing(weight, Which::A),
        }
    }
    let Comparison { nodes, mut first, moved, .. } = comparison;
    if let (Some(first), Some(swapped)) = (&mut first, swapped_layers(&nodes, &moved)) {
        first.relation = Some(swapped);
    }
    if !nodes.iter().any(|node| node.names.iter().all(|name| !name.is_empty())) {
        let some = |file: &File<'_>| {
            let names: Vec<&str> =
                file.checkpoint.tensors().iter().take(4).map(|t| t.name.as_str()).collect();
            (file.checkpoint.path().to_owned(), names.join(", "))
        };
        return Err(DiffError::NothingMatched { a: some(&a), b: some(&b), proposal: Vec::new() });
    }
    let left = [0, 1].map(|which: usize| {
        let used: HashSet<&str> = nodes.iter().map(|n| n.names[which].as_str()).collect();
        all[which].iter().map(Weight::name).filter(|name| !used.contains(name.as_str())).collect()
    });
    Ok(Report {
        first,
        later: Vec::new(),
        unusual: Vec::new(),
        other_models: None,
        inputs: None,
        short: Vec::new(),
        nodes,
        left,
        judged: Judged::Weights,
        only_by_values: None,
        unused_model: None,
        order: Order::Graph,
        largest: Vec::new(),
        unused_lines: Vec::new(),
        proposal: None,
    })
}

struct Comparison<'c, 'a> {
    files: [File<'a>; 2],
    all: &'c [Vec<Weight<'a>>; 2],
    limits: &'c Limits,
    nodes: Vec<Compared>,
    first: Option<Divergence>,
    explained: usize,
    /// Weights of B that belong to another layer in A, each with its path in A.
    moved: Vec<(String, String)>,
}

impl Comparison<'_, '_> {
    fn compare(&mut self, a: &Weight<'_>, b: &Weight<'_>) -> Result<(), DiffError> {
        self.limits.cancel.check().map_err(|_| DiffError::Cancelled)?;
        self.limits.progress.tell(
            Counted::Compared,
            self.nodes.len(),
            self.all[0].len().max(self.all[1].len()),
        );
        // Memory for both in f64, the bound, and an edited copy of one.
        let need = (a.info.elements() as u64 + b.info.elements() as u64).saturating_mul(16);
        check_memory_within(need, self.limits.memory).map_err(|shortage| {
            let place = format!("comparing tensor {:?}", a.info.name);
            Error::new(self.files[0].checkpoint.file_of(a.info), ErrorKind::Shortage { place, shortage })
        })?;
        let values = [self.files[0].read(a)?, self.files[1].read(b)?];
        let (shape, other) = (a.shape(), b.shape());
        let (unit, least) = (a.unit().max(b.unit()), a.least().max(b.least()));
        let [left, right] = &values;
        let mut measure = Measure::default();
        let comparable = shape == other;
        if comparable {
            measure.take(left, right, &Cells::default());
        } else {
            measure.apart = left.len().max(right.len());
        }
        let usual = if unit > 1e-3 { rms(left) } else { 0.0 };
        let allowed: Vec<f64> = left.iter().map(|x| unit * (x.abs() + usual) + least).collect();
        let close = |((a, b), allowed): ((&f64, &f64), &f64)| {
            a == b || (a - b).abs() <= *allowed || (a.is_nan() && b.is_nan())
        };
        let same = comparable && left.iter().zip(right).zip(&allowed).all(close);
        let mut seen_as = None;
        let mut state = if measure.is_same() { State::Same } else { State::Rounding };
        if measure.is_same() && a.info.dtype != b.info.dtype {
            seen_as = Some(format!("{} and {}", a.info.dtype, b.info.dtype));
        }
        if !same {
            let relation = match self.explained < EXPLAINED {
                true => self.relation(a, b, &values, &allowed)?,
                false => None,
            };
            self.explained += 1;
            state = if self.first.is_none() { State::First } else { State::After };
            seen_as = relation.as_ref().map(|r| r.sentence("B"));
            if let Some(Relation::OtherLayer { node }) = &relation {
                self.moved.push((a.path.clone(), node.clone()));
            }
            if self.first.is_none() {
                self.first = Some(self.divergence(a, relation, &measure));
            }
        } else if state == State::Rounding {
            seen_as = Some(format!("{} and {}", a.info.dtype, b.info.dtype));
        }
        let names = [a.name(), b.name()];
        let node = a.path.clone();
        self.nodes.push(Compared { node, names, shape, measure, state, seen_as, by_values: false });
        Ok(())
    }

    /// A weight that one side lacks.
    fn missing(&mut self, weight: &Weight<'_>, side: Which) {
        let cells = weight.shape().iter().product();
        let measure = Measure { apart: cells, cells, a: f64::NAN, b: f64::NAN, ..Measure::default() };
        let state = if self.first.is_none() { State::First } else { State::After };
        if self.first.is_none() {
            let mut first = self.divergence(weight, Some(Relation::MissingWeight), &measure);
            first.odd_one = side;
            self.first = Some(first);
        }
        let (own, none) = (weight.name(), String::new());
        let names = if side == Which::B { [own, none] } else { [none, own] };
        let seen_as = Some(Relation::MissingWeight.sentence(side.name()));
        self.nodes.push(Compared {
            node: weight.path.clone(),
            names,
            shape: weight.shape(),
            measure,
            state,
            seen_as,
            by_values: false,
        });
    }

    fn divergence(&self, a: &Weight<'_>, relation: Option<Relation>, measure: &Measure) -> Divergence {
        let small = relation.is_none() && measure.apart == 0 && measure.relative() <= SMALL;
        Divergence {
            row: self.nodes.len(),
            node: a.path.clone(),
            kind: if small { Kind::Drift } else { Kind::Bug },
            grounds: Grounds::Weights,
            relation,
            cause: None,
            also: Vec::new(),
            odd_one: Which::B,
            reads: Vec::new(),
            jumps: false,
            past_tolerance_at: None,
        }
    }

    fn relation(
        &self,
        a: &Weight<'_>,
        b: &Weight<'_>,
        [left, right]: &[Vec<f64>; 2],
        allowed: &[f64],
    ) -> Result<Option<Relation>, DiffError> {
        if let Some(found) = self.elsewhere(a, b, right)? {
            return Ok(Some(found));
        }
        let shape = a.shape();
        let turned = shape.len() == 2 && b.shape() == [shape[1], shape[0]];
        if turned
            && close_to(
                &transposed(left, shape[0], shape[1]),
                right,
                &transposed(allowed, shape[0], shape[1]),
            )
        {
            return Ok(Some(Relation::Transpose { weight: Some(a.path.clone()) }));
        }
        if shape != b.shape() {
            return Ok(Some(Relation::OtherShape { shapes: [shape, b.shape()] }));
        }
        Ok(self.in_place(a, &shape, left, right, allowed))
    }

    /// Relations between two weights of one shape: along rows first, which are output features, then along columns.
    fn in_place(
        &self,
        a: &Weight<'_>,
        shape: &[usize],
        left: &[f64],
        right: &[f64],
        allowed: &[f64],
    ) -> Option<Relation> {
        let heads = self.heads(a);
        let frame = Frame::of_sizes(self.files[0].model.map(|m| m.sizes.clone()).unwrap_or_default());
        let two =
            |shape, expected, found, allowed| Two { shape, expected, found, allowed, masked: false, heads };
        let [rows, columns] = *shape else {
            let all = [1, left.len()];
            let two = two(&all, left, right, allowed);
            return direct::of_weights(&two, &frame)
                .or_else(|| weight_part(&a.path, shape, [left, right], allowed));
        };
        let [l, r, w] = [left, right, allowed].map(|values| transposed(values, rows, columns));
        let turned = [columns, rows];
        let by_row = two(&turned, &l, &r, &w);
        direct::of_weights(&by_row, &frame)
            .or_else(|| direct::of_weights(&two(shape, left, right, allowed), &frame))
            .or_else(|| weight_part(&a.path, shape, [left, right], allowed))
    }

    /// Whether B has here what A has under another name.
    fn elsewhere(
        &self,
        a: &Weight<'_>,
        b: &Weight<'_>,
        found: &[f64],
    ) -> Result<Option<Relation>, DiffError> {
        let layer = |path: &str| attnscope_graph::NodePath::from(path.to_owned()).layer();
        if found.len() < 2 || found.iter().all(|x| *x == found[0]) {
            return Ok(None);
        }
        let own = layer(&a.path);
        let mut others: Vec<&Weight<'_>> =
            self.all[0].iter().filter(|w| w.path != a.path && w.shape() == b.shape()).collect();
        others.sort_by_key(|w| layer(&w.path) != own);
        for other in others {
            let values = self.files[0].read(other)?;
            let (unit, least) = (other.unit().max(b.unit()), other.least().max(b.least()));
            let allowed: Vec<f64> = values.iter().map(|x| unit * x.abs() + least).collect();
            if close_to(&values, found, &allowed) {
                let node = other.path.clone();
                return Ok(Some(match layer(&other.path) == own {
                    true => Relation::OtherWeights { node },
                    false => Relation::OtherLayer { node },
                }));
            }
        }
        Ok(None)
    }

    /// The heads of the attention that a weight belongs to.
    fn heads(&self, weight: &Weight<'_>) -> Option<usize> {
        let model = self.files[0].model?;
        let (place, step) = weight.role?.owner.attention()?;
        model.sizes.get(Dim::Heads(place.stack)).filter(|_| step != AttentionStep::Norm)
    }
}

fn close_to(expected: &[f64], found: &[f64], allowed: &[f64]) -> bool {
    expected.len() == found.len() && worst(expected, found, allowed, false) <= 1.0
}

fn rms(values: &[f64]) -> f64 {
    (values.iter().map(|x| x * x).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

/// [rows, columns] as [columns, rows].
fn transposed(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns).map(|i| values[i % rows * columns + i / rows]).collect()
}
