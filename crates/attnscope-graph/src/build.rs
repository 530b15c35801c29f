//! From an architecture and a wiring to a graph. A pure function: a hypothesis about a model is `build` with another wiring.

use crate::architecture::{Architecture, Classifier, Head, StackShape};
use crate::block::{Block, Convolutions, RecurrentCell};
use crate::dim::{Dim, Side, Stack};
use crate::graph::{Graph, NodeId, WeightId};
use crate::op::{Factor, MaskKind, Op, Pooling};
use crate::role::{
    AttentionKind, AttentionPlace, AttentionStep, AudioStep, BlockStep, Direction, EntryStep,
    FeedForwardStep, HeadStep, LayerStep, RecurrentStep, Role,
};
use crate::wiring::{
    CrossMask, EmbeddingNorm, EmbeddingScale, Front, GainAt, LogitScale, NormPlace, Positions, RotaryPairs,
    ScoreScale, Switch, Wiring,
};

/// The graph of a model with these stacks, joined in this way.
pub fn build(architecture: &Architecture, wiring: &Wiring) -> Graph {
    let mut b = Builder { graph: Graph::default(), architecture, wiring: *wiring };
    let mut outputs: Vec<(Stack, NodeId)> = Vec::new();
    for &(shape, layers) in &architecture.stacks {
        let memory = shape.reads.and_then(|read| outputs.iter().find(|(stack, _)| *stack == read));
        let memory = memory.map(|&(stack, out)| Memory { stack, out });
        let mut x = match (shape.stack.side(), wiring.front) {
            (Side::Source, Front::Audio) => b.embed_audio(),
            (side, _) => b.embed_tokens(side),
        };
        for n in 0..layers {
            x = b.layer(shape, n, x, memory);
        }
        outputs.push((shape.stack, b.finish(shape.stack, x)));
    }
    match outputs.last() {
        Some(&(stack, out)) => b.head(stack.side(), out),
        None => {
            let x = b.embed_tokens(Side::Source);
            b.head(Side::Source, x);
        }
    }
    b.graph
}

struct Builder<'a> {
    graph: Graph,
    architecture: &'a Architecture,
    wiring: Wiring,
}

/// The output of a stack that another one reads.
#[derive(Clone, Copy)]
struct Memory {
    stack: Stack,
    out: NodeId,
}

