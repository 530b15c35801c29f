use super::*;
use crate::read::hostile;
use crate::values;

/// Fields that a test may change; both checksums are computed again afterwards.
struct Made {
    header: Vec<u8>,
    metadata: Vec<u8>,
    index: Vec<u8>,
    data: Vec<u8>,
    footer: bool,
}

fn line(name: &str, dtype: u8, dims: &[u64], offset: u64, size: u64) -> Vec<u8> {
    let mut line = (name.len() as u16).to_le_bytes().to_vec();
    line.extend(name.as_bytes());
    line.extend([dtype, dims.len() as u8]);
    dims.iter().for_each(|d| line.extend(d.to_le_bytes()));
    line.extend(offset.to_le_bytes());
    line.extend(size.to_le_bytes());
    line
}

/// A file with 256 bytes of data and these lines in its index.
fn made(lines: &[Vec<u8>]) -> Made {
    let metadata = br#"{"hidden_size": 4, "name": "fixture"}"#.to_vec();
    let index = lines.concat();
    let index_at = 64 + 64u64;
    let data_at = index_at + (index.len() as u64).next_multiple_of(64);
    let mut header = b"APR\0\x02\x00\x00\x04".to_vec();
    header.extend((lines.len() as u32).to_le_bytes());
    header.extend(64u64.to_le_bytes());
    header.extend((metadata.len() as u32).to_le_bytes());
    header.extend(index_at.to_le_bytes());
    header.extend(data_at.to_le_bytes());
    header.resize(64, 0);
    Made { header, metadata, index, data: (0..=255).collect(), footer: true }
}

impl Made {
    fn bytes(&self) -> Vec<u8> {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&self.header[..40]);
        sum.update(&self.header[44..]);
        let mut file = self.header.clone();
        file[40..44].copy_from_slice(&sum.finalize().to_le_bytes());
        for section in [&self.metadata, &self.index, &self.data] {
            file.extend(section);
            file.resize(file.len().next_multiple_of(64), 0);
        }
        if self.footer {
            file.extend(crc32fast::hash(&file).to_le_bytes());
        }
        file
    }

    fn error(&self) -> String {
        hostile::open(read, &self.bytes()).unwrap_err().to_string()
    }
}

fn good() -> Made {
    made(&[
        line("a", 0, &[2, 4], 64, 32),
        line("b", 129, &[10], 0, 14),
        line("c", 128, &[33], 128, 36),
        line("d", 5, &[0], 0, 0),
        line("e", 1, &[], 254, 2),
    ])
}

#[test]
fn reads_what_is_there() {
    let bytes = good().bytes();
    let listing = hostile::open(read, &bytes).unwrap();
    assert_eq!(listing.tensors[0].shape, [2, 4]);
    assert_eq!(listing.configs[0].facts["hidden_size"], 4);
    let states: Vec<_> = listing.checks.iter().map(|c| c.state).collect();
    assert_eq!(states, [CheckState::Verified, CheckState::Verified]);
    let source = Source::memory("good.apr", bytes);
    let q8 = values::to_f32(&source, &listing.tensors[1]).unwrap();
    let scale = f32::from_le_bytes([0, 1, 2, 3]);
    assert_eq!(q8, (4..14).map(|q| q as f32 * scale).collect::<Vec<_>>());
    let q4 = values::to_f32(&source, &listing.tensors[2]).unwrap();
    let d = half::f16::from_le_bytes([128, 129]).to_f32();
    assert_eq!(q4.len(), 33);
    assert_eq!(q4[..4], [-6.0 * d, 0.0 * d, -5.0 * d, 0.0 * d]); // 0x82, 0x83: low nibble first
}

#[test]
fn a_file_without_footer_says_so() {
    let listing = hostile::open(read, &Made { footer: false, ..good() }.bytes()).unwrap();
    assert_eq!(listing.checks[1].state, CheckState::Absent);
}

#[test]
fn every_flipped_byte_is_an_error() {
    let bytes = good().bytes();
    for at in 0..bytes.len() {
        for bit in [1, 0x80, 0xff] {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            assert!(hostile::open(read, &flipped).is_err(), "byte {at} ^ {bit:#x}");
        }
    }
}

