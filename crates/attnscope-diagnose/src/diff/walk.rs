//! The walk itself: every node that both sides have is measured, and one that differs is put before the judge. It does not
//! stop at the first bug: what comes after is judged by its own inputs, too.

use super::direct::{self, Two};
use super::frame::Frame;
use super::grain::Grain;
use super::judge::{COARSE, FAR, Judge, Local, Memory, Tensors, close, relative_rms};
use super::measure::{Cells, FLOOR, Measure, roundoff};
use super::pair::{Bindings, compare, load, ratio};
use super::relation::Relation;
use super::rewired::{Found, Suspect};
use super::side::Side;
use super::{Compared, DiffError, Divergence, Explanation, Grounds, Kind, Options, State, Unusual, Which};
use crate::rounding::Precision;

/// A difference that grows by no more than this from a node's inputs is theirs.
const CARRIED: f64 = 2.0;
/// Without the means to compute a node again, a step is a growth by this much.
const STEP: f64 = 30.0;

pub(super) struct Walk<'w, 'a> {
    sides: [&'w Side; 2],
    frame: &'w Frame,
    bindings: &'w mut [Bindings; 2],
    judge: Option<&'w Judge<'a>>,
    options: &'w Options,
    memories: &'w [Memory; 2],
    /// For each node its own difference, or the largest of the nodes before it that both sides have.
    carried: Vec<Carried>,
    rows: Vec<Compared>,
    /// Nodes of which one side holds a shorter type's worth.
    rounded: Vec<(usize, Relation)>,
    /// Of the rows, those whose difference was computed again and is rounding.
    explained: Vec<bool>,
}

/// What a walk found.
pub(super) struct Walked {
    /// Every compared node.
    pub(super) rows: Vec<Compared>,
    /// The first at which the sides part.
    pub(super) first: Option<Divergence>,
    /// Nodes after it that do not follow from their inputs, either.
    pub(super) later: Vec<String>,
    /// Nodes that are outside of their bound, but not far.
    pub(super) unusual: Vec<Unusual>,
}

/// What a node hands on to those that read it.
#[derive(Clone, Copy, Default)]
struct Carried {
    /// The difference of finite values, in terms of the largest.
    relative: f64,
    /// Whether there are cells in which one side alone has a number. What is finite beside them is still compared.
    apart: bool,
    /// Whether it was computed from a node that does not follow from its inputs.
    tainted: bool,
}

/// What became of a node that differs.
enum Verdict {
    /// Computed again: nothing but rounding.
    Explained,
    /// Nothing but rounding as far as one can see, to a shorter type where a relation says so.
    Rounding(Option<Relation>),
    /// Outside of its bound, in terms of it, but not far; or inside, and like a known mistake all the same.
    Unusual(f64, usize, Option<Relation>),
    /// What says so, what explains it, and which side it is.
    Step(Grounds, Option<Found>, usize),
}

impl<'w, 'a> Walk<'w, 'a> {
    pub(super) fn new(
        sides: [&'w Side; 2],
        frame: &'w Frame,
        bindings: &'w mut [Bindings; 2],
        judge: Option<&'w Judge<'a>>,
        options: &'w Options,
        memories: &'w [Memory; 2],
    ) -> Self {
        Self {
            sides,
            frame,
            bindings,
            judge,
            options,
            memories,
            carried: Vec::new(),
            rows: Vec::new(),
            rounded: Vec::new(),
            explained: Vec::new(),
        }
    }

    /// Every compared node, and where the sides part.
    pub(super) fn run(mut self) -> Result<Walked, DiffError> {
        let mut first: Option<Divergence> = None;
        let (mut later, mut unusual) = (Vec::new(), Vec::new());
        for node in 0..self.frame.nodes.len() {
            let inherited = self.inherited(node);
            let Some(measure) = self.measure(node)? else {
                self.carried.push(inherited);
                continue;
            };
            let (relative, apart) = (measure.relative(), measure.apart > 0);
            let floor = FLOOR * self.unit(node);
            let mut state = if measure.is_same() { State::Same } else { State::Rounding };
            // What does not read the first divergence differs by its own rounding.
            let after = first.is_some() && inherited.tainted;
            let mut tainted = inherited.tainted;
            let mut explained = false;
            match self.verdict(node, &measure, inherited, first.is_none())? {
                Verdict::Explained => explained = true,
                Verdict::Rounding(None) => {}
                Verdict::Rounding(Some(relation)) => self.rounded.push((node, relation)),
                Verdict::Unusual(share, odd, like) => {
                    // Listed as what it is, and no drift beside.
                    explained = true;
                    let node = self.frame.nodes[node].path.clone();
                    unusual.push(Unusual { node, share, odd_one: which(odd), like });
                }
                Verdict::Step(grounds, found, odd) if first.is_none() => {
                    (state, tainted) = (State::First, true);
                    first = Some(self.divergence(node, Kind::Bug, grounds, found, odd));
                }
                Verdict::Step(..) => {
                    (state, tainted) = (State::After, true);
                    later.push(self.frame.nodes[node].path.clone());
                }
            }
            if after && (apart || relative > floor) {
                state = State::After;
            }
            self.carried.push(Carried { relative, apart, tainted });
            self.explained.push(explained);
            self.rows.push(self.row(node, measure, state));
        }
        if first.is_none() {
            first = self.drift();
        }
        unusual.sort_by(|a, b| b.share.total_cmp(&a.share));
        Ok(Walked { rows: self.rows, first, later, unusual })
    }

    /// The first node that has drifted too far. Where every step on the way to a node was computed again and is rounding, its
    /// difference is the sum of theirs, and no fault unless the user gave a tolerance.
    fn drift(&mut self) -> Option<Divergence> {
        let (tolerance, strict) = (self.options.tolerance, self.options.strict);
        let far = |row: &Compared| row.measure.apart > 0 || row.measure.relative() > tolerance;
        let explained = &self.explained;
        let at = (0..self.rows.len()).find(|&i| far(&self.rows[i]) && (strict || !explained[i]))?;
        for row in self.rows.iter_mut().skip(at).filter(|row| far(row)) {
            row.state = State::After;
        }
        self.rows[at].state = State::First;
        let node = self.frame.find(&self.rows[at].node)?;
        // A type that is too short somewhere before is where it comes from.
        let source = self.rounded.iter().rfind(|(at, _)| *at <= node);
        let found = source.map(|(at, relation)| Found {
            step: (*at != node).then_some(*at),
            ..Found::from(relation.clone())
        });
        let mut divergence = self.divergence(node, Kind::Drift, Grounds::Growth, found, 1 - self.expected());
        divergence.row = at;
        divergence.jumps = self.rows[at].measure.relative() > STEP * self.inherited(node).relative;
        if self.judge.is_some() {
            divergence.grounds = Grounds::Recomputed;
        }
        Some(divergence)
    }

    fn inherited(&self, node: usize) -> Carried {
        let inputs = self.frame.nodes[node].inputs.iter().map(|&input| self.carried[input]);
        inputs.fold(Carried::default(), |all, one| Carried {
            relative: all.relative.max(one.relative),
            apart: all.apart || one.apart,
            tainted: all.tainted || one.tainted,
        })
    }

    /// The coarser unit of rounding of a node's two tensors.
    fn unit(&self, node: usize) -> f64 {
        let of = |which: usize| {
            let bound = self.bindings[which].of[node].as_ref();
            bound.map_or(0.0, |bound| roundoff(self.sides[which].dump.tensors()[bound.tensor].dtype))
        };
        of(0).max(of(1))
    }

    /// The unit of the shorter type that one of a node's two tensors holds values of, whatever it is stored in.
    fn unit_of_values(&self, node: usize) -> Result<f64, DiffError> {
        let mut unit = 0.0f64;
        for (side, bindings) in self.sides.into_iter().zip(self.bindings.iter()) {
            let Some(bound) = &bindings.of[node] else { continue };
            unit = unit.max(Grain::of(&load(side, bound)?, bound.scale).map_or(0.0, |grain| grain.unit()));
        }
        Ok(unit)
    }

    fn measure(&mut self, node: usize) -> Result<Option<Measure>, DiffError> {
        let (Some(a), Some(b)) = (&self.bindings[0].of[node], &self.bindings[1].of[node]) else {
            return Ok(None);
        };
        let cells = Cells { masked: self.frame.is_masked(node), open: self.frame.open(node) };
        let measure = compare((self.sides[0], a), (self.sides[1], b), &cells)?;
        if measure.relative() > self.options.tolerance && self.rescaled(node)? {
            return self.measure(node);
        }
        Ok(Some(measure))
    }

    /// A lookup of another program may come before or after the embedding's scale, and its name does not say; our own does.
    fn rescaled(&mut self, node: usize) -> Result<bool, DiffError> {
        let is_lookup = matches!(self.frame.op(node), Some(attnscope_graph::Op::Embed { .. }));
        let Some(foreign) = self.sides.iter().position(|side| side.trace.is_none()).filter(|_| is_lookup)
        else {
            return Ok(false);
        };
        let (Some(own), Some(other)) =
            (&self.bindings[1 - foreign].of[node], &self.bindings[foreign].of[node])
        else {
            return Ok(false);
        };
        if self.sides[foreign].dump.tensors()[other.tensor].name == self.frame.nodes[node].path {
            return Ok(false);
        }
        let (mut expected, mut found) =
            (load(self.sides[1 - foreign], own)?, load(self.sides[foreign], other)?);
        if let Some(open) = self.frame.open(node) {
            // Programs pad with rows of their own.
            for values in [&mut expected, &mut found] {
                values.iter_mut().enumerate().filter(|(i, _)| !open.has(*i)).for_each(|(_, x)| *x = 0.0);
            }
        }
        let own_factor = match self.frame.op(node) {
            Some(attnscope_graph::Op::Embed { scale }) => scale.value(&self.frame.sizes),
            _ => None,
        };
        // The model's own factor, where it is that one as far as the type of the values can tell.
        let near = Grain::of(&found, 1.0).map_or(1e-6, |grain| 2.0 * grain.unit());
        let scale = ratio(&expected, &found);
        let scale = own_factor.filter(|own| (scale / own - 1.0).abs() < near).unwrap_or(scale);
        let scaled: Vec<f64> = found.iter().map(|x| x * scale).collect();
        let is_factor = scale.is_finite() && (scale - 1.0).abs() > near && other.scale == 1.0;
        let fits = is_factor && Measure::of(&expected, &scaled).relative() < near;
        if let (true, Some(bound)) = (fits, &mut self.bindings[foreign].of[node]) {
            bound.scale = scale;
        }
        Ok(fits)
    }

    /// Ours is what is expected; of two of ours, or two of others, A.
    fn expected(&self) -> usize {
        usize::from(self.sides[0].trace.is_none() && self.sides[1].trace.is_some())
    }

    fn tensors(&self, which: usize) -> Tensors<'_> {
        Tensors { side: self.sides[which], bindings: &self.bindings[which], memory: &self.memories[which] }
    }

