//! From a wiring to a graph. Pure: a hypothesis about a model is `build` with another wiring.

use crate::dim::{Dim, Side, Stack};
use crate::graph::{Graph, NodeId, WeightId};
use crate::op::{Factor, MaskKind, Op};
use crate::wiring::{
    CrossMask, EmbeddingNorm, EmbeddingScale, Front, GainAt, LogitScale, NormPlace, Positions, ScoreScale,
    Switch, Wiring,
};

/// How many layers each stack has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers {
    /// Layers of the encoder.
    pub encoder: usize,
    /// Layers of the decoder.
    pub decoder: usize,
}

/// The graph of an encoder-decoder with these layers, joined in this way.
pub fn build(layers: Layers, wiring: &Wiring) -> Graph {
    let mut b = Builder { graph: Graph::default(), wiring: *wiring };
    let mut x = match wiring.front {
        Front::Tokens => b.embed_tokens(Side::Source),
        Front::Audio => b.embed_audio(),
    };
    for n in 0..layers.encoder {
        x = b.layer(Stack::Encoder, n, x, None);
    }
    let memory = b.finish(Stack::Encoder, x);
    let mut x = b.embed_tokens(Side::Target);
    for n in 0..layers.decoder {
        x = b.layer(Stack::Decoder, n, x, Some(memory));
    }
    let out = b.finish(Stack::Decoder, x);
    b.logits(out);
    b.graph
}

struct Builder {
    graph: Graph,
    wiring: Wiring,
}

impl Builder {
    /// `src.ids` → `src.embed` → `src.embed_pos`.
    fn embed_tokens(&mut self, side: Side) -> NodeId {
        let s = side.name();
        let ids = self.graph.add(format!("{s}.ids"), Op::Ids(side), &[], &[]);
        let table = self.embedding_table(side);
        let scale = match self.wiring.embedding_scale {
            EmbeddingScale::SqrtDModel if side == Side::Source || self.wiring.scales_target => {
                Factor::Sqrt(Dim::Model)
            }
            EmbeddingScale::SqrtDModel | EmbeddingScale::None => Factor::One,
        };
        let embed = self.graph.add(format!("{s}.embed"), Op::Embed { scale }, &[ids], &[table]);
        self.add_positions(side, embed)
    }

    /// A shared table belongs to the source, whichever side looks it up.
    fn embedding_table(&mut self, side: Side) -> WeightId {
        let owner = if self.shares_tables() { Side::Source } else { side };
        self.graph.add_weight(format!("{}.embed.weight", owner.name()), vec![Dim::Vocab(owner), Dim::Model])
    }

    /// `audio.mel` → two convolutions → `src.embed` → `src.embed_pos`.
    fn embed_audio(&mut self) -> NodeId {
        let mut x = self.graph.add("audio.mel".into(), Op::Features, &[], &[]);
        for (name, stride, channels) in [("conv1", 1, Dim::Mels), ("conv2", 2, Dim::Model)] {
            let path = format!("audio.{name}");
            let kernel = vec![Dim::Model, channels, Dim::Fixed(3)];
            let weight = self.graph.add_weight(format!("{path}.weight"), kernel);
            let bias = self.graph.add_weight(format!("{path}.bias"), vec![Dim::Model]);
            x = self.graph.add(path, Op::Conv1d { stride }, &[x], &[weight, bias]);
            // The front end's activation is the exact GELU whatever the layers use.
            let act = Op::Activate(crate::wiring::Activation::Gelu);
            x = self.graph.add(format!("audio.{name}_act"), act, &[x], &[]);
        }
        let embed = self.graph.add("src.embed".into(), Op::Transpose, &[x], &[]);
        self.add_positions(Side::Source, embed)
    }

    /// Positions and the embedding norm, in the wiring's order; the result is always called `embed_pos`.
    fn add_positions(&mut self, side: Side, embed: NodeId) -> NodeId {
        let s = side.name();
        let norm = self.wiring.embedding_norm(side);
        let mut x = embed;
        if norm == EmbeddingNorm::BeforePositions {
            x = self.norm(format!("{s}.embed_norm"), x);
        }
        let done = format!("{s}.embed_pos");
        let summed =
            if norm == EmbeddingNorm::AfterPositions { format!("{s}.embed_sum") } else { done.clone() };
        x = match self.positions(side) {
            Some(positions) => self.graph.add(summed, Op::AddPositions, &[x, positions], &[]),
            None if norm == EmbeddingNorm::AfterPositions => x,
            None => self.graph.add(summed, Op::Same, &[x], &[]),
        };
        if norm == EmbeddingNorm::AfterPositions { self.norm(done, x) } else { x }
    }

