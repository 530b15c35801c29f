//! Similar candidates: what they have in common with the first of them is computed once per batch.

use std::ops::Range;

use attnscope_graph::{NodeId, Op, Role, Side};
use attnscope_run::{CheckedInput, Input, Request, Rows, RunError, Sequence, Sink, Tensor, position_limit};

use super::clip::{Clip, encoder_output};
use super::labels::{Score, judge};
use super::{Candidate, Padding};
use crate::corpus::{Corpus, CorpusKind, Decoded, PairSource};

/// Padding that is "well past" a row's end.
const LEAST_PADDING: usize = 6;

/// Candidates that read the same sources.
pub(super) struct Class {
    members: Vec<usize>,
    /// For each member, the tensors that it takes from the first one's run.
    reused_nodes: Vec<Vec<NodeId>>,
}

impl Class {
    pub(super) fn all(candidates: &[&Candidate]) -> Vec<Self> {
        let mut classes: Vec<Self> = Vec::new();
        for (i, candidate) in candidates.iter().enumerate() {
            let of_class = |class: &&mut Self| candidates[class.members[0]].padding == candidate.padding;
            match classes.iter_mut().find(of_class) {
                Some(class) => {
                    class.reused_nodes.push(reused_nodes(candidates[class.members[0]], candidate));
                    class.members.push(i);
                }
                None => classes.push(Self { members: vec![i], reused_nodes: vec![Vec::new()] }),
            }
        }
        classes
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Everything that some member takes from the first one's run.
    fn shared_nodes(&self) -> Vec<NodeId> {
        let mut shared: Vec<NodeId> = self.reused_nodes.iter().flatten().copied().collect();
        shared.sort_unstable();
        shared.dedup();
        shared
    }
}

/// The tensors of the first candidate that another one can reuse: the last equal ones on every path to the logits.
fn reused_nodes(first: &Candidate, candidate: &Candidate) -> Vec<NodeId> {
    let graph = &candidate.model().graph;
    let same = same_tensors(first, candidate);
    let mut needed: Vec<bool> =
        graph.nodes().iter().map(|node| matches!(node.op, Op::Logits { .. })).collect();
    let mut reused_nodes = Vec::new();
    for (id, node) in graph.iter().collect::<Vec<_>>().into_iter().rev() {
        if !needed[id.index()] {
            continue;
        }
        // The logits are looked at in every run.
        let is_logits = matches!(node.op, Op::Logits { .. });
        if same[id.index()] && node.op.facets().can_be_given && !is_logits {
            reused_nodes.push(id);
        } else {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    reused_nodes
}

/// For each node of a candidate, whether it makes the tensor that it makes in the first one's run: the same operation and
/// shape, the same elements of the weights, and inputs that are the same.
pub(super) fn same_tensors(first: &Candidate, candidate: &Candidate) -> Vec<bool> {
    let (a, b) = (first.model(), candidate.model());
    let reads_the_same = first.shift == candidate.shift && a.shifts_target() == b.shifts_target();
    let mut same = vec![false; b.graph.nodes().len()];
    // After the first operation that differs, node numbers do not correspond.
    let pairs = a.graph.nodes().iter().zip(b.graph.nodes()).take_while(|(a, b)| a == b);
    for (i, (_, node)) in pairs.enumerate() {
        let is_sized_alike = node.dims.iter().all(|&dim| a.sizes.get(dim) == b.sizes.get(dim));
        same[i] = is_sized_alike
            && (reads_the_same || node.op.facets().reads != Some(Side::Target))
            && node.inputs.iter().all(|input| same[input.index()])
            && node.weights.iter().all(|&id| first.prepared.weights().same(candidate.prepared.weights(), id));
    }
    same
}

/// Tensors of one candidate that others of its class use as they are.
struct SharedTensors {
    candidate: usize,
    pairs: Vec<usize>,
    tensors: Vec<(NodeId, Tensor)>,
}

/// A thread that runs candidates.
pub(super) struct Worker<'a> {
    candidates: &'a [&'a Candidate],
    corpus: &'a Corpus,
    shared: Option<SharedTensors>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(candidates: &'a [&'a Candidate], corpus: &'a Corpus) -> Self {
        Self { candidates, corpus, shared: None }
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
            let known = match class.reused_nodes[member].is_empty() {
                true => Vec::new(),
                false => self.reused(class, member, batch)?,
            };
            let shared = if member == 0 { class.shared_nodes() } else { Vec::new() };
            let mut scores = self.run(candidate, batch, known, shared, true)?;
            losses.extend(batch.iter().zip(scores.drain(..)).map(|(&pair, score)| (candidate, pair, score)));
        }
        Ok(losses)
    }

    /// The tensors that a member takes from the first one's run on a batch, which is run if needed.
    fn reused(
        &mut self,
        class: &Class,
        member: usize,
        batch: &[usize],
    ) -> Result<Vec<(NodeId, Tensor)>, RunError> {
        let first = class.members[0];
        let is_there = |shared: &SharedTensors| shared.candidate == first && shared.pairs == batch;
        if !self.shared.as_ref().is_some_and(is_there) {
            self.run(first, batch, Vec::new(), class.shared_nodes(), false)?;
        }
        let shared = self.shared.iter().flat_map(|shared| &shared.tensors);
        Ok(shared.filter(|(id, _)| class.reused_nodes[member].contains(id)).cloned().collect())
    }

    /// Runs a candidate from known tensors on; keeps those that others take from it. Scores are empty where they are not
    /// wanted.
    fn run(
        &mut self,
        candidate: usize,
        batch: &[usize],
        mut known: Vec<(NodeId, Tensor)>,
        shared: Vec<NodeId>,
        scored: bool,
    ) -> Result<Vec<Score>, RunError> {
        let (at, candidate) = (candidate, self.candidates[candidate]);
        let clip = self.clip(batch);
        let encoded = clip.and_then(|clip| clip.encoded(candidate)).filter(|_| known.is_empty());
        let encoder = encoder_output(candidate.model()).filter(|_| clip.is_some() && known.is_empty());
        let encoder = encoder.filter(|_| encoded.is_none());
        known.extend(encoded);
        let shifted = candidate.model().shifts_target();
        let decoded: Vec<Decoded> =
            batch.iter().map(|&pair| self.corpus.decoded(pair, &candidate.shift, shifted)).collect();
        let inputs: Vec<Vec<u32>> = decoded.iter().map(|d| d.input.clone()).collect();
        let target = Rows::checked(candidate.model(), Side::Target, &inputs, self.corpus.pad)?;
        let input = match self.corpus.kind() {
            CorpusKind::Pairs => Input::pair(source(candidate, self.corpus, batch), target),
            CorpusKind::Texts => Input::of(Side::Target, Sequence::Tokens(target)),
        };
        let logits = candidate.model().graph.at(Role::Logits).filter(|_| scored);
        let mut sink = ScoreSink {
            logits,
            shared: &shared,
            encoder,
            decoded: &decoded,
            scores: Vec::new(),
            kept: Vec::new(),
            encoded: None,
        };
        if !shared.is_empty() {
            self.shared = None;
        }
        let input = CheckedInput::new(candidate.model(), input)?;
        let mut session = candidate.prepared.session(&candidate.prepared.limits().one_thread());
        session.run(&Request::new(&input).known(&known), &mut sink)?;
        if let (Some(clip), Some(encoded)) = (clip, &sink.encoded) {
            clip.keep(candidate, encoded);
        }
        if !shared.is_empty() {
            self.shared = Some(SharedTensors { candidate: at, pairs: batch.to_vec(), tensors: sink.kept });
        }
        Ok(sink.scores)
    }

    /// The clip that a batch is of.
    fn clip(&self, batch: &[usize]) -> Option<&'a Clip> {
        match (batch, batch.first().and_then(|&pair| self.corpus.sources.get(pair))) {
            ([_], Some(PairSource::Clip(clip))) => Some(clip),
            _ => None,
        }
    }
}

