//! What every reader must withstand.

use proptest::prelude::*;

use crate::error::ErrorKind;
use crate::listing::Listing;
use crate::source::Source;
use crate::{stats, values};

pub(crate) type Reader = fn(&Source) -> Result<Listing, ErrorKind>;

/// Opens `bytes`; whatever opens must be inside the file and readable without a panic.
pub(crate) fn open(read: Reader, bytes: &[u8]) -> Result<Listing, ErrorKind> {
    let source = Source::memory("mutant", bytes.to_vec());
    let listing = read(&source)?;
    for info in &listing.tensors {
        assert!(info.place.range.start <= info.place.range.end, "{info:?}");
        assert!(info.place.range.end <= bytes.len() as u64, "{info:?}");
        assert_eq!(info.place.range.end - info.place.range.start, info.bytes(), "{info:?}");
        let values = values::to_f32(&source, info);
        let stats = stats::of(&source, info);
        if let Ok(values) = values {
            assert_eq!(stats.unwrap().count, values.len() as u64);
        }
    }
    Ok(listing)
}

/// A file cut before `needed` bytes must not open, wherever it is cut.
pub(crate) fn cuts(read: Reader, bytes: &[u8], needed: usize) {
    for length in 0..needed {
        assert!(open(read, &bytes[..length]).is_err(), "cut to {length} of {needed} bytes");
    }
    for length in needed..bytes.len() {
        let _ = open(read, &bytes[..length]);
    }
}

/// Flipped bytes and replaced numbers give an error or a file, never a panic.
pub(crate) fn mutants(read: Reader, bytes: &[u8], header: usize) {
    let header = header.min(bytes.len());
    let numbers = prop_oneof![
        any::<u64>(),
        Just(u64::MAX),
        Just(u64::MAX / 2),
        Just(1 << 32),
        Just(0x7fff_ffff),
        0u64..300
    ];
    let edits = prop::collection::vec((0..header, numbers, 1usize..9), 1..5);
    proptest!(ProptestConfig::with_cases(2000), |(edits in edits, cut in 0..=bytes.len())| {
        let mut mutant = bytes.to_vec();
        for (at, number, width) in edits {
            for (to, from) in mutant.iter_mut().skip(at).zip(&number.to_le_bytes()[..width]) {
                *to = *from;
            }
        }
        let _ = open(read, &mutant);
        mutant.truncate(cut);
        let _ = open(read, &mutant);
    });
}
