//! The head of a classifier: its blocks in a row, then a score for each class.

use super::Builder;
use crate::architecture::Classifier;
use crate::block::{Block, Convolutions, RecurrentCell};
use crate::dim::{Dim, Side};
use crate::graph::NodeId;
use crate::op::{Factor, Op, Pooling};
use crate::role::{BlockStep, Direction, RecurrentStep, Role};

/// Where a chain of blocks has come to.
struct Chain {
    x: NodeId,
    /// The sequence whose positions they are.
    side: Side,
    /// [batch, channel, position], not [batch, position, feature].
    is_channels_first: bool,
    convolutions: Convolutions,
}

impl Builder<'_> {
    /// Blocks, then a score for each class.
    pub(super) fn classifier(&mut self, classifier: &Classifier, side: Side, x: NodeId) {
        let mut chain = Chain { x, side, is_channels_first: false, convolutions: Convolutions::default() };
        for (n, &block) in classifier.blocks.iter().enumerate() {
            let takes_last = classifier.blocks.get(n + 1) == Some(&Block::LastState {});
            self.block(n, block, takes_last, &mut chain);
        }
        let width = self.width(chain.x);
        let classes = Dim::Fixed(classifier.classes);
        let weight = self.graph.add_weight(Role::Logits.weight(), vec![classes, width]);
        let bias = self.graph.add_weight(Role::Logits.bias(), vec![classes]);
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
                let conv = role(BlockStep::Conv);
                let weight = self.graph.add_weight(conv.weight(), dims);
                let bias = self.graph.add_weight(conv.bias(), vec![Dim::Fixed(channels)]);
                let op = Op::Conv1d { kernel, stride, padding: 0, length: Dim::Convolved(length) };
                chain.x = self.graph.add(conv, op, &[chain.x], &[weight, bias]);
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
                chain.x = self.linear(
                    role(BlockStep::Linear),
                    chain.x,
                    [Dim::Fixed(features), width],
                    self.wiring.biases.head,
                );
            }
            Block::Norm {} => {
                chain.x = self.norm_of_width(role(BlockStep::Norm), chain.x, self.width(chain.x));
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
            let weight = self.graph.add_weight(states.weight(), vec![gates, Dim::Fixed(hidden)]);
            let bias = self.graph.add_weight(states.bias(), vec![gates]);
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
}
