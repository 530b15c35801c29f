//! The walk itself: every node that both sides have is measured; one whose difference jumps is put before the judge.

use super::direct::{self, Two};
use super::frame::Frame;
use super::judge::{Judge, Tensors, close};
use super::measure::{Cells, Measure, roundoff};
use super::pair::{Bindings, compare, load, ratio};
use super::relation::Relation;
use super::rewired::{Found, Suspect};
use super::side::Side;
use super::{Compared, DiffError, Divergence, Grounds, Kind, Options, State, Which};

/// Differences below this many units of rounding say nothing.
const FLOOR: f64 = 4.0;
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
    /// For each node its own difference, or the largest of the nodes before it that both sides have.
    carried: Vec<Carried>,
    rows: Vec<Compared>,
    /// Nodes of which one side holds a shorter type's worth.
    rounded: Vec<(usize, Relation)>,
}

/// What a node hands on to those that read it.
#[derive(Clone, Copy, Default)]
struct Carried {
    /// The difference of finite values, in terms of the largest.
    relative: f64,
    /// Whether there are cells in which one side alone has a number. What is finite beside them is still compared.
    apart: bool,
}

/// What became of a node under suspicion.
enum Verdict {
    /// Nothing but rounding, to a shorter type where a relation says so.
    Rounding(Option<Relation>),
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
    ) -> Self {
        Self {
            sides,
            frame,
            bindings,
            judge,
            options,
            carried: Vec::new(),
            rows: Vec::new(),
            rounded: Vec::new(),
        }
    }

    /// Every compared node, and the first at which the sides part.
    pub(super) fn run(mut self) -> Result<(Vec<Compared>, Option<Divergence>), DiffError> {
        let mut first: Option<Divergence> = None;
        for node in 0..self.frame.nodes.len() {
            let inherited = self.inherited(node);
            let Some(measure) = self.measure(node)? else {
                self.carried.push(inherited);
                continue;
            };
            let (relative, apart) = (measure.relative(), measure.apart > 0);
            let jumps = |floor: f64| {
                (apart && !inherited.apart) || (relative > floor && relative > CARRIED * inherited.relative)
            };
            let mut state = if measure.is_same() { State::Same } else { State::Rounding };
            let floor = FLOOR * self.unit(node);
            if first.is_some() {
                state = if apart || relative > floor { State::After } else { state };
            } else if jumps(floor) {
                match self.verdict(node, &measure, inherited)? {
                    Verdict::Rounding(None) => {}
                    Verdict::Rounding(Some(relation)) => self.rounded.push((node, relation)),
                    Verdict::Step(grounds, found, odd) => {
                        state = State::First;
                        first = Some(self.divergence(node, Kind::Bug, grounds, found, odd));
                    }
                }
            }
            self.carried.push(Carried { relative, apart });
            self.rows.push(self.row(node, measure, state));
        }
        if first.is_none() {
            first = self.drift();
        }
        Ok((self.rows, first))
    }

    /// The first node that has drifted too far.
    fn drift(&mut self) -> Option<Divergence> {
        let tolerance = self.options.tolerance;
        let far = |row: &Compared| row.measure.apart > 0 || row.measure.relative() > tolerance;
        let at = self.rows.iter().position(far)?;
        for row in self.rows.iter_mut().skip(at).filter(|row| far(row)) {
            row.state = State::After;
        }
        self.rows[at].state = State::First;
        let node = self.frame.find(&self.rows[at].node)?;
        // A type that is too short somewhere before is where it comes from.
        let source = self.rounded.iter().rfind(|(at, _)| *at <= node);
        let found = source.map(|(at, relation)| (relation.clone(), (*at != node).then_some(*at)));
        let mut divergence = self.divergence(node, Kind::Drift, Grounds::Growth, found, 1 - self.expected());
        divergence.row = at;
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

    /// A lookup of another program may come before or after the embedding's scale, and its name does not say.
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
        let (expected, found) = (load(self.sides[1 - foreign], own)?, load(self.sides[foreign], other)?);
        let scale = ratio(&expected, &found);
        let scaled: Vec<f64> = found.iter().map(|x| x * scale).collect();
        let fits =
            scale.is_finite() && other.scale == 1.0 && Measure::of(&expected, &scaled).relative() < 1e-6;
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
        Tensors { side: self.sides[which], bindings: &self.bindings[which] }
    }

    fn verdict(&self, node: usize, measure: &Measure, inherited: Carried) -> Result<Verdict, DiffError> {
        let expected = self.expected();
        let (ours, theirs) = (self.tensors(expected), self.tensors(1 - expected));
        if let Some(judge) = self.judge
            && let (Some(other), Some(own)) =
                (judge.local(node, theirs, ours)?, judge.local(node, ours, ours)?)
        {
            let suspect = match (own.worst <= 1.0, other.worst <= 1.0) {
                (true, true) => return Ok(Verdict::Rounding(None)),
                (true, false) => Some((Suspect::new(judge, node, &other, theirs, ours), 1 - expected)),
                (false, true) => Some((Suspect::new(judge, node, &own, ours, theirs), expected)),
                // A model that describes neither side has no say.
                (false, false) => None,
            };
            if let Some((suspect, odd)) = suspect {
                return Ok(match suspect.relation()? {
                    Some((relation, _)) if relation.is_harmless() => Verdict::Rounding(Some(relation)),
                    found => Verdict::Step(Grounds::Recomputed, found, odd),
                });
            }
        }
        let unit = self.unit(node);
        let relative = measure.relative();
        let large = relative > self.options.tolerance && relative > STEP * inherited.relative.max(unit);
        let apart = measure.apart > 0 && !inherited.apart;
        if !apart && !large {
            return Ok(Verdict::Rounding(None));
        }
        let relation = self.plain_relation(node, unit, inherited.relative)?;
        Ok(match relation {
            Some(relation) if relation.is_harmless() => Verdict::Rounding(Some(relation)),
            relation => {
                Verdict::Step(Grounds::Growth, relation.map(|relation| (relation, None)), 1 - expected)
            }
        })
    }

    /// What two tensors tell by themselves.
    fn plain_relation(&self, node: usize, unit: f64, inherited: f64) -> Result<Option<Relation>, DiffError> {
        let expected = self.expected();
        let (Some(ours), Some(mut theirs)) = (
            self.tensors(expected).get(self.frame, node)?,
            self.tensors(1 - expected).get(self.frame, node)?,
        ) else {
            return Ok(None);
        };
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
        let odd_one = if odd == 0 { Which::A } else { Which::B };
        let mut reads = Vec::new();
        self.nearest(node, &mut reads);
        let node = self.frame.nodes[node].path.clone();
        let step = found.as_ref().and_then(|(_, step)| *step);
        let cause = step.map(|step| self.frame.nodes[step].path.clone());
        let relation = found.map(|(relation, _)| relation);
        Divergence { row: self.rows.len(), node, kind, grounds, relation, cause, odd_one, reads }
    }

    /// The nearest nodes before this one that both sides have.
    fn nearest(&self, node: usize, found: &mut Vec<String>) {
        for &input in &self.frame.nodes[node].inputs {
            let both = self.bindings.iter().all(|bindings| bindings.of[input].is_some());
            let path = &self.frame.nodes[input].path;
            match both {
                true if !found.contains(path) => found.push(path.clone()),
                true => {}
                false => self.nearest(input, found),
            }
        }
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
        }
    }
}
