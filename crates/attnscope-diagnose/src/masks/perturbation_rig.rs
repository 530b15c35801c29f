//! A model that is perturbed: it runs the same input again and again, each time with other values in one place.

use std::collections::BTreeMap;

use attnscope_graph::{Dim, EntryStep, Model, NodeId, Role, Side, Stack};
use attnscope_run::{
    CheckedInput, Counted, Input, Intervention, PadSide, Prepared, Progress, Request, RunError, Session,
    Sink, Weights,
};

use super::finite::{Finite, NotFinite};
use super::noise::Noise;
use super::place::{Free, Movement, movement};
use super::proof::{Claim, Leak, Proof, Verdict};
use crate::observe::Broken;
use crate::unravel;

/// How rows are padded where a proof needs padding and the input has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    /// The model's padding.
    pub id: u32,
    /// The side of the padding.
    pub side: PadSide,
}

/// A model with an input, ready to be perturbed.
pub struct PerturbationRig<'a> {
    pub(super) model: &'a Model,
    pub(super) weights: &'a Weights,
    pub(super) input: &'a Input,
    pub(super) padding: Padding,
    pub(super) nodes: Nodes,
    session: Box<dyn Session>,
    /// Told of proofs.
    progress: Progress,
    /// Runs since the last proof.
    runs: usize,
    /// The first tensor that is not finite, after it was searched for.
    broken: Option<Option<Broken>>,
}

/// The nodes that proofs read and write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nodes {
    /// The source's embeddings.
    pub(super) source: Option<NodeId>,
    /// The target's.
    pub(super) target: Option<NodeId>,
    /// What cross-attention reads.
    pub(super) memory: Option<NodeId>,
    /// The logits, or the last output of a model without a head.
    pub(super) logits: NodeId,
}

impl Nodes {
    /// The embeddings of a side.
    pub(super) fn embeddings(self, side: Side) -> Option<NodeId> {
        match side {
            Side::Source => self.source,
            Side::Target => self.target,
        }
    }

    /// The outputs that must not move: what cross-attention reads, and the logits.
    pub(super) fn outputs(self) -> Vec<NodeId> {
        self.memory.into_iter().chain([self.logits]).collect()
    }
}

/// A tensor of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

impl Tensor {
    fn of(tensor: &attnscope_run::Tensor) -> Self {
        Self { shape: tensor.shape().to_vec(), values: tensor.values().to_f32() }
    }

    /// The largest value; never 0, because it is a divisor.
    pub(super) fn most(&self) -> f64 {
        let finite = self.values.iter().filter(|x| x.is_finite());
        finite.fold(f64::from(f32::MIN_POSITIVE), |most, &x| most.max(f64::from(x).abs()))
    }

    /// The place of a cell along an axis.
    pub(super) fn along(&self, axis: usize, cell: usize) -> usize {
        let inner: usize = self.shape.iter().skip(axis + 1).product();
        cell / inner.max(1) % self.shape.get(axis).copied().unwrap_or(1).max(1)
    }

    fn root_mean_square(&self) -> f32 {
        let sum: f64 = self.values.iter().map(|&x| f64::from(x).powi(2)).sum();
        (sum / self.values.len().max(1) as f64).sqrt() as f32
    }
}

pub(super) type Tensors = BTreeMap<NodeId, Tensor>;

/// An input with interventions.
pub(super) struct Perturbed<'i> {
    pub(super) input: &'i Input,
    pub(super) interventions: Vec<Intervention>,
    /// What may move.
    pub(super) free: Free,
    /// What was done, for the report of a leak.
    pub(super) cause: String,
}

impl<'a> PerturbationRig<'a> {
    /// A rig for a model that can run.
    ///
    /// # Errors
    /// When the input does not fit the model.
    pub fn new(prepared: &'a dyn Prepared, input: &'a Input, padding: Padding) -> Result<Self, RunError> {
        let model: &Model = prepared.model();
        CheckedInput::new(model, input.clone())?;
        let graph = &model.graph;
        let embed = |side| graph.at(Role::Entry(side, EntryStep::Embed));
        let last = model.architecture.stacks().next_back();
        let out = last.and_then(|stack| graph.at(Role::StackOut(stack)));
        let nothing = || RunError::NoOutput { what: "output" };
        let reads_encoder = model.architecture.has_cross_attention();
        let nodes = Nodes {
            source: embed(Side::Source),
            target: embed(Side::Target),
            memory: graph.at(Role::StackOut(Stack::Encoder)).filter(|_| reads_encoder),
            // A classifier's scores have no positions: what is before its blocks has.
            logits: graph.at(Role::Logits).filter(|_| !graph.has_classifier()).or(out).ok_or_else(nothing)?,
        };
        let session = prepared.session(&prepared.limits().quiet());
        let progress = prepared.limits().progress.clone();
        let weights = prepared.weights();
        Ok(Self { model, weights, input, padding, nodes, session, progress, runs: 0, broken: None })
    }

