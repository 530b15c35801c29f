//! Candidates that differ a little: what they have in common with the first of them is computed once a batch.

use std::ops::Range;

use attnscope_graph::{NodeId, Op, Role, Side, Switch};
use attnscope_run::{Input, Native, Rows, RunError, Sequence, Shared, Sink, Values, position_room};

use super::labels::{Score, judge};
use super::{Candidate, Padding};
use crate::corpus::{Corpus, Decoded};

/// Padding that is "well past" a row's end.
const LEAST_PADDING: usize = 6;

/// Candidates that read the same sources.
pub(super) struct Class {
    members: Vec<usize>,
    /// For each member, the tensors that it takes from the first one's run.
    borrowed: Vec<Vec<NodeId>>,
}

impl Class {
    pub(super) fn all(candidates: &[&Candidate]) -> Vec<Self> {
        let mut classes: Vec<Self> = Vec::new();
        for (i, candidate) in candidates.iter().enumerate() {
            let of_class = |class: &&mut Self| candidates[class.members[0]].padding == candidate.padding;
            match classes.iter_mut().find(of_class) {
                Some(class) => {
                    class.borrowed.push(borrowed(candidates[class.members[0]], candidate));
                    class.members.push(i);
                }
                None => classes.push(Self { members: vec![i], borrowed: vec![Vec::new()] }),
            }
        }
        classes
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Everything that some member takes from the first one's run.
    fn lent(&self) -> Vec<NodeId> {
        let mut lent: Vec<NodeId> = self.borrowed.iter().flatten().copied().collect();
        lent.sort_unstable();
        lent.dedup();
        lent
    }
}

/// The tensors that a candidate need not compute where those of the first are known: the last ones that are the same, on every
/// way to the logits.
fn borrowed(first: &Candidate, candidate: &Candidate) -> Vec<NodeId> {
    let graph = &candidate.model.graph;
    let same = same_tensors(first, candidate);
    let mut needed: Vec<bool> =
        graph.nodes().iter().map(|node| matches!(node.op, Op::Logits { .. })).collect();
    let mut borrowed = Vec::new();
    for (id, node) in graph.iter().collect::<Vec<_>>().into_iter().rev() {
        if !needed[id.index()] {
            continue;
        }
        if same[id.index()] && is_tensor(&node.op) {
            borrowed.push(id);
        } else {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    borrowed
}

/// Whether an operation makes a tensor that can be handed to another run: not a name or a step within an attention, nor what
/// layers share. The logits are looked at in every run.
fn is_tensor(op: &Op) -> bool {
    !matches!(
        op,
        Op::Same
            | Op::SplitHeads(_)
            | Op::Rotate { .. }
            | Op::Scores { .. }
            | Op::AddMask { .. }
            | Op::Squash(_)
            | Op::Context
            | Op::Mask(_)
            | Op::RelativeBias { .. }
            | Op::Ids(_)
            | Op::TypeIds(_)
            | Op::Logits { .. }
    )
}

/// For each node of a candidate, whether it makes the tensor that it makes in the first one's run: the same operation and
/// shape, the same elements of the weights, and inputs that are the same.
fn same_tensors(first: &Candidate, candidate: &Candidate) -> Vec<bool> {
    let (a, b) = (&first.model, &candidate.model);
    let reads_the_same = first.shift == candidate.shift && a.wiring.decoder_shift == b.wiring.decoder_shift;
    let mut same = vec![false; b.graph.nodes().len()];
    // Behind the first operation that differs, numbers of nodes mean something else.
    let pairs = a.graph.nodes().iter().zip(b.graph.nodes()).take_while(|(a, b)| a == b);
    for (i, (_, node)) in pairs.enumerate() {
        let is_sized_alike = node.dims.iter().all(|&dim| a.sizes.get(dim) == b.sizes.get(dim));
        same[i] = is_sized_alike
            && (reads_the_same || node.op.reads() != Some(Side::Target))
            && node.inputs.iter().all(|input| same[input.index()])
            && node.weights.iter().all(|&id| first.weights.same(&candidate.weights, id));
    }
    same
}

/// Tensors that others may take.
struct Lent {
    candidate: usize,
    pairs: Vec<usize>,
    tensors: Vec<(NodeId, Shared)>,
}

/// A thread that runs candidates.
pub(super) struct Worker<'a> {
    native: Native,
    candidates: &'a [&'a Candidate],
    corpus: &'a Corpus,
    lent: Option<Lent>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(native: Native, candidates: &'a [&'a Candidate], corpus: &'a Corpus) -> Self {
        Self { native, candidates, corpus, lent: None }
    }

