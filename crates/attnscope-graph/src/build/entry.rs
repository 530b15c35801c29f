//! From the ids of a sequence, or the features of a recording, to what the first layer reads.

use super::Builder;
use crate::dim::{Dim, Side};
use crate::graph::{NodeId, WeightId};
use crate::op::{Factor, Op};
use crate::role::{AudioStep, EntryStep, Role};
use crate::wiring::{Activation, EmbeddingNorm, EmbeddingScale, Positions, Wiring};

impl Builder<'_> {
    /// `src.ids` → `src.embed` → `src.embed_pos`.
    pub(super) fn embed_tokens(&mut self, side: Side) -> NodeId {
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
    pub(super) fn embedding_table(&mut self, side: Side) -> WeightId {
        let owner = if self.shares_tables() { Side::Source } else { side };
        let table = Role::Entry(owner, EntryStep::Embed).weight();
        let width = self.embedding_width();
        self.graph.add_weight(table, vec![Dim::Vocab(owner), width])
    }

    /// `audio.mel` → two convolutions → `src.embed` → `src.embed_pos`.
    pub(super) fn embed_audio(&mut self) -> NodeId {
        let mut x = self.graph.add(Role::Audio(AudioStep::Mel), Op::Features, &[], &[]);
        for (n, stride, channels) in [(1, 1, Dim::Mels), (2, 2, Dim::Model)] {
            let role = Role::Audio(AudioStep::Conv(n));
            let weight = self.graph.add_weight(role.weight(), vec![Dim::Model, channels, Dim::Fixed(3)]);
            let bias = self.graph.add_weight(role.bias(), vec![Dim::Model]);
            let length = if stride == 1 { Dim::Frames } else { Dim::Source };
            let op = Op::Conv1d { kernel: 3, stride, padding: 1, length };
            x = self.graph.add(role, op, &[x], &[weight, bias]);
            // The front end's activation is the exact GELU whatever the layers use.
            let act = Op::Activate(Activation::Gelu);
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
            x = self.norm_of_width(Role::Entry(side, EntryStep::EmbedNorm), x, self.embedding_width());
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
        let mut x = if normed_after { self.norm_of_width(done, x, self.embedding_width()) } else { x };
        if self.wiring.embedding_projection {
            let role = Role::Entry(side, EntryStep::EmbedProj);
            x = self.linear(role, x, [Dim::Model, Dim::Embedding], true);
        }
        self.dropped(Role::Entry(side, EntryStep::Dropout), x)
    }

    fn positions(&mut self, side: Side) -> Option<NodeId> {
        let kind = self.wiring.positions(side);
        let role = Role::Entry(side, EntryStep::Positions);
        let table = match kind {
            Positions::None | Positions::Rotary => return None,
            Positions::Table => {
                let dims = vec![Dim::Positions(side), self.embedding_width()];
                vec![self.graph.add_weight(role.weight(), dims)]
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
        let width = self.embedding_width();
        let table = self.graph.add_weight(role.weight(), vec![Dim::Types, width]);
        Some(self.graph.add(role, Op::Embed { scale: Factor::One }, &[ids], &[table]))
    }
}
