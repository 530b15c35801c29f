//! Other wirings that the same weights could have been trained with: a table of fields and values.

use attnscope_graph::{Dim, Front, Model, Positions, Side, Stack, Wiring};
use attnscope_run::Shift;
use serde_json::{Map, Value, json};

use crate::corpus::Corpus;
use crate::score::{Candidate, Padding};
use attnscope_run::Weights;

/// One field with other values that it could have. The names are the wiring's own; `heads` and `start_token` are set
/// beside it.
const FIELDS: &[(&str, &[&str])] = &[
    ("score_scale", &["\"d_head\"", "\"d_model\"", "\"none\""]),
    ("squash", &["\"softmax\"", "\"sigmoid\""]),
    ("residual_gain", &["1", "2"]),
    ("activation", &["\"relu\"", "\"gelu\"", "\"gelu_tanh\"", "\"swish\"", "\"quick_gelu\""]),
    ("norm", &["\"layer\"", "\"rms\""]),
    ("norm_place", &["\"pre\"", "\"post\""]),
    ("norm_eps", &["1e-5", "1e-6", "1e-12"]),
    ("position_offset", &["0", "1", "2"]),
    ("embedding_scale", &["\"sqrt_d_model\"", "\"none\""]),
    ("causal_mask", &["\"on\"", "\"off\""]),
    ("padding_mask", &["\"on\"", "\"off\""]),
    ("cross_mask", &["\"padding\"", "\"causal\""]),
    ("decoder_shift", &["\"on\"", "\"off\""]),
    ("logit_scale", &["\"none\"", "\"rsqrt_d_model\""]),
    ("relative_bias", &["true", "false"]),
    ("relative_buckets", &["8", "16", "32", "64"]),
    ("relative_max_distance", &["16", "32", "64", "128", "256"]),
];

/// The layouts of computed positions.
const LAYOUTS: [&str; 3] = ["sinusoid_halves", "sinusoid_interleaved", "sinusoid_fairseq"];

/// Fields that say where another one holds; no part of what is reported under its name.
const BESIDE: &str = "residual_gain_at";

/// An edit of a setup: some fields and their new values.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    sets: Vec<(&'static str, Value)>,
    pub(crate) padding: Padding,
}

impl Change {
    /// The field that it is about.
    pub fn field(&self) -> &'static str {
        self.sets.first().map_or("", |(field, _)| field)
    }

    /// The new value of that field.
    pub fn value(&self) -> &Value {
        self.sets.first().map_or(&Value::Null, |(_, value)| value)
    }

    /// The fields as JSON, from a setup that they are set in.
    pub(crate) fn shown(&self, setup: &Setup, into: &mut Map<String, Value>) {
        for (field, _) in self.sets.iter().filter(|(field, _)| *field != BESIDE) {
            into.insert((*field).to_owned(), setup.get(field));
        }
    }

    /// Whether its fields are others in one setup than in another.
    pub(crate) fn differs(&self, one: &Setup, other: &Setup) -> bool {
        self.sets.iter().any(|(field, _)| one.get(field) != other.get(field))
    }

    /// In words: `activation relu`.
    pub fn words(&self) -> String {
        let value = match self.value() {
            Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        let place = self.sets.iter().find(|(field, _)| *field == BESIDE);
        match place.and_then(|(_, value)| value.as_str()) {
            Some("encoder") => format!("{} {value} in the encoder", self.field()),
            _ => format!("{} {value}", self.field()),
        }
    }
}

/// Everything about a model that a hypothesis can change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    wiring: Wiring,
    heads: usize,
    shift: Shift,
    pub(crate) padding: Padding,
}

impl Setup {
    pub(crate) fn declared(model: &Model, shift: &Shift) -> Self {
        Self {
            wiring: model.wiring,
            heads: model.sizes.get(Dim::Heads(Stack::Decoder)).unwrap_or(0),
            shift: shift.clone(),
            padding: Padding::None,
        }
    }

    /// What the family is like unless somebody says otherwise.
    pub(crate) fn usual(model: &Model, shift: &Shift) -> Self {
        Self { wiring: model.family.wiring, ..Self::declared(model, shift) }
    }

    /// The same with rows padded in another way.
    pub(crate) fn padded(&self, padding: Padding) -> Self {
        Self { padding, ..self.clone() }
    }

