//! Weights that stay in their file or in their quantised blocks: every tensor is, bit for bit, that of weights in memory.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::path::Path;
use std::sync::Arc;

use attnscope_checkpoint::{Checkpoint, DType, HeldTensor};
use attnscope_graph::{Config, Dim, Front, Model, Recognised, Side, recognise};
use attnscope_run::{
    Cancel, Capture, CheckedInput, Executor, Features, Input, Limits, Native, Progress, Reference, Request,
    Rows, RunError, Sequence, Sink, Tensor, Weights, tensor_specs,
};
use common::fixture;

fn recognised(checkpoint: &Checkpoint) -> Model {
    let config = |c: &'_ attnscope_checkpoint::Config| (c.source.clone(), c.facts.clone());
    let owned: Vec<_> = checkpoint.configs().iter().map(config).collect();
    let configs: Vec<Config<'_>> = owned.iter().map(|(source, facts)| Config { source, facts }).collect();
    match recognise(tensor_specs(checkpoint), &configs, None) {
        Ok(Recognised::Model(model)) => *model,
        other => panic!("{:?}: {other:?}", checkpoint.path()),
    }
}

fn open(path: &Path) -> (Checkpoint, Model) {
    let checkpoint = Checkpoint::open(path).unwrap();
    let model = recognised(&checkpoint);
    (checkpoint, model)
}

/// Something for every sequence that a model reads: two rows of five tokens, the second one shorter on the source.
fn input(model: &Model) -> Input {
    let size = |dim| model.sizes.get(dim).unwrap_or(1);
    let row = |side, n: usize, by: usize| -> Vec<u32> {
        (0..n).map(|i| ((i * by + 3) % size(Dim::Vocab(side))) as u32).collect()
    };
    let target = Rows::new(&[row(Side::Target, 5, 7), row(Side::Target, 5, 11)], 0);
    let source = match (model.architecture.reads(Side::Source), model.wiring.front) {
        (false, _) => return Input::of(Side::Target, Sequence::Tokens(target)),
        (true, Front::Tokens) => {
            Sequence::Tokens(Rows::new(&[row(Side::Source, 6, 5), row(Side::Source, 4, 13)], 0))
        }
        (true, Front::Audio) => {
            let (mels, frames) = (size(Dim::Mels), 2 * size(Dim::Positions(Side::Source)));
            let values = (0..2 * mels * frames).map(|i| (i as f32 * 0.37).sin()).collect();
            Sequence::Features(Features { values, batch: 2, mels, frames })
        }
    };
    match model.architecture.reads(Side::Target) {
        true => Input::pair(source, target),
        false => Input::of(Side::Source, source),
    }
}

fn run(model: &Model, weights: &Weights, input: &Input, sink: &mut dyn Sink) -> Result<(), RunError> {
    run_on(&Native::new(), model, weights, input, sink)
}

fn run_on(
    executor: &dyn Executor,
    model: &Model,
    weights: &Weights,
    input: &Input,
    sink: &mut dyn Sink,
) -> Result<(), RunError> {
    let input = CheckedInput::new(model, input.clone())?;
    executor.prepare(Arc::new(model.clone()), weights.clone())?.run(&input, sink).map(|_| ())
}

fn target(ids: Vec<u32>) -> Input {
    Input::of(Side::Target, Sequence::Tokens(Rows::new(&[ids], 0)))
}

/// Values by node, as bits.
fn bits<F>(kept: &Capture<F>) -> Vec<(String, Vec<u32>)> {
    let values = |tensor: &Tensor| tensor.values().to_f32().iter().map(|x| x.to_bits()).collect();
    kept.tensors.iter().map(|(id, tensor)| (format!("{id:?}"), values(tensor))).collect()
}

fn captured(model: &Model, weights: &Weights, input: &Input) -> Vec<(String, Vec<u32>)> {
    let mut kept = Capture::new(|_| true);
    run(model, weights, input, &mut kept).unwrap();
    bits(&kept)
}

