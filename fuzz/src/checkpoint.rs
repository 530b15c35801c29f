//! Opens an input as a checkpoint and checks what must hold of whatever opens.

use std::collections::HashSet;

use attnscope_checkpoint::{Checkpoint, TensorInfo};

#[path = "../../crates/attnscope-checkpoint/tests/common/zip.rs"]
mod zip;

/// A view may repeat what is in the file up to this size; see the reader of PyTorch's files.
const LARGEST_VIEW: u64 = 1 << 30;
/// Deflate's best.
const INFLATION: u64 = 1032;
/// What is read of one tensor, and of all: the rest is the same code again.
const SMALL: u64 = 64 << 10;
const READ: u64 = 1 << 20;

/// A file of any format.
pub fn open(bytes: &[u8]) {
    let Ok(checkpoint) = Checkpoint::from_memory("fuzz", vec![("weights", bytes.to_vec().into())]) else {
        return;
    };
    let most = (bytes.len() as u64).saturating_mul(INFLATION).max(LARGEST_VIEW);
    let mut names = HashSet::new();
    for tensor in checkpoint.tensors() {
        assert!(tensor.bytes() <= most, "{tensor:?} from {} bytes", bytes.len());
        assert!(names.insert(tensor.name.as_str()), "{:?} twice", tensor.name);
        assert_eq!(checkpoint.tensor(&tensor.name), Some(tensor));
    }
    for group in checkpoint.shared() {
        assert!(group.len() > 1);
    }
    values(&checkpoint);
}

/// A pickle, as the main one of an archive that has the storages `0` to `31`.
pub fn pickle(bytes: &[u8]) {
    let mut archive = zip::Zip::default().entry("a/data.pkl", bytes);
    for key in 0..32 {
        archive = archive.entry(&format!("a/data/{key}"), &[0x3c; 256]);
    }
    open(&archive.finish());
}

/// An `.apr` file once its two checksums are right.
pub fn apr(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some(header) = bytes.first_chunk_mut::<64>() {
        header[..6].copy_from_slice(b"APR\0\x02\0");
        let mut sum = crc32fast::Hasher::new();
        sum.update(&header[..40]);
        sum.update(&header[44..]);
        header[40..44].copy_from_slice(&sum.finalize().to_le_bytes());
    }
    if let Some((before, footer)) = bytes.split_last_chunk_mut::<4>() {
        *footer = crc32fast::hash(before).to_le_bytes();
    }
    open(&bytes);
}

/// Small tensors have the values they claim, and statistics of as many.
fn values(checkpoint: &Checkpoint) {
    let mut left = READ;
    let mut small = |tensor: &TensorInfo| {
        let taken = left.checked_sub(tensor.bytes()).filter(|_| tensor.bytes() <= SMALL);
        left = taken.unwrap_or(left);
        taken.is_some()
    };
    let mut all_small = true;
    let mut counts = Vec::new();
    for tensor in checkpoint.tensors() {
        if !small(tensor) {
            all_small = false;
            continue;
        }
        // A broken deflate stream opens and cannot be read.
        let Ok(raw) = checkpoint.raw(tensor) else { continue };
        assert_eq!(raw.len() as u64, tensor.bytes(), "{tensor:?}");
        if let Ok(values) = checkpoint.read_f32(tensor) {
            assert_eq!(values.len(), tensor.elements(), "{tensor:?}");
            counts.push((tensor, values.len() as u64));
        }
    }
    if !all_small {
        return;
    }
    let stats = checkpoint.stats();
    assert_eq!(stats.len(), checkpoint.tensors().len());
    let of = |tensor: &TensorInfo| checkpoint.tensors().iter().position(|t| std::ptr::eq(t, tensor));
    for (tensor, count) in counts {
        let stats = of(tensor).and_then(|i| stats[i].as_ref().ok());
        assert_eq!(stats.map(|s| s.count), Some(count), "{tensor:?}");
    }
}
