//! The blocks of a classifier: what stands between embeddings, or the last stack, and a score for each class.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wiring::Activation;

/// More blocks than any classifier has.
const MOST_BLOCKS: usize = 64;
/// No width, kernel or stride is larger than this: a number from a file is not believed beyond it.
const MOST: usize = 1 << 24;
/// Convolutions that may follow each other.
const MOST_CONVOLUTIONS: usize = 4;

/// One step of a classifier, as a recipe and a config list it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Block {
    /// A recurrent layer with tanh.
    Rnn {
        /// Width of its state.
        hidden: usize,
        /// A second one reads the positions backwards, and both results stand side by side.
        #[serde(default)]
        bidirectional: bool,
    },
    /// A long short-term memory layer.
    Lstm {
        /// Width of its state.
        hidden: usize,
        /// A second one reads the positions backwards, and both results stand side by side.
        #[serde(default)]
        bidirectional: bool,
    },
    /// The state after the last position that was read, of each direction.
    LastState {},
    /// A convolution along positions, without padding.
    Conv1d {
        /// Channels that leave it.
        channels: usize,
        /// Positions that a window covers.
        kernel: usize,
        /// Positions from one window to the next.
        stride: usize,
    },
    /// The activation, element by element.
    Activation {
        /// Which.
        function: Activation,
    },
    /// The largest value of each feature over all positions.
    MaxPool {},
    /// The mean of each feature over the positions that are not padding.
    MeanPool {},
    /// The features of the first token, as BERT's pooler reads them.
    FirstToken {},
    /// The features of the source's last token, as BART's classifier reads them.
    LastToken {},
    /// All positions and features in one row.
    Flatten {
        /// How many values that makes.
        features: usize,
    },
    /// A learned map.
    Linear {
        /// Features that leave it.
        features: usize,
    },
    /// A norm of each position's features: a part of heads that files bring, not of recipes.
    #[serde(skip)]
    Norm {},
    /// Values are dropped at random while training.
    Dropout {
        /// The share that is dropped.
        p: f32,
    },
}

/// The cell of a recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecurrentCell {
    /// h = tanh(x + W·h).
    Rnn,
    /// Four gates, and a cell state beside h.
    Lstm,
}

impl RecurrentCell {
    /// Its name in paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rnn => "rnn",
            Self::Lstm => "lstm",
        }
    }

    /// Pre-activations for each value of the state.
    pub fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Lstm => 4,
        }
    }

    /// Values that it carries from position to position, for each value of h: h alone, or h and c.
    pub fn carried(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Lstm => 2,
        }
    }
}

/// The lengths that convolutions make of a sequence, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Convolutions {
    /// Kernel and stride of each; a kernel of 0 is none.
    windows: [(u32, u32); MOST_CONVOLUTIONS],
}

impl Convolutions {
    /// The same, and one more after them; `None` where there is no place for it.
    pub fn then(mut self, kernel: usize, stride: usize) -> Option<Self> {
        let free = self.windows.iter_mut().find(|window| window.0 == 0)?;
        *free = (u32::try_from(kernel).ok()?, u32::try_from(stride).ok()?);
        Some(self)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.windows.iter().filter(|window| window.0 > 0).count()
    }

    /// What is left of a sequence of this length.
    pub fn length(&self, length: usize) -> usize {
        let windows = self.windows.iter().take_while(|window| window.0 > 0);
        windows.fold(length, |n, &(kernel, stride)| {
            n.checked_sub(kernel as usize).map_or(0, |more| more / (stride as usize).max(1) + 1)
        })
    }
}

/// A list of blocks that is no classifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockError {
    /// Which block, from 0; the number of blocks where the end is wrong.
    pub block: usize,
    /// Which of its keys, where it is one.
    pub key: Option<&'static str>,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            Some(key) => write!(f, "block {}, {key}: {}", self.block, self.problem),
            None => write!(f, "block {}: {}", self.block, self.problem),
        }
    }
}