    fn verdict(
        &self,
        node: usize,
        measure: &Measure,
        inherited: Carried,
        search: bool,
    ) -> Result<Verdict, DiffError> {
        if measure.is_same() {
            return Ok(Verdict::Rounding(None));
        }
        let (relative, unit) = (measure.relative(), self.unit(node));
        let apart = measure.apart > 0 && !inherited.apart;
        let jumps = apart || (relative > FLOOR * unit && relative > CARRIED * inherited.relative);
        if let Some(judge) = self.judge
            && let Some(verdict) = self.judged(judge, node, jumps, search)?
        {
            return Ok(verdict);
        }
        let large = relative > self.options.tolerance && relative > STEP * inherited.relative.max(unit);
        if large && relative <= STEP * self.unit_of_values(node)? {
            return Ok(Verdict::Explained);
        }
        // What comes after a bug differs by much, whoever computed it.
        if !search || !jumps || (!apart && !large) {
            return Ok(Verdict::Rounding(None));
        }
        let relation = self.plain_relation(node, unit, inherited.relative)?;
        Ok(match relation {
            Some(relation) if relation.is_harmless() => Verdict::Rounding(Some(relation)),
            relation => {
                let found = relation.map(Found::from);
                Verdict::Step(Grounds::Growth, found, 1 - self.expected())
            }
        })
    }

