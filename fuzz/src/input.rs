//! What a model is given to read: tokenizers' files, recordings and features.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::LazyLock;

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::Side;
use attnscope_run::Tokenizer;
use attnscope_run::audio::{features_from_array, features_from_file};

use crate::files;

/// Other people's crates may panic and are held: only what gets past that is a fault. libFuzzer's own hook would end
/// the process at once.
pub fn quiet() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// One tensor, so that there is a model for the tokenizer to be beside.
const WEIGHTS: &[u8] =
    b"\x38\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  \0\0\0\0";

/// A tokenizer's file, of the kind that its first byte looks like; whatever is read is used.
pub fn tokenizer(bytes: &[u8]) {
    let name = match bytes.first() {
        Some(b'{') => "tokenizer.json",
        Some(b'\n') => ["spiece.model", "tokenizer.model", "sentencepiece.bpe.model"][bytes.len() % 3],
        _ => "ranks.tiktoken",
    };
    let files = vec![("model.safetensors", Cow::Borrowed(WEIGHTS)), (name, Cow::Owned(bytes.to_vec()))];
    let Ok(checkpoint) = Checkpoint::from_memory("fuzz", files) else { unreachable!("the weights are fine") };
    let Ok(Some(tokenizer)) = Tokenizer::from_companions(checkpoint.tokenizer()) else { return };
    for text in ["", " a man", "é🦀 ½ \u{0} x", "<|en|> aaaa"] {
        if let Ok(ids) = tokenizer.encode_source(text) {
            tokenizer.decode(&ids, false);
            ids.iter().for_each(|&id| drop(tokenizer.piece(Side::Target, id)));
        }
        drop(tokenizer.encode_target(text));
    }
    tokenizer.decode(&[0, 7, u32::MAX], true);
}

static FILE: LazyLock<PathBuf> = LazyLock::new(|| files::folder("input", &[]).join("input"));

/// A recording: its first fifth of a second.
pub fn audio(bytes: &[u8]) {
    files::write(&FILE, bytes);
    if let Ok((features, seconds)) = features_from_file(&FILE, 8, 20) {
        assert!(seconds.is_finite());
        assert_eq!(features.values.len(), 8 * 20);
        assert!(features.values.iter().all(|x| x.is_finite()));
    }
}

/// Features of a model with 3 bands and 4 frames.
pub fn features(bytes: &[u8]) {
    files::write(&FILE, bytes);
    if let Ok(features) = features_from_array(&FILE, 3, 4) {
        assert_eq!((features.mels, features.frames), (3, 4));
        assert_eq!(features.values.len(), features.batch * 3 * 4);
    }
}