    fn positions(&mut self, side: Side) -> Option<NodeId> {
        let kind = self.wiring.positions(side);
        let path = format!("{}.positions", side.name());
        let table = match kind {
            Positions::None => return None,
            Positions::Table => {
                let dims = vec![Dim::Positions(side), Dim::Model];
                vec![self.graph.add_weight(format!("{path}.weight"), dims)]
            }
            _ => vec![],
        };
        let Wiring { position_offset: offset, position_count: count, .. } = self.wiring;
        let op = Op::Positions { kind, offset, count, side };
        Some(self.graph.add(path, op, &[], &table))
    }

    fn layer(&mut self, stack: Stack, n: usize, x: NodeId, memory: Option<NodeId>) -> NodeId {
        let layer = format!("{}.{n}", stack.name());
        let mut x = self.graph.add(format!("{layer}.in"), Op::Same, &[x], &[]);
        let path = format!("{layer}.self_attn");
        let own = Attention { stack, keys: stack.side(), causal: stack == Stack::Decoder };
        x = self.sublayer(&path, x, |b, x| b.attention(&path, own, x, x));
        if let Some(memory) = memory {
            let path = format!("{layer}.cross_attn");
            let causal = self.wiring.cross_mask == CrossMask::Causal;
            let cross = Attention { stack, keys: Side::Source, causal };
            x = self.sublayer(&path, x, |b, x| b.attention(&path, cross, x, memory));
        }
        let path = format!("{layer}.ffn");
        x = self.sublayer(&path, x, |b, x| b.feed_forward(&path, stack, x));
        self.graph.add(format!("{layer}.out"), Op::Same, &[x], &[])
    }

    /// A sublayer with its residual sum and its norm, before or after.
    fn sublayer(&mut self, path: &str, x: NodeId, body: impl FnOnce(&mut Self, NodeId) -> NodeId) -> NodeId {
        let residual = Op::Residual { gain: self.gain(path) };
        let (norm_path, sum_path) = (format!("{path}.norm"), format!("{path}.residual"));
        match self.wiring.norm_place {
            NormPlace::Pre => {
                let normed = self.norm(norm_path, x);
                let y = body(self, normed);
                self.graph.add(sum_path, residual, &[x, y], &[])
            }
            NormPlace::Post => {
                let y = body(self, x);
                let sum = self.graph.add(sum_path, residual, &[x, y], &[]);
                self.norm(norm_path, sum)
            }
        }
    }

    /// How often a sublayer is added: once, but for the attentions that a wiring speaks of.
    fn gain(&self, path: &str) -> f32 {
        let here = match self.wiring.residual_gain_at {
            GainAt::EveryAttention => !path.ends_with("ffn"),
            GainAt::Encoder => path.starts_with(Stack::Encoder.name()) && !path.ends_with("ffn"),
        };
        if here { self.wiring.residual_gain } else { 1.0 }
    }

    /// Queries from `x`, keys and values from `memory`: the same node for self-attention.
    fn attention(&mut self, path: &str, kind: Attention, x: NodeId, memory: NodeId) -> NodeId {
        let Attention { stack, .. } = kind;
        let biases = self.wiring.biases;
        let inner = Dim::Inner(stack);
        let heads = |b: &mut Self, name: &str, from: NodeId, bias: bool| {
            let projected = b.linear(format!("{path}.{name}"), from, [inner, Dim::Model], bias);
            b.graph.add(format!("{path}.{name}_heads"), Op::SplitHeads(stack), &[projected], &[])
        };
        let q = heads(self, "q", x, biases.q);
        let k = heads(self, "k", memory, biases.k);
        let v = heads(self, "v", memory, biases.v);
        let masked = self.masked_scores(path, kind, q, k);
        let squash = Op::Squash(self.wiring.squash);
        let weights = self.graph.add(format!("{path}.weights"), squash, &[masked], &[]);
        let context = self.graph.add(format!("{path}.context_heads"), Op::Context, &[weights, v], &[]);
        let merged = self.graph.add(format!("{path}.context"), Op::MergeHeads(stack), &[context], &[]);
        self.linear(format!("{path}.out"), merged, [Dim::Model, inner], biases.attn_out)
    }