/// The sources of a batch. Clips have no padding.
fn source(candidate: &Candidate, corpus: &Corpus, batch: &[usize]) -> Sequence {
    let own = batch.iter().map(|&pair| corpus.source_length(pair)).max().unwrap_or(0);
    let room = position_limit(candidate.model(), Side::Source).unwrap_or(usize::MAX);
    let length = match candidate.padding {
        Padding::None => 0,
        Padding::Twice => (2 * own).max(own + LEAST_PADDING),
        Padding::Longest => corpus.longest_source() + LEAST_PADDING,
    };
    corpus.source(batch, length.min(room))
}

/// Computes the cost of each row from the logits, and keeps the tensors that others use.
struct ScoreSink<'a> {
    logits: Option<NodeId>,
    shared: &'a [NodeId],
    /// The encoder's output, where it is to be kept.
    encoder: Option<NodeId>,
    decoded: &'a [Decoded],
    scores: Vec<Score>,
    kept: Vec<(NodeId, Tensor)>,
    encoded: Option<Tensor>,
}

impl ScoreSink<'_> {
    fn is_kept(&self, node: NodeId) -> bool {
        Some(node) == self.encoder || self.shared.binary_search(&node).is_ok()
    }
}

impl Sink for ScoreSink<'_> {
    fn wants(&self, node: NodeId) -> bool {
        Some(node) == self.logits || self.is_kept(node)
    }

    fn held(&self, node: NodeId, own: u64) -> u64 {
        if self.is_kept(node) { own } else { 0 }
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        if self.shared.binary_search(&node).is_ok() {
            self.kept.push((node, tensor.clone()));
        }
        if Some(node) == self.encoder {
            self.encoded = Some(tensor.clone());
        }
        if let (true, &[_, length, width]) = (Some(node) == self.logits, tensor.shape()) {
            let values = tensor.values().as_f32();
            let rows = values.chunks((length * width).max(1)).zip(self.decoded);
            self.scores = rows.map(|(row, decoded)| judge(row, width, decoded)).collect();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use attnscope_checkpoint::Checkpoint;
    use attnscope_graph::{
        Activation, Config, Dim, Recognised, ScoreScale, Switch, WeightId, Wiring, recognise,
    };
    use attnscope_run::{Executor, Features, Native, Shift, SplitMix, Weights, tensor_specs};

    use super::super::{Scores, score};
    use super::*;

    /// A fixture as it is declared, and pairs of one length: they make one batch whatever the candidate.
    fn declared(fixture: &str) -> (Candidate, Corpus) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let configs: Vec<Config<'_>> =
            checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
        let found = recognise(tensor_specs(&checkpoint), &configs, None).unwrap();
        let Recognised::Model(model) = found else { panic!("{fixture} is no model") };
        let weights = Weights::load(&model, &checkpoint).unwrap();
        let shift = Shift::Start(0);
        let mut dice = SplitMix::new(7);
        let vocabulary = model.sizes.get(Dim::Vocab(Side::Target)).unwrap();
        let features = audio_window(&model);
        let mut row = || (0..6).map(|_| dice.below(vocabulary) as u32).collect::<Vec<u32>>();
        let targets = (0..3).map(|_| row()).collect();
        let sources = match features {
            None => (0..3).map(|_| row().into()).collect(),
            Some((mels, frames)) => {
                let mut values = || (0..mels * frames).map(|_| dice.below(100) as f32 / 50.0 - 1.0).collect();
                (0..3).map(|_| Features { values: values(), batch: 1, mels, frames }.into()).collect()
            }
        };
        let corpus = Corpus { sources, targets, texts: Vec::new(), shift: shift.clone(), pad: 0 };
        let prepared = Native::new().prepare(Arc::from(model), weights).unwrap();
        (Candidate::declared(&*prepared, &shift).unwrap(), corpus)
    }

    /// Mel bins and frames of an audio model's window.
    fn audio_window(model: &attnscope_graph::Model) -> Option<(usize, usize)> {
        let positions = model.sizes.get(Dim::Positions(Side::Source))?;
        Some((model.sizes.get(Dim::Mels)?, model.graph.frames_of(positions)))
    }

    /// The same pairs, whose clips no encoder has read.
    fn unread(corpus: &Corpus) -> Corpus {
        let unread = |source: &PairSource| match source {
            PairSource::Tokens(_) => source.clone(),
            PairSource::Clip(clip) => clip.features.clone().into(),
        };
        Corpus { sources: corpus.sources.iter().map(unread).collect(), ..corpus.clone() }
    }

    /// The same candidate with one weight negated.
    fn negated(declared: &Candidate, id: WeightId) -> Candidate {
        let weights = declared.prepared.weights();
        let values = weights.get(id).unwrap().iter().map(|x| -x).collect();
        let prepared = declared.prepared.again(declared.prepared.model().clone(), weights.with(id, values));
        Candidate { prepared: prepared.unwrap(), ..declared.clone() }
    }

    fn rewired(declared: &Candidate, edit: impl Fn(&mut Wiring)) -> Candidate {
        let mut wiring = declared.model().wiring;
        edit(&mut wiring);
        let model = declared.model().rewired(&wiring, None);
        let weights = declared.prepared.weights().reordered(&declared.model().graph, &model.graph).unwrap();
        let prepared = declared.prepared.again(Arc::new(model), weights).unwrap();
        Candidate { prepared, ..declared.clone() }
    }

    /// Every weight negated in turn, other wirings, another start, and rows with padding.
    fn candidates(declared: &Candidate) -> Vec<(String, Candidate)> {
        let graph = &declared.model().graph;
        let ids = graph.weights().iter().map(|weight| (weight, graph.find_weight(&weight.path).unwrap()));
        let mut all: Vec<(String, Candidate)> =
            ids.map(|(weight, id)| (weight.path.clone(), negated(declared, id))).collect();
        all.push(("activation".into(), rewired(declared, |w| w.activation = Activation::Swish)));
        all.push(("score_scale".into(), rewired(declared, |w| w.score_scale = ScoreScale::DModel)));
        all.push(("causal_mask".into(), rewired(declared, |w| w.causal_mask = Switch::Off)));
        all.push(("decoder_shift".into(), rewired(declared, |w| w.decoder_shift = Switch::Off)));
        all.push(("start".into(), Candidate { shift: Shift::Start(5), ..declared.clone() }));
        all.push(("padded".into(), Candidate { padding: Padding::Twice, ..declared.clone() }));
        all
    }

    /// Reused tensors equal those that a candidate would compute: its scores are equal to the bit to those of a separate run.
    #[test]
    fn candidates_score_together_as_they_do_alone() {
        for fixture in ["marian", "t5", "bart", "whisper"] {
            let (declared, corpus) = declared(fixture);
            let others = candidates(&declared);
            let all: Vec<&Candidate> =
                [&declared].into_iter().chain(others.iter().map(|(_, candidate)| candidate)).collect();
            let together = score(&all, &corpus, &|_, _| ()).unwrap();
            let alone = |candidate: &Candidate| -> Scores {
                score(&[candidate], &unread(&corpus), &|_, _| ()).unwrap().swap_remove(0)
            };
            assert_eq!(together[0], alone(&declared), "{fixture}");
            for ((what, candidate), scores) in others.iter().zip(&together[1..]) {
                assert_eq!(*scores, alone(candidate), "{fixture}: {what}");
            }
        }
    }

    /// The encoder's output for a clip is taken by candidates with that encoder, and by no others.
    #[test]
    fn a_clip_is_encoded_once_for_every_candidate_with_its_encoder() {
        let (declared, corpus) = declared("whisper");
        let PairSource::Clip(clip) = &corpus.sources[0] else { panic!("no clip") };
        assert!(clip.encoded(&declared).is_none());
        let known = score(&[&declared], &corpus, &|_, _| ()).unwrap().swap_remove(0);
        let again = score(&[&declared], &corpus, &|_, _| ()).unwrap().swap_remove(0);
        assert_eq!(known, again);
        for (what, candidate) in candidates(&declared) {
            let changes_encoder = ["audio.", "src.", "encoder.", "activation", "score_scale"];
            let is_same = !changes_encoder.iter().any(|start| what.starts_with(start));
            assert_eq!(clip.encoded(&candidate).is_some(), is_same, "{what}");
        }
    }
}
