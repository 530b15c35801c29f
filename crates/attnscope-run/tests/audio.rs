//! Whisper's front end against OpenAI's own features, across formats and rates, and on features from elsewhere.

#![allow(clippy::unwrap_used)] // Helpers of tests, which clippy does not know as such.

mod common;

use std::path::Path;
use std::time::Instant;

use attnscope_checkpoint::Checkpoint;
use attnscope_run::audio::{
    features_from_array, features_from_file, log_mel, mel_filters, samples_from_file,
};
use common::{fixture, shared};

fn tensor(file: &Path, name: &str) -> Vec<f32> {
    let file = Checkpoint::open(file).unwrap();
    file.read_f32(file.tensor(name).unwrap()).unwrap()
}

/// The largest difference from the frames that OpenAI's package gave.
fn off_reference(recording: &Path, reference: &Path, mels: usize) -> f32 {
    let (ours, _) = features_from_file(recording, mels, 3000).unwrap();
    let frames = tensor(reference, "frames");
    let theirs = tensor(reference, &format!("mel_{mels}"));
    let mut off = 0.0f32;
    for (band, row) in theirs.chunks_exact(frames.len()).enumerate() {
        for (frame, value) in frames.iter().zip(row) {
            off = off.max((ours.values[band * 3000 + *frame as usize] - value).abs());
        }
    }
    off
}

/// Mean and largest difference of the features of two recordings.
fn apart(a: &Path, b: &Path) -> (f32, f32) {
    let [a, b] = [a, b].map(|file| features_from_file(file, 80, 3000).unwrap().0);
    let off = a.values.iter().zip(&b.values).map(|(x, y)| (x - y).abs());
    (off.clone().sum::<f32>() / a.values.len() as f32, off.fold(0.0, f32::max))
}

#[test]
fn features_are_openais() {
    for mels in [80, 128] {
        let off = off_reference(&fixture("audio/tone.wav"), &fixture("audio/reference.safetensors"), mels);
        println!("tone, {mels} bands: off by {off:e}");
        assert!(off < 1e-4);
        if let Some(speech) = shared("data/audio/jfk.wav") {
            let off = off_reference(&speech, &fixture("audio/jfk.safetensors"), mels);
            println!("speech, {mels} bands: off by {off:e}");
            assert!(off < 1e-4);
        }
    }
}

#[test]
fn filters_are_librosas() {
    let Some(file) = shared("data/audio/mel_filters.npz") else { return };
    for mels in [80, 128] {
        let (ours, theirs) = (mel_filters(mels), tensor(&file, &format!("mel_{mels}")));
        assert_eq!(ours.len(), theirs.len());
        let off = ours.iter().zip(&theirs).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        println!("{mels} bands: off by {off:e}");
        assert!(off < 1e-6);
    }
}

#[test]
fn one_sound_in_three_formats_is_one_sound() {
    let wav = fixture("audio/tone.wav");
    let sound = samples_from_file(&wav).unwrap();
    assert_eq!(sound.len(), 24_000);
    assert_eq!(log_mel(&sound, 80, 3000), features_from_file(&wav, 80, 3000).unwrap().0.values);
    // Longer than the window, and known to be.
    for name in ["audio/tone.wav", "audio/tone.flac", "audio/tone.mp3"] {
        let (features, seconds) = features_from_file(&fixture(name), 80, 60).unwrap();
        assert_eq!(features.frames, 60);
        assert!((seconds - 1.5).abs() < 1e-3, "{name}: {seconds}");
    }
    // Rounding to 16 bits; what 64 kbit/s leave out.
    for (name, most) in [("audio/tone.flac", 1e-4), ("audio/tone.mp3", 2e-2)] {
        let other = samples_from_file(&fixture(name)).unwrap();
        assert_eq!(other.len(), sound.len(), "{name}");
        // Later, in place and earlier by a sample: a delay that was not cut off would show here.
        let [late, off, early] = [(0, 1), (0, 0), (1, 0)].map(|(a, b)| distance(&sound[a..], &other[b..]));
        println!("{name}: off by {off:e} (root mean square), shifted by one sample {late:e} and {early:e}");
        assert!(off < most && off < late && off < early, "{name}: {off}");
    }
}