    /// scores (+ bias) (+ mask): what does not exist has no node.
    fn masked_scores(&mut self, path: &str, kind: Attention, q: NodeId, k: NodeId) -> NodeId {
        let Attention { stack, keys, causal } = kind;
        let scale = match self.wiring.score_scale {
            ScoreScale::DHead => Factor::Rsqrt(Dim::Head(stack)),
            ScoreScale::DModel => Factor::Rsqrt(Dim::Model),
            ScoreScale::None => Factor::One,
        };
        let mut sum = vec![self.graph.add(format!("{path}.scores"), Op::Scores { scale }, &[q, k], &[])];
        let has_bias = self.wiring.relative_bias && keys == stack.side();
        if has_bias {
            // One table a stack, kept by its first layer and used by all.
            let table = self.graph.add_weight(
                format!("{}.0.self_attn.bias.weight", stack.name()),
                vec![Dim::Buckets(stack), Dim::Heads(stack)],
            );
            let (buckets, max_distance) = (self.wiring.relative_buckets, self.wiring.relative_max_distance);
            let op = Op::RelativeBias { stack, buckets, max_distance };
            sum.push(self.graph.add(format!("{path}.bias"), op, &[], &[table]));
        }
        let mask = MaskKind {
            queries: stack.side(),
            keys,
            causal: causal && (keys == Side::Source || self.wiring.causal_mask == Switch::On),
            padding: self.wiring.padding_mask == Switch::On,
        };
        if mask.causal || mask.padding {
            sum.push(self.graph.add(format!("{path}.mask"), Op::Mask(mask), &[], &[]));
        }
        let op = Op::AddMask { bias: has_bias, mask: mask.causal || mask.padding };
        self.graph.add(format!("{path}.masked_scores"), op, &sum, &[])
    }

    fn feed_forward(&mut self, path: &str, stack: Stack, x: NodeId) -> NodeId {
        let (wide, bias) = (Dim::FeedForward(stack), self.wiring.biases.ffn);
        let x = self.graph.add(format!("{path}.in"), Op::Same, &[x], &[]);
        let hidden = self.linear(format!("{path}.hidden"), x, [wide, Dim::Model], bias);
        let activate = Op::Activate(self.wiring.activation);
        let mut h = self.graph.add(format!("{path}.act"), activate, &[hidden], &[]);
        if self.wiring.gated {
            let gate = self.linear(format!("{path}.gate"), x, [wide, Dim::Model], bias);
            h = self.graph.add(format!("{path}.gated"), Op::Gate, &[h, gate], &[]);
        }
        self.linear(format!("{path}.out"), h, [Dim::Model, wide], bias)
    }

    /// `encoder.out`: the last layer's output, normed where the family does so.
    fn finish(&mut self, stack: Stack, x: NodeId) -> NodeId {
        let path = format!("{}.out", stack.name());
        if self.wiring.final_norm(stack) {
            self.norm(path, x)
        } else {
            self.graph.add(path, Op::Same, &[x], &[])
        }
    }

    fn logits(&mut self, x: NodeId) -> NodeId {
        let vocab = Dim::Vocab(if self.shares_tables() { Side::Source } else { Side::Target });
        let mut weights = vec![if self.wiring.tied_output {
            self.embedding_table(Side::Target)
        } else {
            self.graph.add_weight("logits.weight".into(), vec![vocab, Dim::Model])
        }];
        if self.wiring.biases.logits {
            weights.push(self.graph.add_weight("logits.bias".into(), vec![vocab]));
        }
        let scale = match self.wiring.logit_scale {
            LogitScale::None => Factor::One,
            LogitScale::RsqrtDModel => Factor::Rsqrt(Dim::Model),
        };
        self.graph.add("logits".into(), Op::Logits { scale }, &[x], &weights)
    }

    fn shares_tables(&self) -> bool {
        self.wiring.shared_embeddings && self.wiring.front == Front::Tokens
    }

    fn norm(&mut self, path: String, x: NodeId) -> NodeId {
        let mut weights = vec![self.graph.add_weight(format!("{path}.weight"), vec![Dim::Model])];
        if self.wiring.biases.norm {
            weights.push(self.graph.add_weight(format!("{path}.bias"), vec![Dim::Model]));
        }
        let op = Op::Norm { kind: self.wiring.norm, eps: self.wiring.norm_eps };
        self.graph.add(path, op, &[x], &weights)
    }

    fn linear(&mut self, path: String, x: NodeId, [out, input]: [Dim; 2], bias: bool) -> NodeId {
        let mut weights = vec![self.graph.add_weight(format!("{path}.weight"), vec![out, input])];
        if bias {
            weights.push(self.graph.add_weight(format!("{path}.bias"), vec![out]));
        }
        self.graph.add(path, Op::Linear, &[x], &weights)
    }
}

/// Which attention of a layer.
#[derive(Clone, Copy)]
struct Attention {
    stack: Stack,
    keys: Side,
    causal: bool,
}
