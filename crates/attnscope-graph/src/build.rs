//! From an architecture and a wiring to a graph. A pure function: a hypothesis about a model is `build` with another wiring.

mod attention;
mod classifier;
mod entry;

use attention::Attention;

use crate::architecture::{Architecture, Head, StackShape};
use crate::dim::{Dim, Side, Stack};
use crate::graph::{Graph, NodeId};
use crate::op::{Capped, Factor, Op};
use crate::role::{AttentionKind, AttentionPlace, AttentionStep, FeedForwardStep, HeadStep, LayerStep, Role};
use crate::wiring::{CrossMask, Front, GainAt, LogitScale, NormPlace, Wiring};

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
    fn layer(&mut self, shape: StackShape, n: usize, x: NodeId, memory: Option<Memory>) -> NodeId {
        let stack = shape.stack;
        let mut x = self.graph.add(Role::Layer(stack, n, LayerStep::In), Op::Same, &[x], &[]);
        let before = x;
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
            norm: Some(step(FeedForwardStep::Norm)),
            out_norm: step(FeedForwardStep::OutNorm),
            dropout: step(FeedForwardStep::Dropout),
            residual: step(FeedForwardStep::Residual),
            gain: 1.0,
        };
        let reads = if self.wiring.parallel_residual { before } else { x };
        x = self.sublayer(sublayer, reads, x, |b, x| b.feed_forward(stack, n, x));
        self.graph.add(Role::Layer(stack, n, LayerStep::Out), Op::Same, &[x], &[])
    }

    /// Keys and values come from `memory`, or where there is none, from where the queries come from.
    fn attention_sublayer(&mut self, attention: Attention, x: NodeId, memory: Option<NodeId>) -> NodeId {
        let sublayer = Sublayer {
            norm: self.has_norm(attention.place).then(|| attention.place.step(AttentionStep::Norm)),
            out_norm: attention.place.step(AttentionStep::OutNorm),
            dropout: attention.place.step(AttentionStep::Dropout),
            residual: attention.place.step(AttentionStep::Residual),
            gain: self.gain(attention.place),
        };
        self.sublayer(sublayer, x, x, |b, x| b.attention(attention, x, memory.unwrap_or(x)))
    }

    /// Whether an attention has a norm of its own.
    fn has_norm(&self, place: AttentionPlace) -> bool {
        !(self.wiring.first_norm_absent && place.layer == 0 && place.kind == AttentionKind::SelfAttention)
    }

    /// A sublayer with its residual sum and its norms. It reads `reads`, and its output is added to `x`: the same node, unless
    /// sublayers are parallel.
    fn sublayer(
        &mut self,
        sublayer: Sublayer,
        reads: NodeId,
        x: NodeId,
        body: impl FnOnce(&mut Self, NodeId) -> NodeId,
    ) -> NodeId {
        let residual = Op::Residual { gain: sublayer.gain };
        match self.wiring.norm_place {
            NormPlace::Pre | NormPlace::Both => {
                let normed = sublayer.norm.map_or(reads, |norm| self.norm(norm, reads));
                let mut y = body(self, normed);
                if self.wiring.norm_place == NormPlace::Both {
                    y = self.norm(sublayer.out_norm, y);
                }
                let y = self.dropped(sublayer.dropout, y);
                self.graph.add(sublayer.residual, residual, &[x, y], &[])
            }
            NormPlace::Post => {
                let y = body(self, reads);
                let y = self.dropped(sublayer.dropout, y);
                let sum = self.graph.add(sublayer.residual, residual, &[x, y], &[]);
                sublayer.norm.map_or(sum, |norm| self.norm(norm, sum))
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
                // As wide as the table that it is multiplied by.
                let width = self.embedding_width();
                let bias = self.wiring.biases.head;
                let x = self.linear(Role::Head(HeadStep::Dense), x, [width, Dim::Model], bias);
                let activate = Op::Activate(self.wiring.activation);
                let x = self.graph.add(Role::Head(HeadStep::Act), activate, &[x], &[]);
                let x = self.norm_of_width(Role::Head(HeadStep::Norm), x, width);
                self.logits(side, x);
            }
        }
    }

    fn logits(&mut self, side: Side, x: NodeId) {
        let vocab = Dim::Vocab(if self.shares_tables() { Side::Source } else { side });
        let role = if self.wiring.logit_cap.is_some() { Role::Head(HeadStep::Logits) } else { Role::Logits };
        let mut weights = vec![if self.wiring.tied_output {
            self.embedding_table(side)
        } else {
            self.graph.add_weight(role.weight(), vec![vocab, self.embedding_width()])
        }];
        if self.wiring.biases.logits {
            weights.push(self.graph.add_weight(role.bias(), vec![vocab]));
        }
        let scale = match self.wiring.logit_scale {
            LogitScale::None => Factor::One,
            LogitScale::RsqrtDModel => Factor::Rsqrt(Dim::Model),
        };
        let x = self.graph.add(role, Op::Logits { scale }, &[x], &weights);
        if let Some(cap) = self.wiring.logit_cap {
            self.graph.add(Role::Logits, Op::SoftCap { cap, of: Capped::Logits }, &[x], &[]);
        }
    }

    /// Whether one table serves both sequences; a model of one sequence has nothing to share.
    fn shares_tables(&self) -> bool {
        let both = [Stack::Encoder, Stack::Decoder].into_iter().all(|stack| self.architecture.has(stack));
        both && self.wiring.shared_embeddings && self.wiring.front == Front::Tokens
    }

    /// Dropout, where the wiring has some: a graph that is trained.
    fn dropped(&mut self, role: Role, x: NodeId) -> NodeId {
        match self.wiring.dropout {
            0.0 => x,
            p => self.graph.add(role, Op::Dropout { p }, &[x], &[]),
        }
    }

    fn norm(&mut self, role: Role, x: NodeId) -> NodeId {
        self.norm_of_width(role, x, Dim::Model)
    }

    /// A norm over groups of so many features.
    fn norm_of_width(&mut self, role: Role, x: NodeId, width: Dim) -> NodeId {
        let owner = self.owner(role);
        let mut weights = vec![self.graph.add_weight(owner.weight(), vec![width])];
        if self.wiring.biases.norm {
            weights.push(self.graph.add_weight(owner.bias(), vec![width]));
        }
        let Wiring { norm: kind, norm_eps: eps, norm_gain, .. } = self.wiring;
        let op = Op::Norm { kind, eps, gain: norm_gain.unwrap_or_default() };
        self.graph.add(role, op, &[x], &weights)
    }

    fn linear(&mut self, role: Role, x: NodeId, [out, input]: [Dim; 2], bias: bool) -> NodeId {
        let owner = self.owner(role);
        let mut weights = vec![self.graph.add_weight(owner.weight(), vec![out, input])];
        if bias {
            weights.push(self.graph.add_weight(owner.bias(), vec![out]));
        }
        self.graph.add(role, Op::Linear, &[x], &weights)
    }

    /// The node whose weights a node uses: itself, unless layers share them.
    fn owner(&self, role: Role) -> Role {
        match (role.layer(), self.wiring.layer_groups) {
            (Some((stack, n)), Some(groups)) => {
                role.in_layer(n * groups / self.architecture.layers(stack).max(1))
            }
            _ => role,
        }
    }

    /// The width of the embedding table.
    fn embedding_width(&self) -> Dim {
        if self.wiring.embedding_projection { Dim::Embedding } else { Dim::Model }
    }
}

/// The norm, the dropout and the residual sum around a sublayer.
struct Sublayer {
    norm: Option<Role>,
    /// The norm of its output, where both are normed.
    out_norm: Role,
    dropout: Role,
    residual: Role,
    /// What the sublayer's output is multiplied by before it is added.
    gain: f32,
}

#[cfg(test)]
mod tests;
