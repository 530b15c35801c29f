//! Small text files that a user gives: a map of names, thresholds, pairs. Each input is read as all of them.

use std::path::Path;
use std::sync::LazyLock;

use attnscope_diagnose::Thresholds;
use attnscope_diagnose::diff::{NameMap, Options, Side, compare};
use attnscope_run::{parse_ids, parse_pairs};

use crate::files;

/// Two dumps whose names a map can join.
static SIDES: LazyLock<[Side; 2]> = LazyLock::new(|| {
    let tensors: [&[(&str, &[usize])]; 2] = [
        &[("encoder.0.out", &[1, 2, 3]), ("encoder.1.out", &[1, 2, 3]), ("logits", &[1, 2, 5])],
        &[("block_1", &[1, 2, 3]), ("block_2", &[1, 2, 3]), ("it's \"odd\" = é", &[1, 2, 5])],
    ];
    tensors.map(|tensors| {
        let folder = files::folder(tensors[0].0, &[("dump.safetensors", &files::safetensors(tensors))]);
        match Side::open(&folder) {
            Ok(side) => side,
            Err(e) => unreachable!("{e}"),
        }
    })
});

/// Every reader of such a file, and the comparison that a map is for.
pub fn read(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let file = Path::new("given");
    if let Ok(pairs) = parse_pairs(file, bytes) {
        assert!(!pairs.is_empty());
        assert!(pairs.iter().all(|pair| !pair.source.contains('\t') && !pair.target.contains('\n')));
    }
    if let Ok(thresholds) = Thresholds::parse(&text) {
        assert_eq!(thresholds.unusable(), None);
    }
    if let Ok(rows) = parse_ids(&text) {
        assert!(rows.iter().all(|row| !row.is_empty()));
    }
    if let Ok(map) = NameMap::parse(file, &text) {
        let [a, b] = &*SIDES;
        drop(compare(a, b, None, &Options { map, ..Options::default() }));
    }
}