impl Builder<'_> {
    /// `src.ids` → `src.embed` → `src.embed_pos`.
    fn embed_tokens(&mut self, side: Side) -> NodeId {
        let ids = self.graph.add(Role::Entry(side, EntryStep::Ids), Op::Ids(side), &[], &[]);
        let table = self.embedding_table(side);
        let scale = match self.wiring.embedding_scale {
            EmbeddingScale::SqrtDModel if side == Side::Source || self.wiring.scales_target => {
                Factor::Sqrt(Dim::Model)
            }
            EmbeddingScale::SqrtDModel | EmbeddingScale::None => Factor::One,
        };
        let embed =
            self.graph.add(Role::Entry(side, EntryStep::Embed), Op::Embed { scale }, &[ids], &[table]);
        self.add_positions(side, embed)
    }

    /// A shared table belongs to the source, whichever side looks it up.
    fn embedding_table(&mut self, side: Side) -> WeightId {
        let owner = if self.shares_tables() { Side::Source } else { side };
        let path = format!("{}.weight", Role::Entry(owner, EntryStep::Embed));
        self.graph.add_weight(path, vec![Dim::Vocab(owner), Dim::Model])
    }

    /// `audio.mel` → two convolutions → `src.embed` → `src.embed_pos`.
    fn embed_audio(&mut self) -> NodeId {
        let mut x = self.graph.add(Role::Audio(AudioStep::Mel), Op::Features, &[], &[]);
        for (n, stride, channels) in [(1, 1, Dim::Mels), (2, 2, Dim::Model)] {
            let role = Role::Audio(AudioStep::Conv(n));
            let weight =
                self.graph.add_weight(format!("{role}.weight"), vec![Dim::Model, channels, Dim::Fixed(3)]);
            let bias = self.graph.add_weight(format!("{role}.bias"), vec![Dim::Model]);
            let length = if stride == 1 { Dim::Frames } else { Dim::Source };
            let op = Op::Conv1d { kernel: 3, stride, padding: 1, length };
            x = self.graph.add(role, op, &[x], &[weight, bias]);
            // The front end's activation is the exact GELU whatever the layers use.
            let act = Op::Activate(crate::wiring::Activation::Gelu);
            x = self.graph.add(Role::Audio(AudioStep::ConvAct(n)), act, &[x], &[]);
        }
        let embed = self.graph.add(Role::Entry(Side::Source, EntryStep::Embed), Op::Transpose, &[x], &[]);
        self.add_positions(Side::Source, embed)
    }

    /// Positions and the embedding norm, in the wiring's order; the result is always called `embed_pos`.
    fn add_positions(&mut self, side: Side, embed: NodeId) -> NodeId {
        let norm = self.wiring.embedding_norm(side);
        let mut x = embed;
        if norm == EmbeddingNorm::BeforePositions {
            x = self.norm(Role::Entry(side, EntryStep::EmbedNorm), x);
        }
        let done = Role::Entry(side, EntryStep::EmbedPos);
        let normed_after = norm == EmbeddingNorm::AfterPositions;
        let summed = if normed_after { Role::Entry(side, EntryStep::EmbedSum) } else { done };
        let mut terms = vec![x];
        terms.extend(self.positions(side));
        terms.extend(self.token_types(side));
        x = match terms[..] {
            [_] if normed_after => x,
            [_] => self.graph.add(summed, Op::Same, &[x], &[]),
            _ => self.graph.add(summed, Op::AddPositions, &terms, &[]),
        };
        let x = if normed_after { self.norm(done, x) } else { x };
        self.dropped(Role::Entry(side, EntryStep::Dropout), x)
    }

    /// Dropout, where the wiring has some: a graph that is trained.
    fn dropped(&mut self, role: Role, x: NodeId) -> NodeId {
        match self.wiring.dropout {
            0.0 => x,
            p => self.graph.add(role, Op::Dropout { p }, &[x], &[]),
        }
    }

    fn positions(&mut self, side: Side) -> Option<NodeId> {
        let kind = self.wiring.positions(side);
        let role = Role::Entry(side, EntryStep::Positions);
        let table = match kind {
            Positions::None | Positions::Rotary => return None,
            Positions::Table => {
                let dims = vec![Dim::Positions(side), Dim::Model];
                vec![self.graph.add_weight(format!("{role}.weight"), dims)]
            }
            _ => vec![],
        };
        let Wiring { position_offset: offset, position_count: count, .. } = self.wiring;
        let op = Op::Positions { kind, offset, count, side };
        Some(self.graph.add(role, op, &[], &table))
    }

    /// A vector for the type of each token.
    fn token_types(&mut self, side: Side) -> Option<NodeId> {
        if !self.wiring.token_types {
            return None;
        }
        let ids = self.graph.add(Role::Entry(side, EntryStep::TypeIds), Op::TypeIds(side), &[], &[]);
        let role = Role::Entry(side, EntryStep::Types);
        let table = self.graph.add_weight(format!("{role}.weight"), vec![Dim::Types, Dim::Model]);
        Some(self.graph.add(role, Op::Embed { scale: Factor::One }, &[ids], &[table]))
    }

    fn layer(&mut self, shape: StackShape, n: usize, x: NodeId, memory: Option<Memory>) -> NodeId {
        let stack = shape.stack;
        let mut x = self.graph.add(Role::Layer(stack, n, LayerStep::In), Op::Same, &[x], &[]);
        let place = AttentionPlace { stack, layer: n, kind: AttentionKind::SelfAttention };
        let own = Attention { place, keys: stack.side(), causal: shape.causal };
        x = self.attention_sublayer(own, x, None);
        if let Some(memory) = memory {
            let place = AttentionPlace { kind: AttentionKind::CrossAttention, ..place };
            let causal = self.wiring.cross_mask == CrossMask::Causal;
            let cross = Attention { place, keys: memory.stack.side(), causal };
            x = self.attention_sublayer(cross, x, Some(memory.out));
        }
        let step = |step| Role::Layer(stack, n, LayerStep::FeedForward(step));
        let sublayer = Sublayer {
            norm: step(FeedForwardStep::Norm),
            dropout: step(FeedForwardStep::Dropout),
            residual: step(FeedForwardStep::Residual),
            gain: 1.0,
        };
        x = self.sublayer(sublayer, x, |b, x| b.feed_forward(stack, n, x));
        self.graph.add(Role::Layer(stack, n, LayerStep::Out), Op::Same, &[x], &[])
    }

    /// Keys and values come from `memory`, or where there is none, from where the queries come from.
    fn attention_sublayer(&mut self, attention: Attention, x: NodeId, memory: Option<NodeId>) -> NodeId {
        let sublayer = Sublayer {
            norm: attention.place.step(AttentionStep::Norm),
            dropout: attention.place.step(AttentionStep::Dropout),
            residual: attention.place.step(AttentionStep::Residual),
            gain: self.gain(attention.place),
        };
        self.sublayer(sublayer, x, |b, x| b.attention(attention, x, memory.unwrap_or(x)))
    }

    /// A sublayer with its residual sum and its norm, before or after.
    fn sublayer(
        &mut self,
        sublayer: Sublayer,
        x: NodeId,
        body: impl FnOnce(&mut Self, NodeId) -> NodeId,
    ) -> NodeId {
        let residual = Op::Residual { gain: sublayer.gain };
        match self.wiring.norm_place {
            NormPlace::Pre => {
                let normed = self.norm(sublayer.norm, x);
                let y = body(self, normed);
                let y = self.dropped(sublayer.dropout, y);
                self.graph.add(sublayer.residual, residual, &[x, y], &[])
            }
            NormPlace::Post => {
                let y = body(self, x);
                let y = self.dropped(sublayer.dropout, y);
                let sum = self.graph.add(sublayer.residual, residual, &[x, y], &[]);
                self.norm(sublayer.norm, sum)
            }
        }
    }

    /// The residual scale of an attention: 1, unless the wiring says otherwise.
    fn gain(&self, place: AttentionPlace) -> f32 {
        let here = match self.wiring.residual_gain_at {
            GainAt::EveryAttention => true,
            GainAt::Encoder => place.stack == Stack::Encoder,
        };
        if here { self.wiring.residual_gain } else { 1.0 }
    }

    /// Queries from `x`, keys and values from `memory`: the same node for self-attention.
    fn attention(&mut self, attention: Attention, x: NodeId, memory: NodeId) -> NodeId {
        use AttentionStep::{
            Context, ContextHeads, K, KHeads, KRot, Out, Q, QHeads, QRot, V, VHeads, Weights,
        };
        let place = attention.place;
        let (stack, biases) = (place.stack, self.wiring.biases);
        let inner = Dim::Inner(stack);
        let shared = if self.wiring.grouped { Dim::KvInner(stack) } else { inner };
        let heads = |b: &mut Self, [projection, split]: [AttentionStep; 2], width, from, bias| {
            let projected = b.linear(place.step(projection), from, [width, Dim::Model], bias);
            b.graph.add(place.step(split), Op::SplitHeads(stack), &[projected], &[])
        };
        let q = heads(self, [Q, QHeads], inner, x, biases.q);
        let k = heads(self, [K, KHeads], shared, memory, biases.k);
        let v = heads(self, [V, VHeads], shared, memory, biases.v);
        let (q, k) = (self.rotated(place, QRot, q), self.rotated(place, KRot, k));
        let masked = self.masked_scores(attention, q, k);
        let normaliser = Op::Normalise(self.wiring.normaliser);
        let weights = self.graph.add(place.step(Weights), normaliser, &[masked], &[]);
        let context = self.graph.add(place.step(ContextHeads), Op::Context, &[weights, v], &[]);
        let merged = self.graph.add(place.step(Context), Op::MergeHeads(stack), &[context], &[]);
        self.linear(place.step(Out), merged, [Dim::Model, inner], biases.attn_out)
    }

    /// Queries or keys after rotary positions, which only self-attention has.
    fn rotated(&mut self, place: AttentionPlace, step: AttentionStep, x: NodeId) -> NodeId {
        let side = place.stack.side();
        let has_rotary = self.wiring.positions(side) == Positions::Rotary;
        if !has_rotary || place.kind != AttentionKind::SelfAttention {
            return x;
        }
        let base = self.wiring.rotary_base_of(place.layer);
        let pairs = self.wiring.rotary_pairs.unwrap_or(RotaryPairs::Halves);
        self.graph.add(place.step(step), Op::Rotate { side, base, pairs }, &[x], &[])
    }

    /// scores (+ bias) (+ mask): a bias or a mask that the model lacks has no node.
    fn masked_scores(&mut self, attention: Attention, q: NodeId, k: NodeId) -> NodeId {
        let Attention { place, keys, causal } = attention;
        let AttentionPlace { stack, kind, .. } = place;
        let scale = match self.wiring.score_scale {
            ScoreScale::DHead => Factor::Rsqrt(Dim::Head(stack)),
            ScoreScale::DModel => Factor::Rsqrt(Dim::Model),
            ScoreScale::None => Factor::One,
        };
        let scores = self.graph.add(place.step(AttentionStep::Scores), Op::Scores { scale }, &[q, k], &[]);
        let mut sum = vec![scores];
        let has_bias = self.wiring.relative_bias && kind == AttentionKind::SelfAttention;
        if has_bias {
            // One table per stack: its first layer owns it and all layers use it.
            let owner = AttentionPlace { layer: 0, ..place }.step(AttentionStep::Bias);
            let dims = vec![Dim::Buckets(stack), Dim::Heads(stack)];
            let table = self.graph.add_weight(format!("{owner}.weight"), dims);
            let (buckets, max_distance) = (self.wiring.relative_buckets, self.wiring.relative_max_distance);
            let op = Op::RelativeBias { stack, buckets, max_distance };
            sum.push(self.graph.add(place.step(AttentionStep::Bias), op, &[], &[table]));
        }
        let is_cross = kind == AttentionKind::CrossAttention;
        let mask = MaskKind {
            queries: stack.side(),
            keys,
            causal: causal && (is_cross || self.wiring.causal_mask == Switch::On),
            padding: self.wiring.padding_mask == Switch::On,
            reach: self.wiring.window_of(place.layer).filter(|_| !is_cross).map(|window| match causal {
                // A query sees itself and those before it.
                true => window.saturating_sub(1),
                // Half of the window lies on each side.
                false => window / 2,
            }),
        };
        if mask.masks() {
            sum.push(self.graph.add(place.step(AttentionStep::Mask), Op::Mask(mask), &[], &[]));
        }
        let op = Op::AddMask { bias: has_bias, mask: mask.masks() };
        self.graph.add(place.step(AttentionStep::MaskedScores), op, &sum, &[])
    }

    fn feed_forward(&mut self, stack: Stack, n: usize, x: NodeId) -> NodeId {
        use FeedForwardStep::{Act, Gate, Gated, Hidden, In, Out};
        let role = |step| Role::Layer(stack, n, LayerStep::FeedForward(step));
        let (wide, bias) = (Dim::FeedForward(stack), self.wiring.biases.ffn);
        let x = self.graph.add(role(In), Op::Same, &[x], &[]);
        let hidden = self.linear(role(Hidden), x, [wide, Dim::Model], bias);
        let mut h = self.graph.add(role(Act), Op::Activate(self.wiring.activation), &[hidden], &[]);
        if self.wiring.gated {
            let gate = self.linear(role(Gate), x, [wide, Dim::Model], bias);
            h = self.graph.add(role(Gated), Op::Gate, &[h, gate], &[]);
        }
        self.linear(role(Out), h, [Dim::Model, wide], bias)
    }

    /// `encoder.out`: the last layer's output, normed where the family does so.
    fn finish(&mut self, stack: Stack, x: NodeId) -> NodeId {
        let role = Role::StackOut(stack);
        if self.wiring.final_norm(stack) {
            self.norm(role, x)
        } else {
            self.graph.add(role, Op::Same, &[x], &[])
        }
    }

    /// What follows the last stack, or the embeddings, down to the logits.
    fn head(&mut self, side: Side, x: NodeId) {
        match &self.architecture.head {
            Head::None => {}
            Head::Projection => self.logits(side, x),
            Head::Classifier(classifier) => self.classifier(classifier, side, x),
            Head::Transform => {
                let x = self.linear(Role::Head(HeadStep::Dense), x, [Dim::Model, Dim::Model], true);
                let activate = Op::Activate(self.wiring.activation);
                let x = self.graph.add(Role::Head(HeadStep::Act), activate, &[x], &[]);
                let x = self.norm(Role::Head(HeadStep::Norm), x);
                self.logits(side, x);
            }
        }
    }

    /// Blocks, then a score for each class.
    fn classifier(&mut self, classifier: &Classifier, side: Side, x: NodeId) {
        let mut chain = Chain { x, side, is_channels_first: false, convolutions: Convolutions::default() };
        for (n, &block) in classifier.blocks.iter().enumerate() {
            let takes_last = classifier.blocks.get(n + 1) == Some(&Block::LastState {});
            self.block(n, block, takes_last, &mut chain);
        }
        let width = self.width(chain.x);
        let classes = Dim::Fixed(classifier.classes);
        let weight = self.graph.add_weight(format!("{}.weight", Role::Logits), vec![classes, width]);
        let bias = self.graph.add_weight(format!("{}.bias", Role::Logits), vec![classes]);
        self.graph.add(Role::Logits, Op::Logits { scale: Factor::One }, &[chain.x], &[weight, bias]);
    }

    /// The features of a node's tensor.
    fn width(&self, x: NodeId) -> Dim {
        self.graph.node(x).dims.last().copied().unwrap_or(Dim::Fixed(1))
    }

    fn block(&mut self, n: usize, block: Block, takes_last: bool, chain: &mut Chain) {
        let role = |step| Role::Block(n, step);
        match block {
            Block::Rnn { hidden, bidirectional } => {
                self.recurrent(n, RecurrentCell::Rnn, hidden, bidirectional, takes_last, chain);
            }
            Block::Lstm { hidden, bidirectional } => {
                self.recurrent(n, RecurrentCell::Lstm, hidden, bidirectional, takes_last, chain);
            }
            // Taken where the recurrent layer before it was made.
            Block::LastState {} => {}
            Block::Conv1d { channels, kernel, stride } => {
                self.order(n, chain, true);
                let length = chain.convolutions.then(kernel, stride).unwrap_or(chain.convolutions);
                chain.convolutions = length;
                let from = self.graph.node(chain.x).dims.get(1).copied().unwrap_or(Dim::Fixed(1));
                let dims = vec![Dim::Fixed(channels), from, Dim::Fixed(kernel)];
                let path = role(BlockStep::Conv);
                let weight = self.graph.add_weight(format!("{path}.weight"), dims);
                let bias = self.graph.add_weight(format!("{path}.bias"), vec![Dim::Fixed(channels)]);
                let op = Op::Conv1d { kernel, stride, padding: 0, length: Dim::Convolved(length) };
                chain.x = self.graph.add(path, op, &[chain.x], &[weight, bias]);
            }
            Block::Activation { function } => {
                chain.x = self.graph.add(role(BlockStep::Act), Op::Activate(function), &[chain.x], &[]);
            }
            Block::MaxPool {} => self.pool(n, Pooling::Max, chain),
            Block::MeanPool {} => self.pool(n, Pooling::Mean, chain),
            Block::FirstToken {} => self.pool(n, Pooling::First, chain),
            Block::LastToken {} => self.pool(n, Pooling::Last, chain),
            Block::Flatten { features } => {
                let op = Op::Flatten { features };
                chain.x = self.graph.add(role(BlockStep::Flatten), op, &[chain.x], &[]);
                chain.is_channels_first = false;
            }
            Block::Linear { features } => {
                self.order(n, chain, false);
                let width = self.width(chain.x);
                chain.x = self.linear(role(BlockStep::Linear), chain.x, [Dim::Fixed(features), width], true);
            }
            Block::Dropout { p } => {
                chain.x = self.graph.add(role(BlockStep::Dropout), Op::Dropout { p }, &[chain.x], &[]);
            }
        }
    }

    /// Puts channels before positions, or behind them, as the next step reads them.
    fn order(&mut self, n: usize, chain: &mut Chain, channels_first: bool) {
        if chain.is_channels_first == channels_first || self.graph.node(chain.x).dims.len() < 3 {
            return;
        }
        let step = if channels_first { BlockStep::ChannelsFirst } else { BlockStep::ChannelsLast };
        chain.x = self.graph.add(Role::Block(n, step), Op::Transpose, &[chain.x], &[]);
        chain.is_channels_first = channels_first;
    }

    fn pool(&mut self, n: usize, pooling: Pooling, chain: &mut Chain) {
        let axis = if chain.is_channels_first { 2 } else { 1 };
        // After a convolution no position is padding alone.
        let is_token = self.graph.node(chain.x).dims.get(axis) == Some(&chain.side.length());
        let padding_of = match pooling {
            Pooling::Mean => Some(chain.side).filter(|_| is_token),
            // A decoder that classifies reads its source again, shifted: the end is where the source ends.
            Pooling::Last => Some(Side::Source),
            Pooling::Max | Pooling::First => None,
        };
        let op = Op::Pool { pooling, axis, padding_of };
        chain.x = self.graph.add(Role::Block(n, BlockStep::Pool), op, &[chain.x], &[]);
        chain.is_channels_first = false;
    }

    /// A recurrent layer: one direction or both, all states or the last of each.
    fn recurrent(
        &mut self,
        n: usize,
        cell: RecurrentCell,
        hidden: usize,
        bidirectional: bool,
        takes_last: bool,
        chain: &mut Chain,
    ) {
        self.order(n, chain, false);
        let from = chain.x;
        let directions: &[Direction] = match bidirectional {
            true => &[Direction::Forward, Direction::Backward],
            false => &[Direction::Forward],
        };
        let mut ends = Vec::new();
        for &direction in directions {
            let role = |step| Role::Block(n, BlockStep::Recurrent(cell, direction, step));
            let reverse = direction == Direction::Backward;
            let width = self.width(from);
            let gates = Dim::Fixed(cell.gates() * hidden);
            let input = self.linear(role(RecurrentStep::Input), from, [gates, width], true);
            let states = match cell {
                RecurrentCell::Rnn => role(RecurrentStep::Hidden),
                RecurrentCell::Lstm => role(RecurrentStep::States),
            };
            let weight = self.graph.add_weight(format!("{states}.weight"), vec![gates, Dim::Fixed(hidden)]);
            let bias = self.graph.add_weight(format!("{states}.bias"), vec![gates]);
            let mut x = self.graph.add(states, Op::Recur { cell, reverse }, &[input], &[weight, bias]);
            if cell == RecurrentCell::Lstm {
                x = self.graph.add(role(RecurrentStep::Hidden), Op::Hidden, &[x], &[]);
            }
            if takes_last {
                x = self.graph.add(role(RecurrentStep::Last), Op::LastState { reverse }, &[x], &[]);
            }
            ends.push(x);
        }
        let both = match takes_last {
            true => BlockStep::BothStates,
            false => BlockStep::BothDirections(cell),
        };
        chain.x = match ends[..] {
            [one] => one,
            _ => self.graph.add(Role::Block(n, both), Op::Beside, &ends, &[]),
        };
    }

    fn logits(&mut self, side: Side, x: NodeId) {
        let vocab = Dim::Vocab(if self.shares_tables() { Side::Source } else { side });
        let mut weights = vec![if self.wiring.tied_output {
            self.embedding_table(side)
        } else {
            self.graph.add_weight(format!("{}.weight", Role::Logits), vec![vocab, Dim::Model])
        }];
        if self.wiring.biases.logits {
            weights.push(self.graph.add_weight(format!("{}.bias", Role::Logits), vec![vocab]));
        }
        let scale = match self.wiring.logit_scale {
            LogitScale::None => Factor::One,
            LogitScale::RsqrtDModel => Factor::Rsqrt(Dim::Model),
        };
        self.graph.add(Role::Logits, Op::Logits { scale }, &[x], &weights);
    }

    /// Whether one table serves both sequences; a model of one sequence has nothing to share.
    fn shares_tables(&self) -> bool {
        let both = [Stack::Encoder, Stack::Decoder].into_iter().all(|stack| self.architecture.has(stack));
        both && self.wiring.shared_embeddings && self.wiring.front == Front::Tokens
    }

    fn norm(&mut self, role: Role, x: NodeId) -> NodeId {
        let mut weights = vec![self.graph.add_weight(format!("{role}.weight"), vec![Dim::Model])];
        if self.wiring.biases.norm {
            weights.push(self.graph.add_weight(format!("{role}.bias"), vec![Dim::Model]));
        }
        let op = Op::Norm { kind: self.wiring.norm, eps: self.wiring.norm_eps };
        self.graph.add(role, op, &[x], &weights)
    }

    fn linear(&mut self, role: Role, x: NodeId, [out, input]: [Dim; 2], bias: bool) -> NodeId {
        let mut weights = vec![self.graph.add_weight(format!("{role}.weight"), vec![out, input])];
        if bias {
            weights.push(self.graph.add_weight(format!("{role}.bias"), vec![out]));
        }
        self.graph.add(role, Op::Linear, &[x], &weights)
    }
}

/// The norm, the dropout and the residual sum around a sublayer.
struct Sublayer {
    norm: Role,
    dropout: Role,
    residual: Role,
    /// What the sublayer's output is multiplied by before it is added.
    gain: f32,
}

/// Where a chain of blocks has come to.
struct Chain {
    x: NodeId,
    /// The sequence whose positions they are.
    side: Side,
    /// [batch, channel, position], not [batch, position, feature].
    is_channels_first: bool,
    convolutions: Convolutions,
}

/// Which attention of a layer, and what it may see.
#[derive(Clone, Copy)]
struct Attention {
    place: AttentionPlace,
    keys: Side,
    causal: bool,
}

#[cfg(test)]
mod tests;
