//! What is wrong with the file, in words.

use super::lossy::Loss;

impl Loss {
    /// What is lost.
    pub fn mistake(&self) -> String {
        match self {
            Self::DroppedBias { weight, siblings } => {
                let others = if *siblings == 1 {
                    "1 other layer".to_owned()
                } else {
                    format!("{siblings} other layers")
                };
                format!("every value of {weight} is 0, and not so in {others}: it was dropped")
            }
            Self::CopiedLayer { stack, layers: [a, b] } => {
                format!("layer {b} of the {} holds the values of layer {a}, to the last bit", stack.name())
            }
            Self::MissingLayer { stack, found, declared, source } => {
                format!("{source} says {declared} {} layers, and the file has {found}", stack.name())
            }
        }
    }
}
