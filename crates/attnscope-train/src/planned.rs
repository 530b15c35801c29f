//! From planned tensors and a config to a model, as a file of them would be recognised.

use attnscope_graph::{Config, Model, Recognised, TensorSpec, recognise};
use serde_json::{Map, Value};

use crate::error::TrainError;

/// The model that a file with these tensors and this config.json would be recognised as.
pub(crate) fn recognised(tensors: Vec<TensorSpec>, config: &Map<String, Value>) -> Result<Model, TrainError> {
    let configs = [Config { source: "config.json", facts: config }];
    match recognise(tensors, &configs, None) {
        Ok(Recognised::Model(model)) => match model.obstacles.first() {
            None => Ok(*model),
            Some(obstacle) => Err(TrainError::Model { why: obstacle.clone() }),
        },
        Ok(Recognised::Other(other)) => Err(TrainError::Model { why: other.because }),
        Err(e) => Err(TrainError::Model { why: e.to_string() }),
    }
}

/// The entries of a JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
