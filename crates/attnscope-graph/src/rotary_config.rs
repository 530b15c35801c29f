//! Rotary positions as configs describe them: Hugging Face's `rope_parameters` and `rope_scaling`, GGUF's and Meta's keys.

use serde_json::{Map, Value};

use crate::facts::Configs;
use crate::family::Sets;
use crate::observe::{Wrong, positive};
use crate::rotary::{RotaryFactors, RotaryPairs, RotaryScaling};
use crate::wiring::Wiring;

/// The names of the scalings that are known.
const KNOWN: &str = "default, linear, dynamic, llama3, yarn, longrope";

/// Applies a key about rotary positions, and returns the fields that it set.
pub(crate) fn apply(
    w: &mut Wiring,
    sets: Sets,
    value: &Value,
    configs: &Configs<'_>,
) -> Result<&'static [&'static str], Wrong> {
    Ok(match sets {
        Sets::RotaryBase => {
            w.rotary_base = Some(base(value)?);
            &["rotary_theta"]
        }
        Sets::WindowRotaryBase => {
            w.window_rotary_base = Some(base(value)?);
            &["window_rotary_base"]
        }
        Sets::RotaryShare => {
            let share = value.as_f64().filter(|share| *share > 0.0 && *share <= 1.0);
            w.rotary_share =
                Some(share.ok_or(Wrong::Type("a number above 0, at most 1"))?).filter(|n| *n < 1.0);
            &["rotary_share"]
        }
        Sets::RotaryFeatures => {
            let Some(size) = head_size(configs) else { return Ok(&[]) };
            w.rotary_share = Some(positive(value)? / size).filter(|share| *share < 1.0);
            &["rotary_share"]
        }
        Sets::NeighbouringPairs => {
            w.rotary_pairs = Some(RotaryPairs::Neighbours);
            &["rotary_layout"]
        }
        Sets::RotaryScaling => {
            w.rotary_scaling = match value {
                Value::Object(map) => of_object(map, configs)?,
                // GGUF: its divisors are tensors.
                Value::String(word) if word == "longrope" => stored_longrope(configs)?,
                Value::String(word) => of_object(&of_gguf(word, configs), configs)?,
                // Meta's own code has these numbers built in.
                Value::Bool(true) => {
                    Some(RotaryScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, length: 8192 })
                }
                Value::Bool(false) | Value::Null => None,
                Value::Number(_) | Value::Array(_) => {
                    return Err(Wrong::Type("a type of scaling with its numbers"));
                }
            };
            &["rotary_scaling"]
        }
        Sets::StoredLongrope => {
            w.rotary_scaling = stored_longrope(configs)?;
            &["rotary_scaling"]
        }
        _ => &[],
    })
}

/// llama.cpp's longrope: what the first training was like, and two tensors of divisors.
fn stored_longrope(configs: &Configs<'_>) -> Result<Option<RotaryScaling>, Wrong> {
    let said = |key| configs.of_model(&[key]).map(|said| said.value);
    let length = said("{arch}.rope.scaling.original_context_length").and_then(Value::as_u64);
    let length = length.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let attention = said("{arch}.rope.scaling.attn_factor").map_or(Ok(1.0), positive)?;
    let length = length.ok_or(Wrong::Type("longrope with {arch}.rope.scaling.original_context_length"))?;
    Ok(Some(RotaryScaling::StoredLongrope { length, attention }))
}

fn base(value: &Value) -> Result<f64, Wrong> {
    value.as_f64().filter(|base| *base > 1.0 && base.is_finite()).ok_or(Wrong::Type("a number above 1"))
}

/// The features of a head, as GGUF's metadata say it.
fn head_size(configs: &Configs<'_>) -> Option<f64> {
    let own = configs.of_model(&["{arch}.attention.key_length"]).and_then(|said| said.value.as_f64());
    own.or_else(|| share_of_head(configs)).filter(|size| *size > 0.0)
}

/// The share of the stream's width that each head would have, as GGUF's metadata say it.
pub(crate) fn share_of_head(configs: &Configs<'_>) -> Option<f64> {
    let number = |key: &str| configs.of_model(&[key]).and_then(|said| said.value.as_f64());
    let share = number("{arch}.embedding_length")? / number("{arch}.attention.head_count")?;
    Some(share).filter(|share| share.is_finite() && *share > 0.0)
}