    /// What a field holds, as JSON; whole numbers without a fraction.
    pub(crate) fn get(&self, field: &str) -> Value {
        match (field, &self.shift) {
            ("heads", _) => json!(self.heads),
            ("start_token", Shift::Start(id)) => json!(id),
            ("start_token", _) => Value::Null,
            _ => {
                let value = serde_json::to_value(self.wiring).ok().and_then(|w| w.get(field).cloned());
                match value.as_ref().and_then(Value::as_f64) {
                    Some(n) if n.fract() == 0.0 && n.abs() < 1e9 => json!(n as i64),
                    _ => value.unwrap_or(Value::Null),
                }
            }
        }
    }

    /// The setup after a change; `None` where a value is none that the field can have.
    pub(crate) fn with(&self, change: &Change) -> Option<Self> {
        let mut setup = self.clone();
        let mut wiring = serde_json::to_value(self.wiring).ok()?;
        for (field, value) in &change.sets {
            match *field {
                "heads" => setup.heads = usize::try_from(value.as_u64()?).ok()?,
                "start_token" => setup.shift = Shift::Start(u32::try_from(value.as_u64()?).ok()?),
                _ => *wiring.get_mut(field)? = value.clone(),
            }
        }
        setup.wiring = serde_json::from_value(wiring).ok()?;
        if change.padding != Padding::None {
            setup.padding = change.padding;
        }
        Some(setup)
    }

    /// The model under this setup; `None` where the file does not have the weights for it, or the pairs no room.
    pub(crate) fn candidate(&self, model: &Model, weights: &Weights, corpus: &Corpus) -> Option<Candidate> {
        let declared = model.sizes.get(Dim::Heads(Stack::Decoder));
        let heads = Some(self.heads).filter(|_| declared != Some(self.heads));
        let rewired = model.rewired(&self.wiring, heads);
        let weights = weights.reordered(&model.graph, &rewired.graph)?;
        let fits = rewired.obstacles.is_empty() && corpus.fits(&rewired, &self.shift);
        let (shift, padding) = (self.shift.clone(), self.padding);
        fits.then_some(Candidate { model: rewired, weights, shift, padding })
    }
}

/// Every single change of a setup that makes sense for a model.
pub(crate) fn changes(model: &Model, weights: &Weights, setup: &Setup) -> Vec<Change> {
    let plain = |sets| Change { sets, padding: Padding::None };
    let mut changes = Vec::new();
    for (field, values) in FIELDS.iter().filter(|(field, _)| applies(field, model, setup)) {
        let now = setup.get(field);
        for value in values.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok()) {
            if !is_possible(field, &value, setup) {
                continue;
            }
            if value == now || value.as_f64().is_some_and(|v| Some(v) == now.as_f64()) {
                continue;
            }
            match *field {
                "residual_gain" if value == json!(2) => {
                    changes.extend(
                        ["every_attention", "encoder"]
                            .map(|at| plain(vec![(*field, value.clone()), (BESIDE, json!(at))])),
                    );
                }
                // Judged on rows with padding: without any, both are the same.
                "padding_mask" => changes.extend(
                    [Padding::Twice, Padding::Longest]
                        .map(|padding| Change { sets: vec![(*field, value.clone())], padding }),
                ),
                _ => changes.push(plain(vec![(*field, value)])),
            }
        }
    }
    changes.extend(layouts(model, weights, setup).into_iter().map(plain));
    changes.extend(head_counts(model, setup.heads).map(|n| plain(vec![("heads", json!(n))])));
    changes.extend(start_tokens(model, setup).into_iter().map(|id| plain(vec![("start_token", json!(id))])));
    changes
}

/// Whether a field has any say in a model.
fn applies(field: &str, model: &Model, setup: &Setup) -> bool {
    let w = &setup.wiring;
    let positions = [w.source_positions, w.target_positions];
    let tokens = w.front == Front::Tokens;
    let table = model
        .tensors
        .iter()
        .any(|t| t.name.contains("relative_attention_bias") || t.name.contains("attn_rel_b"));
    match field {
        "position_offset" => tokens && positions.iter().any(|p| *p != Positions::None),
        "embedding_scale" | "padding_mask" => tokens,
        "logit_scale" => w.tied_output,
        "relative_bias" => w.relative_bias || table,
        "relative_buckets" | "relative_max_distance" => w.relative_bias,
        _ => true,
    }
}

/// Whether a value makes sense beside the others.
fn is_possible(field: &str, value: &Value, setup: &Setup) -> bool {
    let (buckets, distance) = (setup.wiring.relative_buckets, setup.wiring.relative_max_distance);
    let number = value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    match field {
        // No more rows than the table has; and the far ones begin behind the near ones.
        "relative_buckets" => number < buckets && number / 2 < distance,
        "relative_max_distance" => number > buckets / 2,
        _ => true,
    }
}

