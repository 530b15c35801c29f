//! What a run that keeps every tensor needs of memory. One test: the peak is that of the whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use attnscope::{Input, Values};
use serde_json::json;

/// The most that the peak may be, in terms of what is kept and the weights.
const MOST: f64 = 1.1;

const WIDTH: usize = 512;
const VOCABULARY: usize = 32128;
const LAYERS: usize = 6;

/// The tensors of a T5-small, by the names of Hugging Face.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let mut all = vec![("shared.weight".to_owned(), vec![VOCABULARY, WIDTH])];
    for (stack, attentions) in
        [("encoder", &["SelfAttention"][..]), ("decoder", &["SelfAttention", "EncDecAttention"])]
    {
        for block in 0..LAYERS {
            let at = format!("{stack}.block.{block}.layer");
            for (i, attention) in attentions.iter().enumerate() {
                let matrix = |name| (format!("{at}.{i}.{attention}.{name}.weight"), vec![WIDTH, WIDTH]);
                all.extend(["q", "k", "v", "o"].map(matrix));
                all.push((format!("{at}.{i}.layer_norm.weight"), vec![WIDTH]));
            }
            let ffn = attentions.len();
            all.push((format!("{at}.{ffn}.DenseReluDense.wi.weight"), vec![4 * WIDTH, WIDTH]));
            all.push((format!("{at}.{ffn}.DenseReluDense.wo.weight"), vec![WIDTH, 4 * WIDTH]));
            all.push((format!("{at}.{ffn}.layer_norm.weight"), vec![WIDTH]));
        }
        let table = format!("{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        all.push((table, vec![32, 8]));
        all.push((format!("{stack}.final_layer_norm.weight"), vec![WIDTH]));
    }
    all
}

/// Writes a T5-small with weights of some noise. Gives the bytes of its weights.
fn write_model(folder: &Path) -> u64 {
    let config = json!({
        "model_type": "t5", "d_model": WIDTH, "d_kv": 64, "d_ff": 4 * WIDTH, "num_layers": LAYERS,
        "num_decoder_layers": LAYERS, "num_heads": 8, "vocab_size": VOCABULARY, "feed_forward_proj": "relu",
        "relative_attention_num_buckets": 32, "tie_word_embeddings": true, "layer_norm_epsilon": 1e-6,
        "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let (mut header, mut end) = (BTreeMap::new(), 0);
    let all = tensors();
    for (name, shape) in &all {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] }));
    }
    let header = serde_json::to_string(&header).unwrap();
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors")).unwrap());
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    let noise: Vec<u8> = (0..1_u32 << 14)
        .flat_map(|i| ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e9 - 0.008).to_le_bytes())
        .collect();
    for (_, shape) in all {
        let mut left = 4 * shape.iter().product::<usize>();
        while left > 0 {
            let part = left.min(noise.len());
            file.write_all(&noise[..part]).unwrap();
            left -= part;
        }
    }
    end as u64
}

/// A number of `/proc/self/status`, in bytes.
fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    1024 * line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").trim().parse::<u64>().unwrap()
}

#[test]
fn a_run_that_keeps_everything_needs_little_more_than_that() {
    let folder = tempfile::tempdir().unwrap();
    let weights = write_model(folder.path());
    let model = attnscope::open(folder.path().to_str().unwrap()).unwrap();
    let row =
        |length: u32| vec![(0..length).map(|i| (i * 7919 + 13) % VOCABULARY as u32).collect::<Vec<u32>>()];
    let before = status("VmRSS");
    let trace = model.trace(&Input::ids(row(128)).with_target_ids(row(64)), "*").unwrap();
    let peak = status("VmHWM") - before;
    // Tensors that are one in the run are one here.
    let kept: BTreeMap<usize, usize> = trace
        .tensors()
        .map(|(_, tensor)| match tensor.values {
            Values::F32(values) => (values.as_ptr().addr(), size_of_val(values)),
            Values::F64(values) => (values.as_ptr().addr(), size_of_val(values)),
        })
        .collect();
    let kept = kept.values().sum::<usize>() as u64;
    let ratio = peak as f64 / (kept + weights) as f64;
    println!("kept {kept} B, weights {weights} B, peak {peak} B: {ratio:.3} ×");
    assert!(trace.tensors().count() > 300 && kept > 60_000_000, "{kept}");
    assert!(ratio <= MOST, "{ratio:.3} × of {kept} + {weights} bytes");
}