#[test]
fn an_mp3_may_begin_with_a_tag() {
    let plain = fixture("audio/tone.mp3");
    // ID3v2.4 with 300 bytes of padding; lengths have 7 bits a byte.
    let mut bytes = b"ID3\x04\0\0\0\0\x02\x2c".to_vec();
    bytes.resize(10 + 300, 0);
    bytes.extend(std::fs::read(&plain).unwrap());
    let tagged = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tagged.path(), bytes).unwrap();
    assert_eq!(samples_from_file(tagged.path()).unwrap(), samples_from_file(&plain).unwrap());
}

/// Root mean square of the difference, over the common length.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let squares: f32 = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum();
    (squares / a.len().min(b.len()) as f32).sqrt()
}

#[test]
fn speech_resampled_is_the_speech() {
    let (Some(wav), Some(flac)) = (shared("data/audio/jfk.wav"), shared("data/audio/jfk.flac")) else {
        return;
    };
    let (mean, most) = apart(&wav, &flac);
    println!("44.1 kHz stereo against 16 kHz mono: mean {mean:e}, most {most:e}");
    assert!(mean < 1e-3 && most < 0.2);
}

#[test]
fn half_a_minute_is_quick() {
    let noise: Vec<f32> =
        (0..480_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1.7e7 - 0.5).collect();
    let start = Instant::now();
    let out = log_mel(&noise, 80, 3000);
    println!("30 s of noise: {:?}", start.elapsed());
    assert_eq!(out.len(), 240_000);
}

#[test]
fn arrays_of_every_kind_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let values: Vec<f32> = (0..12).map(|i| i as f32 / 4.0).collect();
    let f16: Vec<u8> = values.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
    let f32s: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let f64s: Vec<u8> = values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
    for (version, descr, shape, data, batch) in
        [(1, "<f4", "(2, 3, 2)", &f32s, 2), (2, "<f8", "(1, 4, 3)", &f64s, 1), (3, "<f2", "(4, 3)", &f16, 1)]
    {
        std::fs::write(&path, npy(version, descr, "False", shape, data)).unwrap();
        let (mels, frames) = if batch == 2 { (3, 2) } else { (4, 3) };
        let features = features_from_array(&path, mels, frames).unwrap();
        assert_eq!((features.batch, features.mels, features.frames), (batch, mels, frames));
        assert_eq!(features.values, values);
    }
    // One tensor among many, known by its name.
    let features = features_from_array(&fixture("whisper/trace.safetensors"), 10, 60).unwrap();
    assert_eq!((features.batch, features.values.len()), (2, 1200));
    let error = features_from_array(&fixture("audio/reference.safetensors"), 10, 60).unwrap_err();
    assert!(error.to_string().contains("one named input_features or audio.mel, found 3 tensors"), "{error}");
}

#[test]
fn wrong_arrays_are_told_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let data = [0; 48];
    for (bytes, says) in [
        (
            npy(1, "<f4", "False", "(80, 2999)", &data),
            "shape [80, 2999] does not fit the model, which reads [batch, 4, 3]",
        ),
        (npy(1, "<f4", "False", "(4, 3)", &data[..40]), "data: expected 48 bytes for shape [4, 3], found 40"),
        (npy(1, "<f4", "False", "(99999999999, 4, 3)", &data), "data: expected"),
        (npy(1, "<f4", "False", "(18446744073709551615, 4, 3)", &data), "more than any file has"),
        (npy(1, "<f4", "False", "(0, 4, 3)", &data), "shape [0, 4, 3]"),
        (npy(1, ">f4", "False", "(4, 3)", &data), "descr: expected '<f2', '<f4' or '<f8', found '>f4'"),
        (npy(1, "<f4", "True", "(4, 3)", &data), "fortran_order: expected False"),
        (npy(9, "<f4", "False", "(4, 3)", &data), "NumPy version: expected 1 to 3, found 9"),
        (b"\x93NUMPY\x02\0\xff\xff\xff\xff".to_vec(), "header length"),
        (b"\x93NUMPY\x01".to_vec(), "fill whole buffer"),
        (b"".to_vec(), "empty"),
        (b"hello".to_vec(), "not a checkpoint"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = features_from_array(&path, 4, 3).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(!error.remedy().to_string().is_empty());
    }
}

fn npy(version: u8, descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    match version {
        2 | 3 => bytes.extend((header.len() as u32).to_le_bytes()),
        _ => bytes.extend((header.len() as u16).to_le_bytes()),
    }
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}