/// Other layouts of positions, where they are computed or a table holds nothing but what could have been.
fn layouts(model: &Model, weights: &Weights, setup: &Setup) -> Vec<Vec<(&'static str, Value)>> {
    let w = &setup.wiring;
    let computed = |side: Side| match w.positions(side) {
        Positions::Table => holds_sinusoids(model, weights, side),
        positions => positions.is_sinusoid(),
    };
    let sides: Vec<&'static str> = [(Side::Source, "source_positions"), (Side::Target, "target_positions")]
        .into_iter()
        .filter(|(side, _)| computed(*side) && (w.front == Front::Tokens || *side == Side::Target))
        .map(|(_, field)| field)
        .collect();
    let other = |layout: &&&str| sides.iter().any(|side| setup.get(side) != json!(layout));
    let set = |layout: &str| sides.iter().map(|&side| (side, json!(layout))).collect();
    if sides.is_empty() {
        Vec::new()
    } else {
        LAYOUTS.iter().filter(other).map(|layout| set(layout)).collect()
    }
}

/// Whether a stored position table is one of sines and cosines: every position has the same norm, √(width / 2).
fn holds_sinusoids(model: &Model, weights: &Weights, side: Side) -> bool {
    let path = format!("{}.positions.weight", side.name());
    let (Some(id), Some(width)) = (model.graph.find_weight(&path), model.sizes.get(Dim::Model)) else {
        return false;
    };
    let norm = |row: &[f32]| row.iter().map(|x| f64::from(x * x)).sum::<f64>() / (width as f64 / 2.0);
    let rows = weights.get(id).chunks(width.max(1)).skip(2);
    rows.map(norm).all(|norm| (norm - 1.0).abs() < 0.02)
}

/// Divisors of the projections' width, but for the one in use.
fn head_counts(model: &Model, now: usize) -> impl Iterator<Item = usize> {
    let [a, b] = Stack::ALL.map(|stack| model.sizes.get(Dim::Inner(stack)).unwrap_or(0));
    (1..=a.min(b)).filter(move |n| a.is_multiple_of(*n) && b.is_multiple_of(*n) && *n != now)
}

/// The ids that a config gives a meaning, and 0, where the decoder begins with another.
fn start_tokens(model: &Model, setup: &Setup) -> Vec<u32> {
    let Shift::Start(now) = setup.shift else { return Vec::new() };
    let rows = model.sizes.get(Dim::Vocab(Side::Target)).unwrap_or(0);
    let named = ["pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"].map(|name| {
        let fact = model.facts.iter().find(|fact| fact.name == name)?;
        fact.value.as_u64().and_then(|id| u32::try_from(id).ok())
    });
    let mut ids: Vec<u32> =
        named.into_iter().flatten().chain([0]).filter(|&id| id != now && (id as usize) < rows).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup { wiring: Wiring::VASWANI, heads: 4, shift: Shift::Start(0), padding: Padding::None }
    }

    #[test]
    fn every_value_of_the_table_is_one_that_its_field_can_have() {
        for (field, values) in FIELDS {
            for text in *values {
                let value: Value = serde_json::from_str(text).unwrap();
                let change = Change { sets: vec![(field, value.clone())], padding: Padding::None };
                let changed = setup().with(&change).unwrap_or_else(|| panic!("{field} = {text}"));
                let same = changed.get(field) == value || changed.get(field).as_f64() == value.as_f64();
                assert!(same, "{field} = {text} became {}", changed.get(field));
            }
        }
        for layout in LAYOUTS {
            let change = Change { sets: vec![("source_positions", json!(layout))], padding: Padding::None };
            assert!(setup().with(&change).is_some(), "{layout}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let change = |field, value| Change { sets: vec![(field, value)], padding: Padding::None };
        assert_eq!(setup().with(&change("activation", json!("cosine"))), None);
        assert_eq!(setup().with(&change("colour", json!(1))), None);
    }

    #[test]
    fn changes_are_read_as_they_are_written() {
        let change = Change {
            sets: vec![("residual_gain", json!(2)), (BESIDE, json!("encoder"))],
            padding: Padding::None,
        };
        assert_eq!(change.words(), "residual_gain 2 in the encoder");
        let mut shown = Map::new();
        change.shown(&setup().with(&change).unwrap(), &mut shown);
        assert_eq!(Value::Object(shown), json!({ "residual_gain": 2 }));
    }
}