    /// What of the unperturbed run is not finite, if anything is; the −∞ of a masked cell does not count.
    ///
    /// # Errors
    /// When the run fails.
    pub fn not_finite(&mut self) -> Result<Option<NotFinite>, RunError> {
        if self.broken.is_none() {
            let mut sink = Finite::new(self.model);
            let input = CheckedInput::new(self.model, self.input.clone())?;
            self.session.run(&Request::new(&input), &mut sink)?;
            self.broken = Some(sink.broken);
        }
        let named = |broken: &Broken| NotFinite {
            node: self.model.graph.node(broken.node).path.as_str().to_owned(),
            at: broken.at.clone(),
            value: broken.value,
        };
        Ok(self.broken.iter().flatten().next().map(named))
    }

    /// What can be claimed of the model, in the order of [`Claim::ALL`].
    pub fn claims(&self) -> Vec<Claim> {
        let applies = |claim: &Claim| match claim {
            Claim::Causal => self.nodes.target.is_some(),
            Claim::Window => !self.windows().is_empty(),
            claim if claim.is_about_cross_attention() => self.nodes.memory.is_some(),
            _ => true,
        };
        Claim::ALL.into_iter().filter(applies).collect()
    }

    /// Every proof, in the order of [`Claim::ALL`].
    ///
    /// # Errors
    /// When a run fails.
    pub fn prove_all(&mut self) -> Result<Vec<Proof>, RunError> {
        let claims = self.claims();
        let mut proofs = Vec::with_capacity(claims.len());
        for (done, &claim) in claims.iter().enumerate() {
            self.progress.tell(Counted::Proofs, done, claims.len());
            proofs.push(self.prove(claim)?);
        }
        Ok(proofs)
    }

    /// One proof.
    ///
    /// # Errors
    /// When a run fails.
    pub fn prove(&mut self, claim: Claim) -> Result<Proof, RunError> {
        if let Some(NotFinite { node, at, value }) = self.not_finite()? {
            let why = format!("{value} in {node} at {at:?}, the first tensor that is not finite:");
            return Ok(Proof::not_run(claim, format!("{why} movement cannot be measured")));
        }
        self.runs = 0;
        let proof = match claim {
            Claim::Causal => self.causal(),
            Claim::Window => self.window(),
            Claim::PaddingAlone => self.padding_alone(),
            Claim::PaddingEmbeddings => self.padding_embeddings(),
            Claim::PaddingStates => self.padding_states(),
            Claim::CrossFuture => self.cross_future(),
            Claim::CrossReach => self.reach(claim, self.nodes.memory),
            Claim::SourceReach => self.reach(claim, self.nodes.source),
            Claim::AllPadding => self.all_padding(),
        };
        proof.map(|proof| Proof { runs: self.runs, ..proof })
    }

    /// The lengths of both sides.
    pub(super) fn lengths(&self, input: &Input) -> Result<[usize; 2], RunError> {
        let checked = CheckedInput::new(self.model, input.clone())?;
        let sizes = checked.sizes();
        Ok([Dim::Source, Dim::Target].map(|dim| sizes.get(dim).unwrap_or(0)))
    }

    /// Runs the model and returns some of its tensors.
    pub(super) fn run(
        &mut self,
        input: &Input,
        interventions: &[Intervention],
        wanted: &dyn Fn(NodeId) -> bool,
    ) -> Result<Tensors, RunError> {
        let mut hold = Hold { wanted, tensors: Tensors::new() };
        self.run_into(input, interventions, &mut hold)?;
        Ok(hold.tensors)
    }

    /// Runs the model into a sink.
    pub(super) fn run_into(
        &mut self,
        input: &Input,
        interventions: &[Intervention],
        sink: &mut dyn Sink,
    ) -> Result<(), RunError> {
        let input = CheckedInput::new(self.model, input.clone())?;
        self.session.run(&Request::new(&input).with_interventions(interventions), sink)?;
        self.runs += 1;
        Ok(())
    }

    /// Interventions that replace the vectors at some positions by random ones of the tensor's size, or a multiple of it.
    /// [batch, position, width]
    pub(super) fn noise(
        &self,
        node: NodeId,
        before: &Tensors,
        positions: &[(usize, usize)],
        (seed, times): (u64, f32),
    ) -> Vec<Intervention> {
        let Some(tensor) = before.get(&node) else { return Vec::new() };
        let &[_, length, width] = &tensor.shape[..] else { return Vec::new() };
        let mut noise = Noise::new(seed);
        let size = tensor.root_mean_square().max(f32::MIN_POSITIVE) * times;
        let intervention = |&(row, position): &(usize, usize)| Intervention {
            node,
            first: (row * length + position) * width,
            // A perturbation that is itself infinite would show nothing.
            values: noise.vector(width, size).iter().map(|x| x.clamp(f32::MIN, f32::MAX)).collect(),
        };
        positions.iter().map(intervention).collect()
    }