    /// What some members of a class cost on a batch: (candidate, pair, cost).
    pub(super) fn score(
        &mut self,
        class: &Class,
        members: Range<usize>,
        batch: &[usize],
    ) -> Result<Vec<(usize, usize, Score)>, RunError> {
        let mut losses = Vec::new();
        for member in members {
            let candidate = class.members[member];
            let known = match class.borrowed[member].is_empty() {
                true => Vec::new(),
                false => self.borrow(class, member, batch)?,
            };
            let lent = if member == 0 { class.lent() } else { Vec::new() };
            let mut scores = self.run(candidate, batch, known, lent, true)?;
            losses.extend(batch.iter().zip(scores.drain(..)).map(|(&pair, score)| (candidate, pair, score)));
        }
        Ok(losses)
    }

    /// What a member takes from the first one's run on a batch, which is made if it was not.
    fn borrow(
        &mut self,
        class: &Class,
        member: usize,
        batch: &[usize],
    ) -> Result<Vec<(NodeId, Shared)>, RunError> {
        let first = class.members[0];
        let is_there = |lent: &Lent| lent.candidate == first && lent.pairs == batch;
        if !self.lent.as_ref().is_some_and(is_there) {
            self.run(first, batch, Vec::new(), class.lent(), false)?;
        }
        let lent = self.lent.iter().flat_map(|lent| &lent.tensors);
        Ok(lent.filter(|(id, _)| class.borrowed[member].contains(id)).cloned().collect())
    }

    /// Runs a candidate from known tensors on; keeps those that others take from it. Scores are empty where they are not wanted.
    fn run(
        &mut self,
        candidate: usize,
        batch: &[usize],
        known: Vec<(NodeId, Shared)>,
        lent: Vec<NodeId>,
        scored: bool,
    ) -> Result<Vec<Score>, RunError> {
        let (at, candidate) = (candidate, self.candidates[candidate]);
        let shifted = candidate.model.wiring.decoder_shift == Switch::On;
        let decoded: Vec<Decoded> =
            batch.iter().map(|&pair| self.corpus.decoded(pair, &candidate.shift, shifted)).collect();
        let inputs: Vec<Vec<u32>> = decoded.iter().map(|d| d.input.clone()).collect();
        let target = Rows::checked(&candidate.model, Side::Target, &inputs, self.corpus.pad)?;
        let input = Input::pair(source(candidate, self.corpus, batch), target);
        let logits = candidate.model.graph.at(Role::Logits).filter(|_| scored);
        let mut sink = Taker { logits, lent: &lent, decoded: &decoded, scores: Vec::new(), kept: Vec::new() };
        if !lent.is_empty() {
            self.lent = None;
        }
        self.native.run_from(&candidate.model, &candidate.weights, &input, &known, &mut sink)?;
        if !lent.is_empty() {
            self.lent = Some(Lent { candidate: at, pairs: batch.to_vec(), tensors: sink.kept });
        }
        Ok(sink.scores)
    }
}

/// The sources of a batch. Clips have no padding.
fn source(candidate: &Candidate, corpus: &Corpus, batch: &[usize]) -> Sequence {
    let own = batch.iter().map(|&pair| corpus.sources[pair].length()).max().unwrap_or(0);
    let room = position_room(&candidate.model, Side::Source).unwrap_or(usize::MAX);
    let length = match candidate.padding {
        Padding::None => 0,
        Padding::Twice => (2 * own).max(own + LEAST_PADDING),
        Padding::Longest => corpus.longest_source() + LEAST_PADDING,
    };
    corpus.source(batch, length.min(room))
}

/// Takes the cost of each row off the logits, and holds tensors for others.
struct Taker<'a> {
    logits: Option<NodeId>,
    lent: &'a [NodeId],
    decoded: &'a [Decoded],
    scores: Vec<Score>,
    kept: Vec<(NodeId, Shared)>,
}

impl Sink for Taker<'_> {
    fn wants(&self, node: NodeId) -> bool {
        Some(node) == self.logits || self.lent.binary_search(&node).is_ok()
    }

    fn held(&self, node: NodeId) -> u64 {
        if self.lent.binary_search(&node).is_ok() { 4 } else { 0 }
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        self.take(node, shape, &values.to_f32().into())
    }

    fn take(&mut self, node: NodeId, shape: &[usize], values: &Shared) -> Result<(), RunError> {
        if self.lent.binary_search(&node).is_ok() {
            self.kept.push((node, values.clone()));
        }
        if let (true, &[_, length, width]) = (Some(node) == self.logits, shape) {
            let rows = values.chunks((length * width).max(1)).zip(self.decoded);
            self.scores = rows.map(|(row, decoded)| judge(row, width, decoded)).collect();
        }
        Ok(())
    }
}
