//! Which cross-attention heads an alignment is computed from.

use std::fmt;
use std::str::FromStr;

use attnscope_checkpoint::Config;
use attnscope_graph::{Dim, Model, Side, Stack};
use serde_json::Value;

use crate::generate::SettingsError;

/// A head of the cross-attention of a decoder layer, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Head {
    /// The layer of the decoder.
    pub layer: usize,
    /// The head in it.
    pub head: usize,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.layer, self.head)
    }
}

impl FromStr for Head {
    type Err = String;

    /// `2.5`: layer 2, head 5.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.trim().split_once('.').map(|(layer, head)| (layer.parse(), head.parse()));
        match numbers {
            Some((Ok(layer), Ok(head))) => Ok(Self { layer, head }),
            _ => Err(format!("expected a layer and a head as 2.5, both from 0, found {text:?}")),
        }
    }
}

/// Heads that follow the source, and the reason for this choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heads {
    /// The heads.
    pub heads: Vec<Head>,
    /// Why these.
    pub because: String,
}

/// The heads that OpenAI found to follow the audio in a model that it released.
struct Released {
    name: &'static str,
    /// Decoder layers, heads of each, tokens.
    shape: [usize; 3],
    /// (layer, head)
    heads: &'static [(usize, usize)],
}

/// As `_ALIGNMENT_HEADS` of OpenAI's whisper/__init__.py has them (MIT). large-v1 and large-v2 have the same sizes, so neither
/// is listed.
const RELEASED: [Released; 10] = [
    Released {
        name: "tiny.en",
        shape: [4, 6, 51_864],
        heads: &[(1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4)],
    },
    Released {
        name: "tiny",
        shape: [4, 6, 51_865],
        heads: &[(2, 2), (3, 0), (3, 2), (3, 3), (3, 4), (3, 5)],
    },
    Released { name: "base.en", shape: [6, 8, 51_864], heads: &[(3, 3), (4, 7), (5, 1), (5, 5), (5, 7)] },
    Released {
        name: "base",
        shape: [6, 8, 51_865],
        heads: &[(3, 1), (4, 2), (4, 3), (4, 7), (5, 1), (5, 2), (5, 4), (5, 6)],
    },
    Released {
        name: "small.en",
        shape: [12, 12, 51_864],
        heads: &[
            (6, 6),
            (7, 0),
            (7, 3),
            (7, 8),
            (8, 2),
            (8, 5),
            (8, 7),
            (9, 0),
            (9, 4),
            (9, 8),
            (9, 10),
            (10, 0),
            (10, 1),
            (10, 2),
            (10, 3),
            (10, 6),
            (10, 11),
            (11, 2),
            (11, 4),
        ],
    },
    Released {
        name: "small",
        shape: [12, 12, 51_865],
        heads: &[(5, 3), (5, 9), (8, 0), (8, 4), (8, 7), (8, 8), (9, 0), (9, 7), (9, 9), (10, 5)],
    },
    Released {
        name: "medium.en",
        shape: [24, 16, 51_864],
        heads: &[
            (11, 4),
            (14, 1),
            (14, 12),
            (14, 14),
            (15, 4),
            (16, 0),
            (16, 4),
            (16, 9),
            (17, 12),
            (17, 14),
            (18, 7),
            (18, 10),
            (18, 15),
            (20, 0),
            (20, 3),
            (20, 9),
            (20, 14),
            (21, 12),
        ],
    },
    Released {
        name: "medium",
        shape: [24, 16, 51_865],
        heads: &[(13, 15), (15, 4), (15, 15), (16, 1), (20, 0), (23, 4)],
    },
    Released {
        name: "large-v3",
        shape: [32, 20, 51_866],
        heads: &[
            (7, 0),
            (10, 17),
            (12, 18),
            (13, 12),
            (16, 1),
            (17, 14),
            (19, 11),
            (21, 4),
            (24, 1),
            (25, 6),
        ],
    },
    Released {
        name: "large-v3-turbo",
        shape: [4, 20, 51_866],
        heads: &[(2, 4), (2, 11), (3, 3), (3, 6), (3, 11), (3, 14)],
    },
];