    /// How far some tensors move.
    pub(super) fn moved(
        &mut self,
        before: &Tensors,
        perturbed: &Perturbed<'_>,
        watched: &[NodeId],
    ) -> Result<Movement, RunError> {
        let after = self.run(perturbed.input, &perturbed.interventions, &|id| watched.contains(&id))?;
        let mut all = Movement::default();
        for id in watched {
            let (Some(a), Some(b)) = (before.get(id), after.get(id)) else { continue };
            let one = movement(self.model.graph.node(*id), a, b, &perturbed.free);
            all.add(&one);
        }
        Ok(all)
    }

    /// The first tensor that moves and must not.
    pub(super) fn leak(&mut self, perturbed: &Perturbed<'_>) -> Result<Leak, RunError> {
        let before = self.run(perturbed.input, &[], &|_| true)?;
        let mut against = Against { model: self.model, before: &before, free: &perturbed.free, first: None };
        self.run_into(perturbed.input, &perturbed.interventions, &mut against)?;
        let (id, movement) = against.first.unwrap_or((self.nodes.logits, Movement::default()));
        let at = before.get(&id).map(|tensor| unravel(movement.at, &tensor.shape)).unwrap_or_default();
        let node = self.model.graph.node(id).path.as_str().to_owned();
        Ok(Leak { node, at, movement: movement.largest, cause: perturbed.cause.clone() })
    }

    /// The proof that nothing moves under each of these perturbations. `cells` are tried of `in_all`.
    pub(super) fn stays(
        &mut self,
        claim: Claim,
        before: &Tensors,
        trials: &[Perturbed<'_>],
        watched: &[NodeId],
        (cells, in_all): (usize, usize),
    ) -> Result<Proof, RunError> {
        let (mut all, mut leaking, mut lost) = (Movement::default(), None, None);
        for perturbed in trials {
            let moved = self.moved(before, perturbed, watched)?;
            if !moved.is_finite() {
                lost = lost.or(Some(perturbed));
                continue;
            }
            all.add(&moved);
            if moved.largest > 0.0 {
                leaking = leaking.or(Some(perturbed));
            }
        }
        let verdict = match (leaking, lost, trials.first()) {
            (Some(perturbed), ..) => {
                let leak = self.leak(perturbed)?;
                self.leaked(perturbed, leak)?
            }
            (None, Some(perturbed), _) => {
                let why = self.overflow(perturbed)?;
                Verdict::Inconclusive(why.unwrap_or_else(|| "a perturbed run is not finite".into()))
            }
            (None, None, Some(perturbed)) if all.free == 0.0 => {
                Verdict::Inconclusive(self.unfelt(perturbed)?)
            }
            _ => Verdict::Holds,
        };
        let (movement, felt) = (all.largest, Some(all.free));
        Ok(Proof { claim, runs: 0, cells, cells_in_all: in_all, movement, felt, threshold: 0.0, verdict })
    }

    pub(super) fn batch(&self) -> usize {
        self.input.batch()
    }

    pub(super) fn has_audio(&self) -> bool {
        self.input.features().is_some()
    }

    pub(super) fn is_token(&self, side: Side, row: usize, position: usize) -> bool {
        super::is_token(self.input, side, row, position)
    }
}

/// Keeps some tensors as they are.
struct Hold<'w> {
    wanted: &'w dyn Fn(NodeId) -> bool,
    tensors: Tensors,
}

impl Sink for Hold<'_> {
    fn wants(&self, node: NodeId) -> bool {
        (self.wanted)(node)
    }

    fn held(&self, node: NodeId, _: u64) -> u64 {
        if self.wants(node) { 4 } else { 0 }
    }

    fn put(&mut self, node: NodeId, tensor: &attnscope_run::Tensor) -> Result<(), RunError> {
        self.tensors.insert(node, Tensor::of(tensor));
        Ok(())
    }
}

/// Compares every tensor with what it was before, and remembers the first that moved.
struct Against<'b> {
    model: &'b Model,
    before: &'b Tensors,
    free: &'b Free,
    first: Option<(NodeId, Movement)>,
}

impl Sink for Against<'_> {
    fn wants(&self, node: NodeId) -> bool {
        // The steps of an attention are handed over together, so an earlier one may follow.
        self.first.as_ref().is_none_or(|(first, _)| node < *first)
    }

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, node: NodeId, tensor: &attnscope_run::Tensor) -> Result<(), RunError> {
        let Some(before) = self.before.get(&node) else { return Ok(()) };
        let after = Tensor::of(tensor);
        let moved = movement(self.model.graph.node(node), before, &after, self.free);
        if moved.largest > 0.0 && self.first.as_ref().is_none_or(|(first, _)| node < *first) {
            self.first = Some((node, moved));
        }
        Ok(())
    }
}
