//! What is half made goes when the user interrupts.

use std::path::Path;

/// Removes a folder that has not got its name yet, if the program is asked to end before it has.
#[cfg(unix)]
pub(super) fn remove_on_interrupt(folder: &Path) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    // Without a handler the folder stays behind, under its hidden name: no reason not to run.
    let Ok(mut signals) = Signals::new([SIGHUP, SIGINT, SIGTERM]) else { return };
    let folder = folder.to_owned();
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let _ = std::fs::remove_dir_all(&folder);
            std::process::exit(128 + signal);
        }
    });
}

/// Elsewhere the folder stays behind, under its hidden name.
#[cfg(not(unix))]
pub(super) fn remove_on_interrupt(_: &Path) {}
