//! Work of the library, while Python goes on: other threads run, and Ctrl-C ends it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, available_parallelism, scope};
use std::time::Duration;

use attnscope::{Cancel, Failure};
use pyo3::prelude::*;

use crate::failure::{defect, raised};

/// Formulas and reports nest more deeply than the two megabytes that threads usually have allow for.
const STACK: usize = 8 << 20;

/// How long a signal waits at most before Python is asked what to do about it.
const PATIENCE: Duration = Duration::from_millis(50);

/// Does work on a thread of its own, without the GIL. Where a signal handler raises an exception, the work is cancelled, and the
/// exception raised once it has ended.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Cancel) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let cancel = Cancel::default();
    let (send, mut receive) = channel();
    scope(|scope| {
        let given = &cancel;
        let worker = move || {
            let done = catch_unwind(AssertUnwindSafe(|| work(given)));
            // Whoever asked is waiting below.
            let _ = send.send(done);
        };
        let started = Builder::new().name("attnscope".into()).stack_size(STACK).spawn_scoped(scope, worker);
        if let Err(e) = started {
            let help = "raise the limit on processes (ulimit -u), or end some threads";
            return Err(raised(py, &Failure::new(format!("no thread could be started: {e}"), help)));
        }
        let mut interrupted = None;
        loop {
            let receive: &mut Receiver<_> = &mut receive;
            match py.detach(move || receive.recv_timeout(PATIENCE)) {
                Ok(done) => return interrupted.map_or_else(|| finished(py, done), Err),
                Err(RecvTimeoutError::Disconnected) => return Err(defect(py, "its thread ended")),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(e) = py.check_signals() {
                        cancel.cancel();
                        interrupted.get_or_insert(e);
                    }
                }
            }
        }
    })
}

/// Something short of the library or the renderer, on this thread.
pub(crate) fn at_once<T>(py: Python<'_>, work: impl FnOnce() -> Result<T, Failure>) -> PyResult<T> {
    finished(py, catch_unwind(AssertUnwindSafe(work)))
}

fn finished<T>(py: Python<'_>, done: Result<Result<T, Failure>, Box<dyn Any + Send>>) -> PyResult<T> {
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(raised(py, &failure)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(defect(py, text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")))
        }
    }
}

/// The threads that a call may use where nothing is said. The pool of this process's threads is not there any more in a process
/// that was forked from it: such a process has threads of its own for each call.
pub(crate) fn threads() -> Option<usize> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    let forked = *FIRST.get_or_init(std::process::id) != std::process::id();
    forked.then(|| available_parallelism().map_or(1, usize::from))
}
