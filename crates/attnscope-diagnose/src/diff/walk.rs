//! The comparison itself: every node that both sides have is measured, and one that differs is judged. It does not stop at the
//! first bug: later nodes are judged by their own inputs, too.

use attnscope_graph::Op;
use attnscope_run::Counted;

use super::frame::Frame;
use super::grain::Grain;
use super::judge::{Judge, Memory, Tensors};
use super::measure::{Cells, FLOOR, Measure, roundoff};
use super::pair::{Bindings, compare, load, ratio};
use super::relation::Relation;
use super::rewired::Found;
use super::side::Side;
use super::verdict::{CARRIED, Verdict};
use super::{
    Compared, DiffError, Divergence, Explanation, Grounds, InputDifference, Kind, Options, State, Unusual,
    Which,
};

/// Where a node cannot be computed again, a growth by this factor counts as a bug.
pub(super) const STEP: f64 = 30.0;

pub(super) struct Walk<'w, 'a> {
    pub(super) sides: [&'w Side; 2],
    pub(super) frame: &'w Frame,
    pub(super) bindings: &'w mut [Bindings; 2],
    pub(super) judge: Option<&'w Judge<'a>>,
    pub(super) options: &'w Options,
    memories: &'w [Memory; 2],
    /// For each node its own difference, or the largest of the nodes before it that both sides have.
    carried: Vec<Carried>,
    /// The largest of all so far.
    largest: Carried,
    rows: Vec<Compared>,
    /// Nodes of which one side has only the precision of a shorter type.
    rounded: Vec<(usize, Relation)>,
    /// The rows whose difference was computed again and is rounding.
    explained: Vec<bool>,
    /// The growth of each row: its difference divided by that of its inputs, or by the unit of rounding.
    growth: Vec<f64>,
}

/// The result of a walk.
pub(super) struct Walked {
    /// Every compared node.
    pub(super) rows: Vec<Compared>,
    /// The first node at which the sides diverge.
    pub(super) first: Option<Divergence>,
    /// Later nodes that do not follow from their inputs either.
    pub(super) later: Vec<String>,
    /// Nodes slightly outside their bound.
    pub(super) unusual: Vec<Unusual>,
    /// The difference between the inputs, where the walk found one. The walk ended there.
    pub(super) inputs: Option<InputDifference>,
}

/// What the nodes that read a node inherit from it.
#[derive(Clone, Copy, Default)]
pub(super) struct Carried {
    /// The relative difference of finite values.
    pub(super) relative: f64,
    /// Whether there are cells in which only one side is finite. The other cells are still compared.
    pub(super) apart: bool,
    /// Whether it was computed from a node that does not follow from its inputs.
    pub(super) tainted: bool,
}

impl Carried {
    fn with(self, other: Self) -> Self {
        Self {
            relative: self.relative.max(other.relative),
            apart: self.apart || other.apart,
            tainted: self.tainted || other.tainted,
        }
    }
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
            largest: Carried::default(),
            rows: Vec::new(),
            rounded: Vec::new(),
            explained: Vec::new(),
            growth: Vec::new(),
        }
    }

    /// Every compared node, and where the sides diverge.
    pub(super) fn run(mut self) -> Result<Walked, DiffError> {
        let limits = &self.options.limits;
        let mut first: Option<Divergence> = None;
        let (mut later, mut unusual) = (Vec::new(), Vec::new());
        for node in 0..self.frame.nodes.len() {
            limits.progress.tell(Counted::Compared, node, self.frame.nodes.len());
            let inherited = self.inherited(node);
            let Some(measure) = self.measure(node)? else {
                self.carried.push(inherited);
                continue;
            };
            let (relative, apart) = (measure.relative(), measure.apart > 0);
            let floor = FLOOR * self.unit(node);
            let mut state = if measure.is_same() { State::Same } else { State::Rounding };
            // A node that does not depend on the first divergence differs by its own rounding.
            let after = first.is_some() && inherited.tainted;
            let mut tainted = inherited.tainted;
            let mut explained = false;
            let verdict = self.verdict(node, &measure, inherited, first.is_none())?;
            // What was computed again is not whole then.
            limits.cancel.check().map_err(|_| DiffError::Cancelled)?;
            match verdict {
                Verdict::Explained => explained = true,
                Verdict::Rounding(None) => {}
                Verdict::Rounding(Some(relation)) => self.rounded.push((node, relation)),
                Verdict::Unusual(share, odd, like) => {
                    // Listed as unusual, not as drift as well.
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
                Verdict::OtherInput(inputs) => {
                    return Ok(Walked { rows: self.rows, first, later, unusual, inputs: Some(inputs) });
                }
            }
            if after && (apart || relative > floor) {
                state = State::After;
            }
            if let Some(first) =
                first.as_ref().filter(|_| state == State::Rounding && !self.frame.has_place(node))
                && (apart || relative > floor.max(CARRIED * self.most(first.row)))
            {
                state = State::Apart;
            }
            let own = Carried { relative, apart, tainted };
            self.largest = self.largest.with(own);
            self.carried.push(own);
            self.explained.push(explained);
            self.growth.push(relative / inherited.relative.max(self.unit(node)).max(f64::MIN_POSITIVE));
            self.rows.push(self.row(node, measure, state));
        }
        if first.is_none() {
            first = self.drift();
        }
        unusual.sort_by(|a, b| b.share.total_cmp(&a.share));
        Ok(Walked { rows: self.rows, first, later, unusual, inputs: None })
    }

    /// The first node that has drifted too far. Where every step on the way to a node was computed again and is rounding, its
    /// difference is the sum of theirs, and counts only if the user gave a tolerance.
    fn drift(&mut self) -> Option<Divergence> {
        let (tolerance, strict) = (self.options.tolerance, self.options.strict);
        let far = |row: &Compared| row.measure.apart > 0 || row.measure.relative() > tolerance;
        let counts = |i: &usize| strict || !self.explained[*i];
        let at = (0..self.rows.len()).find(|i| far(&self.rows[*i]) && counts(i))?;
        // It comes from a shorter type before it; else from the step that stands out, if there is one.
        let past = self.frame.find(&self.rows[at].node)?;
        let source = self.rounded.iter().rfind(|(node, _)| *node <= past);
        let steps = (0..=at).filter(|i| counts(i) && self.growth[*i] > STEP);
        let step = steps.max_by(|a, b| self.growth[*a].total_cmp(&self.growth[*b]).then(b.cmp(a)));
        let begins = step.filter(|_| source.is_none());
        let row = begins.unwrap_or(at);
        let node = self.frame.find(&self.rows[row].node)?;
        let found = source.map(|(source, relation)| Found {
            step: (*source != node).then_some(*source),
            ..Found::from(relation.clone())
        });
        for row in self.rows.iter_mut().skip(row).filter(|row| far(row)) {
            row.state = State::After;
        }
        self.rows[row].state = State::First;
        let mut divergence = self.divergence(node, Kind::Drift, Grounds::Growth, found, 1 - self.expected());
        divergence.row = row;
        divergence.jumps =
            begins.is_some() || self.rows[row].measure.relative() > STEP * self.inherited(node).relative;
        divergence.past_tolerance_at = (row != at).then(|| self.rows[at].node.clone());
        if self.judge.is_some() {
            divergence.grounds = Grounds::Recomputed;
        }
        Some(divergence)
    }

    /// The largest difference of the rows before one.
    fn most(&self, row: usize) -> f64 {
        self.rows.iter().take(row).map(|row| row.measure.relative()).fold(0.0, f64::max)
    }

    fn inherited(&self, node: usize) -> Carried {
        let inputs = &self.frame.nodes[node].inputs;
        // Where only an order is known, a node may read any node before it: keys of a cross-attention come after its queries,
        // but are computed from the encoder.
        if self.frame.is_order_alone() && !inputs.is_empty() {
            return self.largest;
        }
        inputs.iter().fold(Carried::default(), |all, &input| all.with(self.carried[input]))
    }

    /// The coarser unit of rounding of a node's two tensors.
    pub(super) fn unit(&self, node: usize) -> f64 {
        let of = |which: usize| {
            let bound = self.bindings[which].of[node].as_ref();
            bound.map_or(0.0, |bound| roundoff(self.sides[which].dump.tensors()[bound.tensor].dtype))
        };
        of(0).max(of(1))
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

    /// The embedding of another program may be dumped before or after its scale, and its name does not say which.
    fn rescaled(&mut self, node: usize) -> Result<bool, DiffError> {
        let is_lookup = matches!(self.frame.op(node), Some(Op::Embed { .. }));
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
            // Programs use different rows for padding.
            for values in [&mut expected, &mut found] {
                values.iter_mut().enumerate().filter(|(i, _)| !open.has(*i)).for_each(|(_, x)| *x = 0.0);
            }
        }
        let own_factor = match self.frame.op(node) {
            Some(Op::Embed { scale }) => scale.value(&self.frame.sizes),
            _ => None,
        };
        // The model's own factor, if the values agree with it up to their type.
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

    /// The trace is the expected side; of two traces, or two dumps, A.
    pub(super) fn expected(&self) -> usize {
        usize::from(self.sides[0].trace.is_none() && self.sides[1].trace.is_some())
    }

    pub(super) fn tensors(&self, which: usize) -> Tensors<'_> {
        Tensors { side: self.sides[which], bindings: &self.bindings[which], memory: &self.memories[which] }
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
        let past_tolerance_at = None;
        Divergence {
            row,
            node,
            kind,
            grounds,
            relation,
            cause,
            also,
            odd_one,
            reads,
            jumps,
            past_tolerance_at,
        }
    }

    /// The nearest nodes before this one that both sides have.
    fn nearest(&self, node: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut seen = vec![false; self.frame.nodes.len()];
        let mut open = vec![node];
        // Each node once: with residual sums the number of paths grows exponentially.
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
            let scale = (bound.scale != 1.0)
                .then(|| format!("× {}", attnscope_graph::figures::trimmed(bound.scale, 6)));
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
