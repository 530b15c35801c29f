//! Small text files of the user: a file, or standard input.

use std::path::Path;

use attnscope::Failure;

/// The file name that means standard input.
const STANDARD_INPUT: &str = "-";

/// Whether a file is standard input, which can be read once.
pub(crate) fn is_standard_input(file: &Path) -> bool {
    file == Path::new(STANDARD_INPUT)
}

/// The file to open: `-` is standard input.
pub(crate) fn opened_as(file: &Path) -> &Path {
    if is_standard_input(file) { Path::new("/dev/stdin") } else { file }
}

/// Reads a file of at most `most` bytes of UTF-8. `-` is standard input.
pub(crate) fn read_text(file: &Path, most: u64, help: &str) -> Result<String, Failure> {
    attnscope::read_text(&file.display().to_string(), opened_as(file), most, help)
}