/// The logits of every step of a decoding, as bits.
fn decoded(model: &Model, weights: &Weights, input: &Input) -> Vec<Vec<u32>> {
    let (Some(target), source) = (input.rows(Side::Target), input.sequence(Side::Source)) else {
        return Vec::new();
    };
    let given = source.map_or(Input::empty(target.batch()), |s| Input::of(Side::Source, s.clone()));
    let given = CheckedInput::to_decode(model, given).unwrap();
    let prepared = Native::new().prepare(Arc::new(model.clone()), weights.clone()).unwrap();
    let mut session = prepared.own_session();
    let mut decoding = session.decode(&given).unwrap();
    let rows: Vec<Vec<u32>> = target.ids().chunks(target.length()).map(<[u32]>::to_vec).collect();
    let step = |t: usize| rows.iter().map(|row| vec![row[t]]).collect::<Vec<_>>();
    let steps = 0..target.length().min(4);
    steps.map(|t| decoding.advance(&step(t)).unwrap().iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn a_run_that_reads_each_layer_from_the_file_is_the_run_in_memory() {
    // Packed and transposed weights, heads put in order, shared layers and tables, each kind once.
    for path in [
        "marian",
        "t5",
        "whisper",
        "encoder-decoder",
        "llama",
        "gpt2",
        "gpt-neox",
        "phi3",
        "gemma2",
        "bert",
        "modernbert",
        "decoder-gguf/llama.gguf",
        "t5-gguf/t5.gguf",
    ] {
        let (checkpoint, model) = &open(&fixture(path));
        let in_memory = Weights::load(model, checkpoint).unwrap();
        let in_file = Weights::in_file(model, checkpoint).unwrap();
        assert_eq!((in_memory.unread(), in_file.unread().is_some()), (None, true), "{path}");
        let input = input(model);
        assert_eq!(captured(model, &in_file, &input), captured(model, &in_memory, &input), "{path}");
        assert_eq!(decoded(model, &in_file, &input), decoded(model, &in_memory, &input), "{path}");
    }
}

#[test]
fn the_reference_reads_them_from_the_file_too() {
    let (checkpoint, model) = &open(&fixture("bart"));
    let tensors = |weights: &Weights| {
        let mut kept = Capture::new(|_| true);
        run_on(&Reference, model, weights, &input(model), &mut kept).unwrap();
        kept.tensors.into_values().map(|tensor| tensor.to_f64().values).collect::<Vec<_>>()
    };
    let in_memory = tensors(&Weights::load(model, checkpoint).unwrap());
    assert_eq!(tensors(&Weights::in_file(model, checkpoint).unwrap()), in_memory);
}

/// Bytes of a type that stand for small numbers.
fn some_bytes(dtype: DType, elements: usize, seed: usize) -> Vec<u8> {
    let (values, size) = dtype.block();
    let mut state = seed as u64 * 0x9e37_79b9 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u8
    };
    let mut bytes: Vec<u8> = (0..elements / values * size).map(|_| next()).collect();
    // 2⁻¹² as f16, where the type keeps its scales.
    let scale = 0x0c00u16.to_le_bytes();
    for block in bytes.chunks_mut(size) {
        match dtype {
            DType::Q8_0 | DType::Q4_0 | DType::Q5_0 => block[..2].copy_from_slice(&scale),
            DType::Q4K | DType::Q5K | DType::Q4_1 | DType::Q5_1 => {
                block[..2].copy_from_slice(&scale);
                block[2..4].copy_from_slice(&scale);
            }
            DType::Q6K => block[208..].copy_from_slice(&scale),
            DType::BF16 => block[1] = block[1] & 0x80 | 0x3c,
            _ => {}
        }
    }
    bytes
}

/// A Llama with matrices of these types in turn, whose values are random.
fn llama(layers: usize, ffn: usize, types: &[DType]) -> Vec<HeldTensor> {
    let width = 256;
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: Vec<usize>, dtype: DType| {
        let bytes = some_bytes(dtype, shape.iter().product(), tensors.len());
        tensors.push(HeldTensor { name, dtype, shape, bytes: Arc::new(bytes) });
    };
    let of = |i: usize| types[i % types.len()];
    add("model.embed_tokens.weight".into(), vec![64, width], of(0));
    add("lm_head.weight".into(), vec![64, width], of(1));
    let ones =
        |n: usize| Arc::new([1f32; 1].repeat(n).iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    for layer in 0..layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        for (i, part) in ["q", "k", "v", "o"].into_iter().enumerate() {
            add(name(&format!("self_attn.{part}_proj")), vec![width, width], of(layer + i));
        }
        add(name("mlp.gate_proj"), vec![ffn, width], of(layer + 4));
        add(name("mlp.up_proj"), vec![ffn, width], of(layer + 5));
        add(name("mlp.down_proj"), vec![width, ffn], of(layer + 6));
    }
    for layer in 0..layers {
        for part in ["input_layernorm", "post_attention_layernorm"] {
            let name = format!("model.layers.{layer}.{part}.weight");
            tensors.push(HeldTensor { name, dtype: DType::F32, shape: vec![width], bytes: ones(width) });
        }
    }
    let name = "model.norm.weight".into();
    tensors.push(HeldTensor { name, dtype: DType::F32, shape: vec![width], bytes: ones(width) });
    tensors
}

fn held(tensors: Vec<HeldTensor>, layers: usize, ffn: usize) -> (Checkpoint, Model) {
    let config = format!(
        r#"{{"model_type": "llama", "hidden_size": 256, "intermediate_size": {ffn}, "num_attention_heads": 4,
            "num_key_value_heads": 4, "num_hidden_layers": {layers}, "vocab_size": 64, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 512, "hidden_act": "silu", "tie_word_embeddings": false}}"#
    );
    let documents = vec![("config.json".into(), config.into_bytes())];
    let checkpoint = Checkpoint::held("a model", tensors, documents).unwrap();
    let model = recognised(&checkpoint);
    (checkpoint, model)
}