impl Block {
    /// Its name, as a recipe writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rnn { .. } => "rnn",
            Self::Lstm { .. } => "lstm",
            Self::LastState {} => "last-state",
            Self::Conv1d { .. } => "conv1d",
            Self::Activation { .. } => "activation",
            Self::MaxPool {} => "max-pool",
            Self::MeanPool {} => "mean-pool",
            Self::FirstToken {} => "first-token",
            Self::LastToken {} => "last-token",
            Self::Flatten { .. } => "flatten",
            Self::Linear { .. } => "linear",
            Self::Norm {} => "norm",
            Self::Dropout { .. } => "dropout",
        }
    }

    /// Whether blocks follow each other so that a score for each class can stand at the end. `length` and `width` are those of
    /// what the first block reads, where they are known.
    ///
    /// # Errors
    /// Names the first block that does not fit.
    pub fn check(blocks: &[Self], length: Option<usize>, width: Option<usize>) -> Result<(), BlockError> {
        let wrong = |block: usize, problem: String| Err(BlockError { block, key: None, problem });
        let wrong_key = |block: usize, key: &'static str, problem: String| {
            Err(BlockError { block, key: Some(key), problem })
        };
        if blocks.len() > MOST_BLOCKS {
            return wrong(MOST_BLOCKS, format!("there are more than {MOST_BLOCKS}"));
        }
        // Positions and features; no positions once they were pooled or flattened.
        let (mut length, mut width, mut has_positions) = (length, width, true);
        let mut convolutions = 0;
        for (i, block) in blocks.iter().enumerate() {
            let sizes: &[(&str, usize)] = match block {
                Self::Rnn { hidden, .. } | Self::Lstm { hidden, .. } => &[("hidden", *hidden)],
                Self::Conv1d { channels, kernel, stride } => {
                    &[("channels", *channels), ("kernel", *kernel), ("stride", *stride)]
                }
                Self::Flatten { features } | Self::Linear { features } => &[("features", *features)],
                Self::LastState {}
                | Self::Activation { .. }
                | Self::MaxPool {}
                | Self::MeanPool {}
                | Self::FirstToken {}
                | Self::LastToken {}
                | Self::Norm {}
                | Self::Dropout { .. } => &[],
            };
            if let Some((key, size)) = sizes.iter().find(|(_, size)| !(1..=MOST).contains(size)) {
                return wrong_key(i, key, format!("expected 1 to {MOST}, found {size}"));
            }
            if !has_positions && block.reads_positions() {
                return wrong(i, format!("{} reads positions, and none are left before it", block.name()));
            }
            let after_recurrent = i > 0 && matches!(blocks[i - 1], Self::Rnn { .. } | Self::Lstm { .. });
            match *block {
                Self::Rnn { hidden, bidirectional } | Self::Lstm { hidden, bidirectional } => {
                    width = Some(hidden * if bidirectional { 2 } else { 1 });
                }
                Self::LastState {} if !after_recurrent => {
                    return wrong(i, "last-state must follow a recurrent layer".into());
                }
                Self::LastState {}
                | Self::MaxPool {}
                | Self::MeanPool {}
                | Self::FirstToken {}
                | Self::LastToken {} => has_positions = false,
                Self::Conv1d { channels, kernel, stride } => {
                    convolutions += 1;
                    if convolutions > MOST_CONVOLUTIONS {
                        return wrong(i, format!("more than {MOST_CONVOLUTIONS} convolutions"));
                    }
                    if length.is_some_and(|length| length < kernel) {
                        let problem = format!(
                            "{kernel} is longer than the {} positions that it reads",
                            length.unwrap_or(0)
                        );
                        return wrong_key(i, "kernel", problem);
                    }
                    length = length.map(|length| (length - kernel) / stride + 1);
                    width = Some(channels);
                }
                Self::Flatten { features } => {
                    has_positions = false;
                    match length.zip(width).map(|(length, width)| length * width) {
                        Some(found) if found != features => {
                            let problem = format!("expected {found}, as many as there are, found {features}");
                            return wrong_key(i, "features", problem);
                        }
                        _ => width = Some(features),
                    }
                }
                Self::Linear { features } => width = Some(features),
                Self::Dropout { p } if !(0.0..1.0).contains(&p) => {
                    return wrong_key(i, "p", format!("expected a share from 0 to below 1, found {p}"));
                }
                Self::Dropout { .. } | Self::Activation { .. } | Self::Norm {} => {}
            }
        }
        if has_positions {
            let problem = "positions are left at the end: pool them, flatten them or take the last state";
            return wrong(blocks.len(), problem.into());
        }
        Ok(())
    }

    /// Whether every position still has features after it.
    pub fn keeps_positions(&self) -> bool {
        match self {
            Self::Rnn { .. }
            | Self::Lstm { .. }
            | Self::Conv1d { .. }
            | Self::Activation { .. }
            | Self::Linear { .. }
            | Self::Norm {}
            | Self::Dropout { .. } => true,
            Self::LastState {}
            | Self::MaxPool {}
            | Self::MeanPool {}
            | Self::FirstToken {}
            | Self::LastToken {}
            | Self::Flatten { .. } => false,
        }
    }

    /// Whether it works along positions.
    fn reads_positions(&self) -> bool {
        match self {
            Self::Rnn { .. }
            | Self::Lstm { .. }
            | Self::LastState {}
            | Self::Conv1d { .. }
            | Self::MaxPool {}
            | Self::MeanPool {}
            | Self::FirstToken {}
            | Self::LastToken {}
            | Self::Flatten { .. } => true,
            Self::Activation { .. } | Self::Linear { .. } | Self::Norm {} | Self::Dropout { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convolutions_shorten_a_sequence() {
        let one = Convolutions::default().then(7, 3).unwrap();
        let two = one.then(7, 3).unwrap();
        assert_eq!((one.length(500), two.length(500), two.count()), (165, 53, 2));
        assert_eq!((one.length(6), two.length(7)), (0, 0));
        assert!(two.then(1, 1).unwrap().then(1, 1).unwrap().then(1, 1).is_none());
    }

    #[test]
    fn blocks_that_do_not_fit_are_named() {
        let conv = Block::Conv1d { channels: 128, kernel: 7, stride: 3 };
        let cases: &[(&[Block], Option<usize>, &str)] = &[
            (&[conv, Block::MaxPool {}, Block::Linear { features: 5 }], None, ""),
            (&[conv, conv, Block::Flatten { features: 53 * 128 }], None, ""),
            (&[conv], Some(1), "positions are left"),
            (&[], Some(0), "positions are left"),
            (&[Block::MaxPool {}, conv], Some(1), "none are left"),
            (&[conv, Block::Flatten { features: 1 }], Some(1), "features: expected 21120"),
            (&[Block::LastState {}], Some(0), "must follow"),
            (&[Block::Linear { features: 0 }, Block::MaxPool {}], Some(0), "features: expected 1 to"),
            (&[Block::Conv1d { channels: 1, kernel: 7, stride: 0 }], Some(0), "stride: expected 1 to"),
            (&[Block::Conv1d { channels: 1, kernel: 501, stride: 1 }], Some(0), "kernel: 501 is longer"),
            (&[Block::Dropout { p: 1.0 }, Block::MaxPool {}], Some(0), "p: expected a share"),
            (&[Block::Dropout { p: f32::NAN }, Block::MaxPool {}], Some(0), "p: expected a share"),
        ];
        for (blocks, at, words) in cases {
            match (Block::check(blocks, Some(500), Some(64)), at) {
                (Ok(()), None) => {}
                (Err(e), Some(at)) => {
                    assert_eq!(e.block, *at, "{e}");
                    assert!(e.to_string().contains(words), "{e}");
                }
                (found, _) => panic!("{blocks:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn blocks_are_written_as_a_config_lists_them() {
        let text = r#"{"kind":"conv1d","channels":128,"kernel":7,"stride":3}"#;
        let block: Block = serde_json::from_str(text).unwrap();
        assert_eq!(block, Block::Conv1d { channels: 128, kernel: 7, stride: 3 });
        assert_eq!(serde_json::to_string(&block).unwrap(), text);
        assert!(serde_json::from_str::<Block>(r#"{"kind":"conv1d","channels":1}"#).is_err());
        assert!(serde_json::from_str::<Block>(r#"{"kind":"max-pool","size":2}"#).is_err());
    }
}