#[test]
fn cuts() {
    let bytes = good().bytes();
    let without_footer = bytes.len() - 4;
    hostile::cuts(read, &bytes, without_footer);
    // Cut to the byte where the footer begins it is a file that never had one, and is reported as such.
    for length in without_footer + 1..bytes.len() {
        assert!(hostile::open(read, &bytes[..length]).is_err());
    }
    assert!(hostile::open(read, &[bytes, vec![0]].concat()).is_err());
}

#[test]
fn mutants_with_right_sums() {
    fn mend(bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let body = bytes.len().saturating_sub(4);
        if body >= 64 {
            let sum = crc32fast::hash(&[&bytes[..40], &bytes[44..64]].concat());
            bytes[40..44].copy_from_slice(&sum.to_le_bytes());
            let sum = crc32fast::hash(&bytes[..body]);
            bytes[body..].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }
    // Otherwise every mutant would fail at a checksum.
    fn read_mended(source: &Source) -> Result<Listing, ErrorKind> {
        read(&Source::memory("mended", mend(&source.start(u64::MAX).unwrap())))
    }
    hostile::mutants(read_mended, &good().bytes(), good().bytes().len() - 256);
    hostile::mutants(read, &good().bytes(), 1000);
}

#[test]
fn flags_are_refused_by_name() {
    for (bit, name) in REFUSED_FLAGS.into_iter().chain([(0x1000, "0x1000")]) {
        let mut made = good();
        made.header[6..8].copy_from_slice(&(bit | ROW_MAJOR).to_le_bytes());
        assert!(made.error().contains(name), "{}", made.error());
    }
    assert!(hostile::open(read, b"APRN0000").unwrap_err().to_string().contains("version 1"));
    let mut made = good();
    made.header[4] = 3;
    assert!(made.error().contains("3.0"));
}

#[test]
fn headers_that_cannot_be() {
    let max = u64::MAX;
    for (at, value) in
        [(12, max), (12, 0), (24, max), (24, 64), (24, 129), (32, max), (32, 64), (32, 1 << 40)]
    {
        let mut made = good();
        made.header[at..at + 8].copy_from_slice(&value.to_le_bytes());
        made.error();
    }
    for (at, value) in [(8, u32::MAX), (8, 6), (8, 1), (20, u32::MAX), (20, 65)] {
        let mut made = good();
        made.header[at..at + 4].copy_from_slice(&value.to_le_bytes());
        made.error();
    }
    let mut made = good();
    made.metadata = b"[1]".to_vec();
    made.metadata.resize(37, b' ');
    assert!(made.error().contains("JSON"), "{}", made.error());
}

#[test]
fn lines_that_cannot_be() {
    let max = u64::MAX;
    for (lines, says) in [
        (vec![line("a", 0, &[1], 0, 4), line("a", 0, &[1], 64, 4)], "twice"),
        (vec![line("b", 0, &[1], 0, 4), line("a", 0, &[1], 64, 4)], "names after"),
        (vec![line("a", 0, &[4], 0, 16), line("b", 0, &[1], 12, 4)], "inside tensor"),
        (vec![line("a", 2, &[1], 0, 4)], "a dtype"),
        (vec![line("a", 0, &[1; 9], 0, 4)], "at most 8"),
        (vec![line("a", 0, &[2], 0, 4)], "expected 8 bytes"),
        (vec![line("a", 12, &[2], 0, 4)], "whole blocks"),
        (vec![line("a", 0, &[1 << 40, 1 << 40], 0, 4)], "counted"),
        (vec![line("a", 0, &[max], 0, max)], "bytes"),
        (vec![line("a", 0, &[1], 256, 4)], "padding after the last tensor"),
        (vec![line("a", 0, &[1], max, 4)], "needs 4 bytes"),
        (vec![line(&"n".repeat(257), 0, &[1], 0, 4)], "257"),
        (vec![line("a", 0, &[64], 0, 256), vec![0; 64]], "bytes"),
    ] {
        let error = made(&lines).error();
        assert!(error.contains(says), "{says}: {error}");
    }
}