impl Heads {
    /// The heads to align by. For audio those that the model's documents name, or that OpenAI found in its model of these
    /// sizes; for anything else all heads of the later half of the layers, which follow the source best.
    ///
    /// # Errors
    /// When a document names heads that the model does not have.
    pub fn of(model: &Model, configs: &[Config]) -> Result<Self, SettingsError> {
        let layers = model.graph.layers(Stack::Decoder);
        let count = model.sizes.get(Dim::Heads(Stack::Decoder)).unwrap_or(0);
        if model.graph.reads_audio() {
            if let Some(said) = said(configs, layers, count)? {
                return Ok(said);
            }
            let tokens = model.sizes.get(Dim::Vocab(Side::Target)).unwrap_or(0);
            if let Some(known) = RELEASED.iter().find(|r| r.shape == [layers, count, tokens]) {
                let heads = known.heads.iter().map(|&(layer, head)| Head { layer, head }).collect();
                let because = format!("those of OpenAI's {}, which has these sizes", known.name);
                return Ok(Self { heads, because });
            }
        }
        Ok(Self::later_half(layers, count))
    }

    /// Heads that the user chose, each once.
    ///
    /// # Errors
    /// The first that the model does not have, in words.
    pub fn chosen(model: &Model, chosen: &[Head]) -> Result<Self, String> {
        let layers = model.graph.layers(Stack::Decoder);
        let count = model.sizes.get(Dim::Heads(Stack::Decoder)).unwrap_or(0);
        let mut heads: Vec<Head> = Vec::new();
        for &head in chosen {
            if head.layer >= layers || head.head >= count {
                return Err(format!("{head}: the decoder has {layers} layers of {count} heads, both from 0"));
            }
            if !heads.contains(&head) {
                heads.push(head);
            }
        }
        Ok(Self { heads, because: "chosen".into() })
    }

    fn later_half(layers: usize, count: usize) -> Self {
        let heads = (layers / 2..layers).flat_map(|layer| (0..count).map(move |head| Head { layer, head }));
        Self { heads: heads.collect(), because: "all of the later half of the decoder's layers".into() }
    }

    /// The heads as `layer.head`.
    pub fn names(&self) -> String {
        self.heads.iter().map(Head::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// `alignment_heads` of a document: pairs of a layer and a head.
fn said(configs: &[Config], layers: usize, count: usize) -> Result<Option<Heads>, SettingsError> {
    const KEY: &str = "alignment_heads";
    let found = configs.iter().find_map(|c| Some((c, c.facts.get(KEY).filter(|v| !v.is_null())?)));
    let Some((config, value)) = found else { return Ok(None) };
    let number = |value: &Value, below: usize| {
        value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|&n| n < below)
    };
    let pair = |value: &Value| match value.as_array()?.as_slice() {
        [layer, head] => Some(Head { layer: number(layer, layers)?, head: number(head, count)? }),
        _ => None,
    };
    let heads: Option<Vec<Head>> = value.as_array().and_then(|pairs| pairs.iter().map(pair).collect());
    match heads {
        Some(heads) if !heads.is_empty() => {
            Ok(Some(Heads { heads, because: format!("as {}: {KEY} says", config.source) }))
        }
        _ => Err(SettingsError::wrong(
            &config.source,
            KEY,
            "pairs of a layer and a head of the decoder",
            value,
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configs(value: Value) -> Vec<Config> {
        let facts = [("alignment_heads".to_owned(), value)].into_iter().collect();
        vec![Config { source: "generation_config.json".into(), facts }]
    }

    #[test]
    fn documents_name_heads_that_exist() {
        let heads = said(&configs(json!([[1, 0], [2, 5]])), 4, 6).unwrap().unwrap();
        assert_eq!(heads.names(), "1.0 2.5");
        assert_eq!(said(&configs(Value::Null), 4, 6).unwrap(), None);
        for wrong in
            [json!([[4, 0]]), json!([[0, 6]]), json!([[1]]), json!([]), json!("all"), json!([[-1, 0]])]
        {
            let error = said(&configs(wrong), 4, 6).unwrap_err().to_string();
            assert!(error.starts_with("generation_config.json: alignment_heads: expected pairs"), "{error}");
        }
    }

    #[test]
    fn heads_are_written_as_layer_and_head() {
        assert_eq!("2.5".parse(), Ok(Head { layer: 2, head: 5 }));
        for wrong in ["", "2", "2.", ".5", "2.5.1", "a.b", "-1.0", "2,5"] {
            assert!(wrong.parse::<Head>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_table_is_within_the_models() {
        for released in RELEASED {
            let [layers, heads, _] = released.shape;
            assert!(released.heads.iter().all(|&(l, h)| l < layers && h < heads), "{}", released.name);
            assert!(released.heads.is_sorted(), "{}", released.name);
        }
    }

    #[test]
    fn half_of_an_odd_number_of_layers_is_the_greater() {
        assert_eq!(Heads::later_half(3, 2).names(), "1.0 1.1 2.0 2.1");
        assert_eq!(Heads::later_half(1, 1).names(), "0.0");
    }
}
