//! A classifier: what its config.json says, and the model that follows.

use attnscope_graph::{
    Architecture, CLASSIFIER, Classifier as Blocks, Dim, ENCODER_ONLY, Head, Model, NO_STACK, Side, Sizes,
    Stack, plan_tensors,
};
use attnscope_run::Tokenizer;
use serde_json::{Map, Value, json};

use crate::error::TrainError;
use crate::planned::{object, recognised};
use crate::recipe::Classifier;

/// What its config.json says.
pub(crate) fn config(
    table: &Classifier,
    classes: &[String],
    tokenizer: &Tokenizer,
) -> Result<Map<String, Value>, TrainError> {
    let pad = tokenizer.id("<pad>").ok_or(TrainError::NoToken { token: "<pad>" })?;
    let mut config = object(json!({
        "model_type": "attnscope-classifier",
        "vocab_size": tokenizer.len(),
        "pad_token_id": pad,
        "id2label": classes.iter().enumerate().map(|(i, class)| (i.to_string(), json!(class))).collect::<Map<_, _>>(),
        "classifier": blocks(table),
    }));
    if table.layers > 0 {
        config.extend(object(json!({
            "encoder_layers": table.layers,
            "encoder_attention_heads": table.heads,
            "sinusoidal_positions": true,
        })));
    }
    Ok(config)
}

/// The model that a file with this config would be recognised as.
pub(crate) fn model(
    table: &Classifier,
    tokenizer: &Tokenizer,
    config: &Map<String, Value>,
) -> Result<Model, TrainError> {
    let odd = || TrainError::Model { why: "its layout cannot be planned".into() };
    let stacks = if table.layers > 0 { ENCODER_ONLY } else { NO_STACK };
    let architecture = Architecture::new(stacks, Head::Classifier(blocks(table)), |_| table.layers);
    let mut sizes = Sizes::default();
    sizes.set(Dim::Model, table.embedding);
    sizes.set(Dim::Vocab(Side::Source), tokenizer.len());
    sizes.set(Dim::Inner(Stack::Encoder), table.embedding);
    sizes.set(Dim::KvInner(Stack::Encoder), table.embedding);
    sizes.set(Dim::Heads(Stack::Encoder), table.heads);
    sizes.set(Dim::FeedForward(Stack::Encoder), table.feed_forward());
    let tensors = plan_tensors(CLASSIFIER, &architecture, &CLASSIFIER.wiring, &sizes, "").ok_or_else(odd)?;
    recognised(tensors, config)
}

fn blocks(table: &Classifier) -> Blocks {
    Blocks { blocks: table.block.clone(), classes: table.classes, length: Some(table.length) }
}