/// The same tensors in f32.
fn widened(tensors: &[HeldTensor]) -> Vec<HeldTensor> {
    let held = Checkpoint::held("quantised", tensors.to_vec(), vec![]).unwrap();
    let wide = |(tensor, info): (&HeldTensor, _)| {
        let values = held.read_f32(info).unwrap();
        let bytes = Arc::new(values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        HeldTensor { dtype: DType::F32, bytes, ..tensor.clone() }
    };
    tensors.iter().zip(held.tensors()).map(wide).collect()
}

#[test]
fn quantised_weights_stay_in_their_blocks_and_give_the_tensors_of_the_widened_ones() {
    let types = [DType::Q4K, DType::Q6K, DType::Q8_0, DType::Q5K, DType::Q4_0, DType::Q5_1];
    let quantised = llama(3, 512, &types);
    let (whole, blocks) = (held(widened(&quantised), 3, 512), held(quantised, 3, 512));
    let input = target((0..40).map(|i| i * 7 % 64).collect());
    let (checkpoint, model) = &whole;
    let expected = captured(model, &Weights::load(model, checkpoint).unwrap(), &input);
    let (checkpoint, model) = &blocks;
    let weights = Weights::load(model, checkpoint).unwrap();
    assert_eq!(captured(model, &weights, &input), expected);
    let in_file = Weights::in_file(model, checkpoint).unwrap();
    assert_eq!(captured(model, &in_file, &input), expected);
    assert_eq!(decoded(model, &in_file, &input), decoded(model, &weights, &input));
    // What they take is what the file has of them.
    let of_file: u64 = checkpoint.tensors().iter().map(|tensor| tensor.bytes()).sum();
    assert_eq!(in_file.unread(), Some(of_file));
}

/// Bytes that are resident, where the system says so.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[test]
fn what_does_not_fit_in_the_memory_that_is_allowed_is_read_layer_by_layer() {
    let (layers, ffn) = (24, 1024);
    let (checkpoint, model) = &held(llama(layers, ffn, &[DType::BF16]), layers, ffn);
    let input = target(vec![1, 2, 3, 4, 5, 6]);
    let whole = Weights::load(model, checkpoint).unwrap();
    assert_eq!(whole.unread(), None);
    let expected = captured(model, &whole, &input);
    drop(whole);
    // Two layers have 4 MB, and all weights 50 MB.
    let limits = Limits { memory: Some(resident() + (24 << 20)), ..Limits::default() };
    let weights = Weights::load_within(model, checkpoint, &limits).unwrap();
    assert!(weights.unread().is_some_and(|bytes| bytes > 48 << 20), "{:?}", weights.unread());
    let prepared = Native::new().prepare(Arc::new(model.clone()), weights).unwrap().with_limits(&limits);
    let mut kept = Capture::new(|_| true);
    let checked = CheckedInput::new(model, input).unwrap();
    prepared.run(&checked, &mut kept).unwrap();
    assert_eq!(bits(&kept), expected);
    // Not even two layers fit.
    let limits = Limits { memory: Some(resident() + (2 << 20)), ..Limits::default() };
    let error = prepared.with_limits(&limits).run(&checked, &mut Capture::new(|_| false)).unwrap_err();
    assert!(matches!(error, RunError::Memory(_)), "{error}");
    let error = prepared.weights().clone().widened(&limits).unwrap_err().to_string();
    assert!(error.starts_with("holding all weights in f32 needs "), "{error}");
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_an_error_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["model.safetensors", "config.json"] {
        std::fs::copy(fixture("llama").join(file), dir.path().join(file)).unwrap();
    }
    let (checkpoint, model) = &open(dir.path());
    let weights = Weights::in_file(model, checkpoint).unwrap();
    let file = dir.path().join("model.safetensors");
    let len = std::fs::metadata(&file).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(len / 2).unwrap();
    let input = input(model);
    let error = run(model, &weights, &input, &mut Capture::new(|_| true)).unwrap_err();
    let words = error.to_string();
    assert!(words.contains("model.safetensors") && words.contains("changed"), "{words}");
    let id = model.graph.weight_ids().next().unwrap();
    assert_eq!(weights.get(id).unwrap_err().to_string(), words);
}

#[test]
fn a_run_that_reads_from_the_file_can_be_cancelled() {
    let (checkpoint, model) = &open(&fixture("marian"));
    let weights = Weights::in_file(model, checkpoint).unwrap();
    let input = CheckedInput::new(model, input(model)).unwrap();
    let cancel = Cancel::default();
    let flag = cancel.clone();
    let progress = Progress::new(move |step| {
        if step.done == 20 {
            flag.cancel()
        }
    });
    let limits = Limits { cancel, progress, ..Limits::default() };
    let prepared = Native::new().prepare(Arc::new(model.clone()), weights).unwrap();
    let error = prepared.session(&limits).run(&Request::new(&input), &mut Capture::new(|_| true));
    assert!(matches!(error, Err(RunError::Cancelled)));
    // Another session is not disturbed.
    prepared.run(&input, &mut Capture::new(|_| true)).unwrap();
}
