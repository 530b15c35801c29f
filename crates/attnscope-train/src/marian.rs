//! An encoder-decoder in Marian's layout: what its config.json says, and the tensors of its file.

use attnscope_graph::{
    Activation, Architecture, Dim, FAMILIES, Family, Side, Sizes, Stack, TensorSpec, plan_tensors,
};
use serde_json::{Map, Value, json};

use crate::error::TrainError;
use crate::planned::{Vocabulary, object};
use crate::recipe::EncoderDecoder;

/// What Hugging Face's files put before the names of all but the output.
const PREFIX: &str = "model.";

/// The longest sentence that is generated, where the user says nothing.
const MOST_GENERATED: usize = 128;

/// config.json and generation_config.json.
pub(crate) fn configs(
    model: &EncoderDecoder,
    vocabulary: Vocabulary,
) -> Result<[Map<String, Value>; 2], TrainError> {
    let (pad, end) = (vocabulary.pad()?, vocabulary.end()?);
    let (encoder, decoder) = (model.layers.encoder(), model.layers.decoder());
    let config = json!({
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": vocabulary.len,
        "decoder_vocab_size": vocabulary.len,
        "d_model": model.d_model,
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "num_hidden_layers": encoder,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.d_ff,
        "decoder_ffn_dim": model.d_ff,
        "activation_function": activation_name(model.activation),
        "max_position_embeddings": model.positions,
        "scale_embedding": true,
        "static_position_embeddings": true,
        "share_encoder_decoder_embeddings": true,
        "tie_word_embeddings": true,
        "normalize_before": false,
        "is_encoder_decoder": true,
        "pad_token_id": pad,
        "eos_token_id": end,
        "decoder_start_token_id": pad,
        "dropout": model.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "torch_dtype": "float32",
    });
    let generation = json!({
        "pad_token_id": pad,
        "eos_token_id": end,
        "decoder_start_token_id": pad,
        "max_length": MOST_GENERATED.min(model.positions),
        "num_beams": 1,
    });
    Ok([object(config), object(generation)])
}

/// The tensors of its file.
pub(crate) fn tensors(table: &EncoderDecoder, vocabulary: Vocabulary) -> Result<Vec<TensorSpec>, TrainError> {
    let odd = || TrainError::Model { why: "its layout cannot be planned".into() };
    let family: &Family = FAMILIES.iter().find(|family| family.id == "marian").ok_or_else(odd)?;
    let layers = |stack| match stack {
        Stack::Encoder => table.layers.encoder(),
        Stack::Decoder => table.layers.decoder(),
    };
    let architecture = Architecture::new(family.stacks, family.head.clone(), layers);
    let sizes = sizes(table, vocabulary.len);
    plan_tensors(family, &architecture, &family.wiring, &sizes, PREFIX).ok_or_else(odd)
}

fn sizes(table: &EncoderDecoder, vocabulary: usize) -> Sizes {
    let mut sizes = Sizes::default();
    sizes.set(Dim::Model, table.d_model);
    for stack in Stack::ALL {
        sizes.set(Dim::Inner(stack), table.d_model);
        sizes.set(Dim::KvInner(stack), table.d_model);
        sizes.set(Dim::Heads(stack), table.heads);
        sizes.set(Dim::FeedForward(stack), table.d_ff);
    }
    for side in [Side::Source, Side::Target] {
        sizes.set(Dim::Vocab(side), vocabulary);
        sizes.set(Dim::Positions(side), table.positions);
    }
    sizes
}

/// As Hugging Face spells it.
fn activation_name(activation: Activation) -> &'static str {
    match activation {
        Activation::Relu => "relu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::Swish => "swish",
        Activation::QuickGelu => "quick_gelu",
        Activation::Tanh => "tanh",
    }
}
