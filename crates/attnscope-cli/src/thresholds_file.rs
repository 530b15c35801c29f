//! A user's own thresholds, from TOML.

use std::path::Path;

use attnscope_diagnose::Thresholds;

use crate::text_file::read_text;
use attnscope::Failure;

/// More than any file of thresholds.
const MOST_BYTES: u64 = 1 << 20;
const HELP: &str = "write keys and numbers such as `wiring_gain = 0.02`; docs/rules.md lists the keys";

/// Reads thresholds; errors say in which line and column.
pub(crate) fn read_thresholds(file: &Path) -> Result<Thresholds, Failure> {
    let text = read_text(file, MOST_BYTES, HELP)?;
    Thresholds::parse(&text).map_err(|e| {
        let space = if e.place.is_some() { "" } else { " " };
        Failure::new(format!("{}:{space}{e}", file.display()), HELP)
    })
}