/// GGUF's keys under the names of config.json.
fn of_gguf(word: &str, configs: &Configs<'_>) -> Map<String, Value> {
    let keys = [
        ("factor", "{arch}.rope.scaling.factor"),
        ("original_max_position_embeddings", "{arch}.rope.scaling.original_context_length"),
    ];
    let said =
        |(name, key): (&str, &'static str)| Some((name.to_owned(), configs.of_model(&[key])?.value.clone()));
    let mut map: Map<String, Value> = keys.into_iter().filter_map(said).collect();
    let word = if word == "none" { "default" } else { word };
    map.insert("rope_type".into(), Value::String(word.to_owned()));
    map
}

/// The scaling that an object describes; none where it is the default.
fn of_object(map: &Map<String, Value>, configs: &Configs<'_>) -> Result<Option<RotaryScaling>, Wrong> {
    let told = Told { map, configs };
    let word = told.get("rope_type").or_else(|| told.get("type"));
    let word = match word {
        None => return Ok(None),
        Some(word) => word.as_str().ok_or(Wrong::Type("a type of scaling with its numbers"))?,
    };
    Ok(Some(match word {
        "default" => return Ok(None),
        "linear" => RotaryScaling::Linear { factor: told.number("factor")? },
        "dynamic" => RotaryScaling::Dynamic {
            factor: told.number("factor")?,
            length: told.longest().ok_or(Wrong::Type("a length: max_position_embeddings"))?,
        },
        "llama3" => {
            let (low, high) = (told.number("low_freq_factor")?, told.number("high_freq_factor")?);
            if low >= high {
                return Err(Wrong::Type("a low_freq_factor below the high_freq_factor"));
            }
            RotaryScaling::Llama3 { factor: told.number("factor")?, low, high, length: told.trained()? }
        }
        "yarn" => told.yarn()?,
        "longrope" | "su" => told.longrope()?,
        _ => return Err(Wrong::Unknown(KNOWN.to_owned())),
    }))
}

/// What an object and the configs around it say of a scaling.
struct Told<'a> {
    map: &'a Map<String, Value>,
    configs: &'a Configs<'a>,
}

impl<'a> Told<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn number(&self, key: &'static str) -> Result<f64, Wrong> {
        self.get(key).map_or(Err(Wrong::Type("a type of scaling with its numbers")), positive)
    }

    fn optional(&self, key: &str) -> Result<Option<f64>, Wrong> {
        self.get(key).map(positive).transpose()
    }

    fn length(&self, key: &'static str) -> Option<usize> {
        let said = self.configs.of_model(&[key])?;
        said.value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0)
    }

    /// The longest text of the model.
    fn longest(&self) -> Option<usize> {
        self.length("max_position_embeddings").or_else(|| self.length("{arch}.context_length"))
    }

    /// The longest text of the first training: beside the object, in it, or the longest of all.
    fn trained(&self) -> Result<usize, Wrong> {
        const KEY: &str = "original_max_position_embeddings";
        let own =
            self.get(KEY).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let length = self.length(KEY).or(own).or_else(|| self.longest());
        length.ok_or(Wrong::Type("a length: original_max_position_embeddings"))
    }

    /// The factor: its own key, or how much longer texts are than those of the first training.
    fn factor(&self, trained: usize) -> Result<f64, Wrong> {
        match (self.optional("factor")?, self.longest()) {
            (Some(factor), _) => Ok(factor),
            (None, Some(longest)) => Ok(longest as f64 / trained as f64),
            (None, None) => Err(Wrong::Type("a factor")),
        }
    }

    fn yarn(&self) -> Result<RotaryScaling, Wrong> {
        let length = self.trained()?;
        let factor = self.factor(length)?;
        let magnitude = |scale: f64, by: f64| if scale <= 1.0 { 1.0 } else { 0.1 * by * scale.ln() + 1.0 };
        let own = self.optional("attention_factor")?;
        let attention = match (own, self.optional("mscale")?, self.optional("mscale_all_dim")?) {
            (Some(own), ..) => own,
            (None, Some(one), Some(all)) => magnitude(factor, one) / magnitude(factor, all),
            _ => magnitude(factor, 1.0),
        };
        Ok(RotaryScaling::Yarn {
            factor,
            length,
            fast: self.optional("beta_fast")?.unwrap_or(32.0),
            slow: self.optional("beta_slow")?.unwrap_or(1.0),
            attention,
            truncate: self.get("truncate").and_then(Value::as_bool).unwrap_or(true),
        })
    }

    fn longrope(&self) -> Result<RotaryScaling, Wrong> {
        let length = self.trained()?;
        let factor = self.factor(length)?;
        let attention = match self.optional("attention_factor")? {
            Some(own) => own,
            None if factor <= 1.0 => 1.0,
            None => (1.0 + factor.ln() / (length as f64).ln()).sqrt(),
        };
        let list = |key: &str| {
            let numbers: Option<Vec<f64>> = self.get(key)?.as_array()?.iter().map(Value::as_f64).collect();
            RotaryFactors::of_list(&numbers?)
        };
        match (list("short_factor"), list("long_factor")) {
            (Some(short), Some(long)) => Ok(RotaryScaling::Longrope { short, long, length, attention }),
            _ => Err(Wrong::Type("short_factor and long_factor, lists of positive numbers")),
        }
    }
}
