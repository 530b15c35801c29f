//! A classifier: what its config.json says, and the tensors of its file.

use attnscope_graph::{
    Architecture, CLASSIFIER, Classifier as Blocks, Dim, ENCODER_ONLY, Head, NO_STACK, Side, Sizes, Stack,
    TensorSpec, plan_tensors,
};
use serde_json::{Map, Value, json};

use crate::error::TrainError;
use crate::planned::{Vocabulary, object};
use crate::recipe::Classifier;

/// What its config.json says.
pub(crate) fn config(
    table: &Classifier,
    classes: &[String],
    vocabulary: Vocabulary,
) -> Result<Map<String, Value>, TrainError> {
    let mut config = object(json!({
        "model_type": "attnscope-classifier",
        "vocab_size": vocabulary.len,
        "pad_token_id": vocabulary.pad()?,
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

/// The tensors of its file.
pub(crate) fn tensors(table: &Classifier, vocabulary: Vocabulary) -> Result<Vec<TensorSpec>, TrainError> {
    let odd = || TrainError::Model { why: "its layout cannot be planned".into() };
    let stacks = if table.layers > 0 { ENCODER_ONLY } else { NO_STACK };
    let architecture = Architecture::new(stacks, Head::Classifier(blocks(table)), |_| table.layers);
    let mut sizes = Sizes::default();
    sizes.set(Dim::Model, table.embedding);
    sizes.set(Dim::Vocab(Side::Source), vocabulary.len);
    sizes.set(Dim::Inner(Stack::Encoder), table.embedding);
    sizes.set(Dim::KvInner(Stack::Encoder), table.embedding);
    sizes.set(Dim::Heads(Stack::Encoder), table.heads);
    sizes.set(Dim::FeedForward(Stack::Encoder), table.feed_forward());
    plan_tensors(CLASSIFIER, &architecture, &CLASSIFIER.wiring, &sizes, "").ok_or_else(odd)
}

fn blocks(table: &Classifier) -> Blocks {
    Blocks { blocks: table.block.clone(), classes: table.classes, length: Some(table.length) }
}
