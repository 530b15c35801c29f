//! Recognises what a config and names of tensors say, and draws it.
//!
//! The input is a line for each tensor, its name and its dimensions, then an empty line, then a config.json.

use attnscope::{Component, FlowOptions, flow_of};
use attnscope_checkpoint::Format;
use attnscope_graph::{Config, Recognised, TensorSpec, recognise};
use attnscope_render::{Options, Style, flow};
use serde_json::{Map, Value};

/// More columns than this do not show more code.
const WIDTH: usize = 60;

/// The whole way from text to drawing.
pub fn recognise_and_draw(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (tensors, config) = text.split_once("\n\n").unwrap_or((&text, ""));
    let tensors: Vec<TensorSpec> = tensors.lines().enumerate().map(tensor).collect();
    let facts: Map<String, Value> = serde_json::from_str(config).unwrap_or_default();
    let configs = [Config { source: "config.json", facts: &facts }];
    let Ok(Recognised::Model(model)) = recognise(tensors, &configs, None) else { return };
    // One drawing for each input: drawing takes longest, and the inputs are many.
    let (component, symbolic) = match bytes.len() % 4 {
        0 => (Component::Full, true),
        1 => (Component::Encoder, false),
        2 => (Component::Decoder, false),
        _ => (Component::Full, false),
    };
    let options = FlowOptions { component, layer: None, symbolic };
    let Ok(drawn) = flow_of("fuzz", Format::Safetensors, &model, &options) else { return };
    let _ = flow::text(&drawn, Options { width: WIDTH, ..Options::default() }, Style::default());
}

fn tensor((storage, line): (usize, &str)) -> TensorSpec {
    let (name, dims) = line.split_once(' ').unwrap_or((line, ""));
    let shape: Vec<usize> = dims.split([' ', ',']).filter_map(|n| n.parse().ok()).collect();
    // Readers refuse a shape that cannot be counted.
    let counted = shape.iter().try_fold(4usize, |n, &d| n.checked_mul(d.max(1))).is_some();
    let shape = if counted { shape } else { Vec::new() };
    let bytes = 4 * shape.iter().product::<usize>() as u64;
    TensorSpec { name: name.to_owned(), shape, dtype: "f32", bytes, storage }
}
