//! The steps of a classifier's blocks, and their names in paths.

use std::fmt;

use crate::block::RecurrentCell;

/// A step of a block of a classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockStep {
    /// Channels moved before positions, for a convolution.
    ChannelsFirst,
    /// Channels moved behind positions again.
    ChannelsLast,
    /// A convolution.
    Conv,
    /// An activation.
    Act,
    /// A pool over positions.
    Pool,
    /// Positions and features in one row.
    Flatten,
    /// A learned map.
    Linear,
    /// A norm.
    Norm,
    /// Dropout.
    Dropout,
    /// A step of one direction of a recurrent layer.
    Recurrent(RecurrentCell, Direction, RecurrentStep),
    /// Both directions of a recurrent layer side by side.
    BothDirections(RecurrentCell),
    /// The last states of both directions side by side.
    BothStates,
}

/// The way in which a recurrent layer reads positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the first to the last.
    Forward,
    /// From the last to the first.
    Backward,
}

/// A step of one direction of a recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecurrentStep {
    /// What each position gives to the gates.
    Input,
    /// h and c of every position.
    States,
    /// h of every position.
    Hidden,
    /// h after the last position that was read.
    Last,
}

impl fmt::Display for BlockStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ChannelsFirst => "channels_first",
            Self::ChannelsLast => "channels_last",
            Self::Conv => "conv",
            Self::Act => "act",
            Self::Pool => "pool",
            Self::Flatten => "flatten",
            Self::Linear => "linear",
            Self::Norm => "norm",
            Self::Dropout => "dropout",
            Self::BothStates => "last",
            Self::BothDirections(cell) => return write!(f, "{}.out", cell.name()),
            Self::Recurrent(cell, direction, step) => {
                return write!(f, "{}.{}.{}", cell.name(), direction.name(), step.name());
            }
        })
    }
}

impl Direction {
    /// The segment of paths that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }
}

impl RecurrentStep {
    /// The last segment of its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::States => "states",
            Self::Hidden => "hidden",
            Self::Last => "last",
        }
    }
}