    /// Computes a node again; `None` where that cannot be done, or the model describes neither side. Ours is looked at where
    /// theirs does not follow, or where theirs does and a difference is new all the same.
    fn judged(
        &self,
        judge: &Judge<'_>,
        node: usize,
        jumps: bool,
        search: bool,
    ) -> Result<Option<Verdict>, DiffError> {
        let expected = self.expected();
        let (ours, theirs) = (self.tensors(expected), self.tensors(1 - expected));
        let Some(other) = judge.local(node, theirs, ours)? else { return Ok(None) };
        if other.worst <= 1.0 {
            let mut like = other.like.clone();
            // Bounds over several steps are wide, and half precision inside one may fit in.
            if like.is_none()
                && search
                && other.single
                && relative_rms(&other.expected, &other.found) > COARSE * Precision::F32.result
            {
                like = self.suspect(judge, node, &other, 1 - expected)?.likeness()?;
            }
            match like {
                Some(like) => return Ok(Some(Verdict::Unusual(other.worst, 1 - expected, Some(like)))),
                None if !jumps => return Ok(Some(Verdict::Explained)),
                None => {}
            }
        }
        let own = judge.local(node, ours, ours)?;
        let own_worst = own.as_ref().map_or(0.0, |own| own.worst);
        let (local, odd) = match (own, own_worst <= 1.0, other.worst <= 1.0) {
            (own, true, true) => {
                let like = own.and_then(|own| own.like);
                return Ok(Some(match like {
                    Some(like) => Verdict::Unusual(own_worst, expected, Some(like)),
                    None => Verdict::Explained,
                }));
            }
            (_, true, false) => (other, 1 - expected),
            (Some(own), false, true) => (own, expected),
            _ => return Ok(None),
        };
        if local.worst <= FAR {
            let like = match &local.like {
                None if search => self.suspect(judge, node, &local, odd)?.likeness()?,
                like => like.clone(),
            };
            return Ok(Some(Verdict::Unusual(local.worst, odd, like)));
        }
        let found = if search { self.suspect(judge, node, &local, odd)?.relation()? } else { None };
        Ok(Some(match found {
            Some(found) if found.relation.is_harmless() => Verdict::Rounding(Some(found.relation)),
            found => Verdict::Step(Grounds::Recomputed, found, odd),
        }))
    }

