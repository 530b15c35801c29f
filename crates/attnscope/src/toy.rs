//! The toy: a Transformer of 2 + 2 layers, 4 heads, d_model 128 and d_ff 256 whose vocabularies are the words of the
//! sentences it is given. Its weights are random, and the same on every machine.

use std::borrow::Cow;
use std::collections::BTreeSet;

use attnscope_checkpoint::Checkpoint;
use attnscope_run::SplitMix;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

use crate::failure::Failure;

/// What the toy reads where nothing else is given.
pub const SOURCE: &str = "hello from cairo egypt team project";
/// What its decoder reads.
pub const TARGET: &str = "we are debugging transformer today";

const LAYERS: usize = 2;
const HEADS: usize = 4;
const MODEL: usize = 128;
const FEED_FORWARD: usize = 256;
/// The stream of random numbers starts here; docs/toy.md says how weights are drawn from it.
const SEED: u64 = 43;

/// The toy as a checkpoint with its config.
pub(crate) fn checkpoint(source: &[String], target: &[String]) -> Result<Checkpoint, Failure> {
    let config = json!({
        "model_type": "tiny-transformer",
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
    });
    let tensors = tensors(vocabulary(source), vocabulary(target));
    let bytes = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|x| x.to_le_bytes()).collect() };
    let stored: Vec<(String, Vec<usize>, Vec<u8>)> =
        tensors.iter().map(|(name, shape, values)| (name.clone(), shape.clone(), bytes(values))).collect();
    let odd = |e: safetensors::SafeTensorError| Failure::new(format!("toy: {e}"), "please report this");
    let views = stored
        .iter()
        .map(|(name, shape, bytes)| Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(odd)?;
    let file = safetensors::serialize(views, None).map_err(odd)?;
    let files = vec![
        ("model.safetensors", Cow::Owned(file)),
        ("config.json", Cow::Owned(config.to_string().into_bytes())),
    ];
    Ok(Checkpoint::from_memory("toy", files)?)
}

/// How many distinct words there are.
fn vocabulary(sentences: &[String]) -> usize {
    sentences.iter().flat_map(|s| s.split_whitespace()).collect::<BTreeSet<_>>().len()
}

type Drawn = (String, Vec<usize>, Vec<f32>);

/// Every weight by its name in TinyTransformer, drawn in this order.
fn tensors(source: usize, target: usize) -> Vec<Drawn> {
    let mut draw = Draw { random: SplitMix::new(SEED), tensors: Vec::new() };
    draw.table("src_emb", source);
    draw.table("tgt_emb", target);
    for n in 0..LAYERS {
        draw.attention(&format!("enc_layers.{n}.mha"));
        draw.feed_forward(&format!("enc_layers.{n}"), &["ln1", "ln2"]);
    }
    for n in 0..LAYERS {
        draw.attention(&format!("dec_layers.{n}.self_mha"));
        draw.attention(&format!("dec_layers.{n}.cross_mha"));
        draw.feed_forward(&format!("dec_layers.{n}"), &["ln1", "ln2", "ln3"]);
    }
    draw.linear("proj", target, MODEL);
    draw.tensors
}

struct Draw {
    random: SplitMix,
    tensors: Vec<Drawn>,
}

impl Draw {
    fn add(&mut self, name: String, shape: &[usize], bound: f32) {
        let values = (0..shape.iter().product()).map(|_| bound * self.random.unit()).collect();
        self.tensors.push((name, shape.to_vec(), values));
    }

    /// Of variance 1: a uniform number within ±√3.
    fn table(&mut self, module: &str, rows: usize) {
        self.add(format!("{module}.weight"), &[rows, MODEL], 3f32.sqrt());
    }

    /// Weights within ±√(6 / (inputs + outputs)), biases within ±1/√inputs.
    fn linear(&mut self, module: &str, outputs: usize, inputs: usize) {
        let bound = (6.0 / (inputs + outputs) as f32).sqrt();
        self.add(format!("{module}.weight"), &[outputs, inputs], bound);
        self.add(format!("{module}.bias"), &[outputs], (inputs as f32).sqrt().recip());
    }

    fn attention(&mut self, module: &str) {
        for name in ["W_q", "W_k", "W_v", "W_o"] {
            self.linear(&format!("{module}.{name}"), MODEL, MODEL);
        }
    }

    /// The feed-forward of a layer, and the layer's norms: gain 1 and bias 0.
    fn feed_forward(&mut self, layer: &str, norms: &[&str]) {
        self.linear(&format!("{layer}.ffn.fc1"), FEED_FORWARD, MODEL);
        self.linear(&format!("{layer}.ffn.fc2"), MODEL, FEED_FORWARD);
        for norm in norms {
            for (leaf, value) in [("weight", 1.0), ("bias", 0.0)] {
                self.tensors.push((format!("{layer}.{norm}.{leaf}"), vec![MODEL], vec![value; MODEL]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_do_not_change_from_release_to_release() {
        let drawn = tensors(6, 5);
        let hash = drawn.iter().flat_map(|(_, _, values)| values).fold(0xcbf2_9ce4_8422_2325u64, |h, x| {
            (h ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!((drawn.len(), hash), (88, 0x23bb_1661_87dd_c86e), "{hash:#x}");
    }
}
