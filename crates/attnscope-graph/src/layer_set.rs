//! Some of a stack's layers.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of layers, by their numbers. It is a value without a heap, so that a wiring can be a constant and is copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerSet([u64; LayerSet::WORDS]);

impl LayerSet {
    const WORDS: usize = 4;
    /// Layers from this number on cannot be in a set. The deepest models at hand have about half as many.
    pub const MOST: usize = Self::WORDS * 64;

    /// Layers 0, 2, 4 …
    pub const EVEN: Self = Self::where_remainder(2, &[0]);
    /// All layers but 0, 3, 6 …
    pub const NOT_THIRD: Self = Self::where_remainder(3, &[1, 2]);
    /// All layers but 5, 11, 17 …
    pub const NOT_SIXTH: Self = Self::where_remainder(6, &[0, 1, 2, 3, 4]);

    /// The layers whose number leaves one of these remainders.
    const fn where_remainder(divisor: usize, remainders: &[usize]) -> Self {
        let mut words = [0; Self::WORDS];
        let mut layer = 0;
        while layer < Self::MOST {
            let mut i = 0;
            while i < remainders.len() {
                if layer % divisor == remainders[i] {
                    words[layer / 64] |= 1 << (layer % 64);
                }
                i += 1;
            }
            layer += 1;
        }
        Self(words)
    }

    /// Whether a layer is in it.
    pub fn has(self, layer: usize) -> bool {
        self.0.get(layer / 64).is_some_and(|word| word >> (layer % 64) & 1 == 1)
    }

    /// The layers, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::MOST).filter(move |&layer| self.has(layer))
    }

    /// These layers; `None` where a number is too large for a set.
    pub fn of(layers: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut set = Self::default();
        for layer in layers {
            *set.0.get_mut(layer / 64)? |= 1 << (layer % 64);
        }
        Some(set)
    }
}

impl Serialize for LayerSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for LayerSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let layers = Vec::<usize>::deserialize(deserializer)?;
        let expected = || format!("expected layers below {}, found {layers:?}", Self::MOST);
        Self::of(layers.iter().copied()).ok_or_else(|| serde::de::Error::custom(expected()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_list_in_json() {
        let set = LayerSet::of([0, 2, 200]).unwrap();
        assert!(set.has(2) && set.has(200) && !set.has(1) && !set.has(usize::MAX));
        assert_eq!(serde_json::to_string(&set).unwrap(), "[0,2,200]");
        assert_eq!(serde_json::from_str::<LayerSet>("[200,0,2]").unwrap(), set);
        assert!(serde_json::from_str::<LayerSet>("[256]").is_err());
        assert_eq!(LayerSet::of([LayerSet::MOST]), None);
    }
}
