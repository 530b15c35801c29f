//! Broken recordings: every one is an error with a place and a way on, or is read; none brings the process down.

#![allow(clippy::unwrap_used)] // Helpers of tests, which clippy does not know as such.

mod common;

use std::path::{Path, PathBuf};

use attnscope_run::audio::{features_from_file, samples_from_file};
use common::fixture;
use tempfile::TempDir;

/// A wav by hand, so that it can also be wrong: format 1 is integers, 3 is floats.
fn wav(format: u16, channels: u16, rate: u32, bits: u16, claimed: u32, data: &[u8]) -> Vec<u8> {
    let block = channels.wrapping_mul(bits / 8);
    let mut bytes = b"RIFF".to_vec();
    bytes.extend(claimed.saturating_add(36).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0");
    bytes.extend(format.to_le_bytes());
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend(rate.wrapping_mul(u32::from(block)).to_le_bytes());
    bytes.extend(block.to_le_bytes());
    bytes.extend(bits.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend(claimed.to_le_bytes());
    bytes.extend(data);
    bytes
}

struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join("a.wav");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn says(&self, bytes: &[u8]) -> String {
        let error = samples_from_file(&self.file(bytes)).unwrap_err();
        assert!(!error.remedy().to_string().is_empty());
        error.to_string()
    }
}

#[test]
fn each_defect_is_named() {
    let desk = Desk::new();
    let data = [0; 3200];
    for (bytes, says) in [
        (wav(1, 1, 16_000, 16, 3200, &data[..1600]), "says 0.100 s, but the data end after 0.050 s"),
        (wav(1, 1, 16_000, 16, 0, &[]), "no samples"),
        (wav(1, 1, 0, 16, 3200, &data), "sample rate: expected 1 to 384000 Hz, found 0"),
        (wav(1, 1, 4_000_000_000, 16, 3200, &data), "sample rate"),
        (wav(1, 0, 16_000, 16, 3200, &data), ""),
        (wav(1, 1, 16_000, 0, 3200, &data), ""),
        (wav(2, 1, 16_000, 4, 3200, &data), "adpcm"),
        (
            wav(3, 1, 16_000, 32, 8, &[0, 0, 0, 0, 0, 0, 0xc0, 0x7f]),
            "at 0.000 s: expected a finite sample, found NaN",
        ),
        (b"".to_vec(), ""),
        (b"RIFF".to_vec(), ""),
        (vec![b'x'; 100_000], "not audio that is read here"),
    ] {
        let found = desk.says(&bytes);
        println!("{found}");
        assert!(found.contains(says), "{found}");
    }
    assert!(
        samples_from_file(Path::new("no/such.wav")).unwrap_err().to_string().starts_with("no/such.wav: ")
    );
    assert!(samples_from_file(desk.folder.path()).unwrap_err().to_string().contains("not a regular file"));
}

#[test]
fn what_is_unusual_and_right_is_read() {
    let desk = Desk::new();
    let data = [1; 3200];
    // A pipe's wav does not know its length; three channels; 8 bits; floats beyond 1 are clipped.
    let lengths = [
        (wav(1, 1, 16_000, 16, u32::MAX, &data), 1600),
        (wav(1, 2, 8_000, 16, 3200, &data), 1600),
        (wav(1, 4, 16_000, 24, 3192, &data[..3192]), 266),
        (wav(1, 1, 16_000, 8, 3200, &data), 3200),
        (wav(3, 1, 16_000, 32, 8, &[0, 0, 0x80, 0xc0, 0, 0, 0x80, 0x40]), 2),
    ];
    for (bytes, n) in lengths {
        let samples = samples_from_file(&desk.file(&bytes)).unwrap();
        assert_eq!(samples.len(), n);
        assert!(samples.iter().all(|x| x.abs() <= 1.0));
    }
}

#[test]
fn two_hours_are_the_most() {
    let desk = Desk::new();
    let found = desk.says(&wav(1, 1, 100, 8, 100 * 7201, &[128; 100 * 7201]));
    assert!(found.contains("longer than 2 hours: 7201 s"), "{found}");
    // Only the window is decoded where only the window is asked for.
    let path = desk.file(&wav(1, 1, 100, 8, 100 * 7201, &[128; 100 * 7201]));
    assert_eq!(features_from_file(&path, 80, 3000).unwrap().0.values.len(), 240_000);
}

#[test]
fn a_cut_is_refused_in_every_format() {
    let desk = Desk::new();
    for name in ["tone.wav", "tone.flac", "tone.mp3"] {
        let bytes = std::fs::read(fixture("audio").join(name)).unwrap();
        // An mp3's tag may be off by two frames, which are less than a tenth.
        for part in 1..=36 {
            let cut = &bytes[..bytes.len() * part / 40];
            match samples_from_file(&desk.file(cut)) {
                Err(error) if part == 20 => println!("{name}: {error}; {}", error.remedy()),
                Err(_) => {}
                Ok(samples) => panic!("{name}, {part}/40: {} samples", samples.len()),
            }
        }
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    let change = |name: &str, step: usize| {
        let desk = Desk::new();
        let original = std::fs::read(fixture("audio").join(name)).unwrap();
        let end = if name == "tone.wav" { 64 } else { original.len() };
        let places = (0..64.min(end)).chain((64..end).step_by(step));
        for (at, value) in places.flat_map(|at| [0, 0x7f, 0xff, original[at] ^ 1].map(|v| (at, v))) {
            let mut bytes = original.clone();
            bytes[at] = value;
            if let Err(error) = features_from_file(&desk.file(&bytes), 8, 200) {
                assert!(!error.remedy().to_string().is_empty());
            }
        }
    };
    std::thread::scope(|all| {
        for (name, step) in [("tone.wav", 1), ("tone.flac", 1601), ("tone.mp3", 197)] {
            all.spawn(move || change(name, step));
        }
    });
}
