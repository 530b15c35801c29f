//! Small text files of the user: read whole, up to a limit.

use std::io::{ErrorKind, Read};
use std::path::Path;

use attnscope_checkpoint::{limit_help, open_input};

use crate::failure::Failure;

/// The help where the system refuses to read; the expected contents would not help then.
fn how_to_read(e: &std::io::Error) -> Option<&'static str> {
    match e.kind() {
        ErrorKind::NotFound => Some("check the path: it does not exist"),
        ErrorKind::PermissionDenied => {
            Some("you may not read it: check the permissions of the file and of the folders above it")
        }
        ErrorKind::IsADirectory => Some("give a file, not a folder"),
        _ => limit_help(e),
    }
}

/// Reads a file, or what comes out of a pipe, of at most `most` bytes of UTF-8. Pipes and devices do not say how much
/// there is, so the limit is on what is read. `name` is what errors call it, `help` what it should hold.
///
/// # Errors
/// When it cannot be read, is longer, or is no UTF-8.
pub fn read_text(name: &str, file: &Path, most: u64, help: &str) -> Result<String, Failure> {
    let refused = |why: String| Failure::new(format!("{name}: {why}"), help);
    let mut bytes = Vec::new();
    open_input(file)
        .and_then(|f| f.take(most.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(|e| Failure::new(format!("{name}: {e}"), how_to_read(&e).unwrap_or(help)))?;
    if bytes.len() as u64 > most {
        return Err(refused(format!("expected at most {most} bytes, found more")));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        refused(format!("expected UTF-8, found other bytes at byte {}", e.utf8_error().valid_up_to() + 1))
    })?;
    // A byte order mark is not part of the text.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
