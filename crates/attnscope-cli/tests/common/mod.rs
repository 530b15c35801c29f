//! What the tests of the binary share: fixtures, models outside the repository, running the program.

#![allow(dead_code, unreachable_pub)] // Each test binary uses its part.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

pub mod faults;
pub mod run;
pub mod trace;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use attnscope::Opened;
use attnscope::checkpoint::{Checkpoint, Entry, Target, write};
use serde_json::{Map, Value};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn fixture(path: &str) -> String {
    root().join("fixtures").join(path).display().to_string()
}

/// A model outside the repository. Every skip for want of one goes through here.
pub fn shared(path: &str) -> Option<String> {
    let base = std::env::var_os("ATTNSCOPE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let path = base.join(path);
    if path.exists() {
        return Some(path.display().to_string());
    }
    println!("skipped: {} not found", path.display());
    None
}

/// Every encoder-decoder among the fixtures: its file, its family, and the heads where the file does not say.
pub const MODELS: &[(&str, &str, Option<usize>)] = &[
    ("marian", "marian", None),
    ("marian-untied", "marian", None),
    ("marian-old", "marian", None),
    ("bart", "bart", None),
    ("bart-sharded", "bart", None),
    ("mbart", "mbart", None),
    ("pegasus", "pegasus", None),
    ("m2m100", "m2m_100", None),
    ("blenderbot-small", "blenderbot-small", None),
    ("t5", "t5", None),
    ("t5-v1_1", "t5-v1_1", None),
    ("mt5", "mt5", None),
    ("umt5", "umt5", None),
    ("encoder-decoder", "encoder-decoder-bert", None),
    ("fsmt", "fsmt", None),
    ("led", "led", None),
    ("longt5", "longt5", None),
    ("whisper", "whisper", None),
    ("whisper-openai/tiny.pt", "whisper", None),
    ("whisper-ggml/ggml-tiny.bin", "whisper", None),
    ("fairseq/checkpoint.pt", "fairseq", None),
    ("fairseq/checkpoint_args.pt", "fairseq", None),
    ("fairseq/checkpoint_omegaconf.pt", "fairseq", None),
    ("torch-nn/model.pt", "torch-nn", Some(4)),
    ("tiny-transformer/tiny.pt", "tiny-transformer", Some(4)),
];

/// Checkpoints that differ from one of `MODELS` in what their config says: run and recognised, not drawn again.
pub const VARIANTS: &[(&str, &str, Option<usize>)] = &[
    ("m2m100-pad0", "m2m_100", None),
    ("plbart", "plbart", None),
    ("encoder-decoder-roberta", "encoder-decoder-roberta", None),
];

/// Models of one stack: language models, and an encoder with a head for masked words.
pub const ONE_STACK: &[(&str, &str)] = &[
    ("gpt2", "gpt2"),
    ("llama", "llama"),
    ("llama-bias", "llama"),
    ("mistral", "mistral"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3"),
    ("phi3", "phi3"),
    ("gpt-neox", "gpt_neox"),
    ("opt", "opt"),
    ("falcon", "falcon"),
    ("bert", "bert"),
    ("roberta", "roberta"),
    ("modernbert", "modernbert"),
    ("distilbert", "distilbert"),
    ("electra", "electra"),
    ("albert", "albert"),
];

/// Encoder-decoders among the fixtures that were also run on 300 tokens.
pub const LONG: &[&str] = &["umt5", "encoder-decoder", "encoder-decoder-roberta", "fsmt", "led", "longt5"];

/// Whether a family of one stack has an encoder.
pub fn is_encoder(family: &str) -> bool {
    matches!(family, "bert" | "roberta" | "modernbert" | "distilbert" | "electra" | "albert")
}

/// Both.
pub fn models_and_variants() -> impl Iterator<Item = (&'static str, &'static str, Option<usize>)> {
    MODELS.iter().chain(VARIANTS).copied()
}

pub fn open(path: &str, heads: Option<usize>) -> Opened {
    Opened::open(path, heads).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What the fixture's maker says of it.
pub fn expected(path: &str) -> Value {
    let (folder, file) = path.split_once('/').map_or((path, None), |(a, b)| (a, Some(b)));
    let text = std::fs::read_to_string(root().join("fixtures").join(folder).join("expected.json")).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    match file.and_then(|f| value.get(f)) {
        Some(own) => own.clone(),
        None => value,
    }
}

/// Runs the program.
pub fn attnscope(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnscope"));
    command.args(args).env("LC_ALL", "C.UTF-8").env_remove("COLUMNS");
    command
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a command that must succeed prints as JSON.
pub fn json(args: &[&str]) -> Value {
    let output = attnscope(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// The error and the help of a command that must not succeed.
pub fn refused(args: &[&str]) -> String {
    let output = attnscope(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stdout(&output));
    let text = stderr(&output);
    assert!(text.contains("error: ") && text.contains("help: "), "{text}");
    text
}

/// A copy of a checkpoint in one safetensors file, each tensor renamed or left out, with a config or without.
pub fn rewrite(
    from: &str,
    to: &Path,
    rename: impl Fn(&str) -> Option<String>,
    reshape: impl Fn(&str, &[usize]) -> Vec<usize>,
    config: Option<&Value>,
) -> String {
    let source = Checkpoint::open(Path::new(from)).unwrap();
    let entries: Vec<Entry<'_>> = source
        .tensors()
        .iter()
        .filter_map(|t| {
            let shape = reshape(&t.name, &t.shape);
            let bytes = t.dtype.bytes_for(shape.iter().product()).unwrap();
            let mut entry = Entry { name: rename(&t.name)?, ..source.entry(t) };
            if shape != t.shape {
                entry.bytes = Box::new(move |sink| sink(&vec![0; bytes]));
                entry.shape = shape;
            }
            Some(entry)
        })
        .collect();
    let file = to.join("model.safetensors");
    write(Target::Safetensors, &file, entries, &Map::new()).unwrap();
    if let Some(config) = config {
        std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    }
    to.display().to_string()
}

pub fn config_of(fixture_folder: &str) -> Value {
    let text = std::fs::read_to_string(format!("{}/config.json", fixture(fixture_folder))).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub fn same(_: &str, shape: &[usize]) -> Vec<usize> {
    shape.to_vec()
}

pub fn memory(bytes: Vec<u8>) -> Cow<'static, [u8]> {
    Cow::Owned(bytes)
}