    fn suspect<'s, 'j>(
        &'s self,
        judge: &'s Judge<'j>,
        node: usize,
        local: &'s Local,
        odd: usize,
    ) -> Result<Suspect<'s, 'j>, DiffError> {
        let (side, other) = (self.tensors(odd), self.tensors(1 - odd));
        Ok(Suspect::new(judge, node, local, [side, other])?)
    }

    /// What two tensors tell by themselves.
    fn plain_relation(&self, node: usize, unit: f64, inherited: f64) -> Result<Option<Relation>, DiffError> {
        let expected = self.expected();
        let (Some(ours), Some(theirs)) = (
            self.tensors(expected).get(self.frame, node)?,
            self.tensors(1 - expected).get(self.frame, node)?,
        ) else {
            return Ok(None);
        };
        let mut theirs = attnscope_run::Kept::clone(&theirs);
        let finite = ours.values.iter().filter(|x| x.is_finite());
        let (sum, count) = finite.fold((0.0, 0usize), |(sum, n), x| (sum + x * x, n + 1));
        let usual = (sum / count.max(1) as f64).sqrt();
        let size = 32.0 * unit + 4.0 * inherited;
        let own = |x: &f64| if x.is_finite() { x.abs() } else { 0.0 };
        let mut allowed: Vec<f64> = ours.values.iter().map(|x| size * (own(x) + usual)).collect();
        close(self.frame, node, &ours.values, &mut theirs.values, &mut allowed);
        let two = Two {
            shape: &ours.shape,
            expected: &ours.values,
            found: &theirs.values,
            allowed: &allowed,
            masked: self.frame.is_masked(node),
            heads: self.frame.heads(node),
        };
        Ok(direct::relation(&two, self.frame).or_else(|| direct::part(&two, None)))
    }

