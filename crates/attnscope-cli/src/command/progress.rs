//! A progress line on standard error, only on a terminal. The crate indicatif was considered: it does more than one plain line
//! needs, and brings three crates for these forty lines.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Cells of the bar.
const CELLS: usize = 30;
/// How often the line is redrawn.
const PAUSE: Duration = Duration::from_millis(80);

/// The line.
pub(super) struct Bar {
    what: &'static str,
    /// When it was last written; absent where it is not to be.
    written: Option<Mutex<Option<Instant>>>,
}

impl Bar {
    /// A bar, silent where standard error is no terminal.
    pub(super) fn new(wanted: bool, what: &'static str) -> Self {
        let visible = wanted && std::io::stderr().is_terminal();
        Self { what, written: visible.then(Mutex::default) }
    }

    /// Called from any thread, as often as it likes.
    pub(super) fn show(&self, done: usize, total: usize) {
        let Some(Ok(mut last)) = self.written.as_ref().map(Mutex::lock) else { return };
        if last.is_some_and(|at| at.elapsed() < PAUSE) && done < total {
            return;
        }
        *last = Some(Instant::now());
        let _ = write!(std::io::stderr(), "\r{} {}", self.what, drawn(done, total, CELLS));
    }
}

/// `[####....]  50 %`, with so many cells.
pub(super) fn drawn(done: usize, total: usize, cells: usize) -> String {
    let full = (cells * done / total.max(1)).min(cells);
    format!("[{}{}] {:3} %", "#".repeat(full), ".".repeat(cells - full), 100 * done / total.max(1))
}

impl Drop for Bar {
    /// Clears the line, also after an error.
    fn drop(&mut self) {
        if self.written.as_ref().is_some_and(|last| last.lock().is_ok_and(|last| last.is_some())) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