    fn divergence(
        &self,
        node: usize,
        kind: Kind,
        grounds: Grounds,
        found: Option<Found>,
        odd: usize,
    ) -> Divergence {
        let odd_one = which(odd);
        let reads = self.nearest(node);
        let node = self.frame.nodes[node].path.clone();
        let path = |step: Option<usize>| step.map(|step| self.frame.nodes[step].path.clone());
        let cause = path(found.as_ref().and_then(|found| found.step));
        let (relation, also) = found.map(|found| (found.relation, found.also)).unzip();
        let explanation = |(relation, step)| Explanation { relation, cause: path(step) };
        let also = also.unwrap_or_default().into_iter().map(explanation).collect();
        let (row, jumps) = (self.rows.len(), kind == Kind::Bug);
        Divergence { row, node, kind, grounds, relation, cause, also, odd_one, reads, jumps }
    }

    /// The nearest nodes before this one that both sides have.
    fn nearest(&self, node: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut seen = vec![false; self.frame.nodes.len()];
        let mut open = vec![node];
        // Each node once: residual sums make the number of ways back grow with every layer.
        while let Some(at) = open.pop() {
            for &input in self.frame.nodes[at].inputs.iter().rev() {
                if std::mem::replace(&mut seen[input], true) {
                    continue;
                }
                match self.bindings.iter().all(|bindings| bindings.of[input].is_some()) {
                    true => found.push(input),
                    false => open.push(input),
                }
            }
        }
        found.sort_unstable();
        found.into_iter().map(|node| self.frame.nodes[node].path.clone()).collect()
    }

    fn row(&self, node: usize, measure: Measure, state: State) -> Compared {
        let name = |which: usize| {
            let bound = self.bindings[which].of[node].as_ref();
            bound.map(|b| self.sides[which].dump.tensors()[b.tensor].name.clone()).unwrap_or_default()
        };
        let seen_as = |which: usize| {
            let bound = self.bindings[which].of[node].as_ref()?;
            let layout = bound.layout.words().map(str::to_owned);
            let scale = (bound.scale != 1.0).then(|| {
                let factor = format!("{:.6}", bound.scale);
                format!("× {}", factor.trim_end_matches('0').trim_end_matches('.'))
            });
            let values = bound.by_values.then(|| "by its values".to_owned());
            let words: Vec<String> = [values, layout, scale].into_iter().flatten().collect();
            (!words.is_empty()).then(|| words.join(", "))
        };
        let shape = self.frame.nodes[node].shape.clone().unwrap_or_else(|| {
            let bound = self.bindings[0].of[node].as_ref();
            bound.map(|b| self.sides[0].dump.tensors()[b.tensor].shape.clone()).unwrap_or_default()
        });
        Compared {
            node: self.frame.nodes[node].path.clone(),
            names: [name(0), name(1)],
            shape,
            measure,
            state,
            seen_as: seen_as(0).or_else(|| seen_as(1)),
            by_values: self.bindings.iter().any(|side| side.of[node].as_ref().is_some_and(|b| b.by_values)),
        }
    }
}

fn which(side: usize) -> Which {
    if side == 0 { Which::A } else { Which::B }
}
