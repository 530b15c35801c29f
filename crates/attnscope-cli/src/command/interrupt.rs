//! Removes unfinished files when the process is asked to end, or runs out of memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Raised by the first signal, where a command wants to end by itself; and what is then said.
static STOP: OnceLock<(Arc<AtomicBool>, &str)> = OnceLock::new();

/// From now on the first signal only raises this flag, and says that: the command ends by itself. The second ends the process.
pub(super) fn stop_first(note: &'static str) -> Arc<AtomicBool> {
    STOP.get_or_init(|| (Arc::default(), note)).0.clone()
}

/// What is said where a command was asked to end by itself just now.
fn asked_to_stop() -> Option<&'static str> {
    STOP.get().filter(|(stop, _)| !stop.swap(true, Ordering::Relaxed)).map(|(_, note)| *note)
}

/// Watches for the signals that end a process. Called once, before anything is begun.
#[cfg(unix)]
pub(super) fn watch() {
    use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGTERM, SIGXCPU, SIGXFSZ};
    use signal_hook::iterator::Signals;

    // A file that grows past its limit is an error of the write, not the end of the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Default::default());
    // Without a watch, unfinished parts stay behind under hidden names; the command still runs.
    let Ok(mut signals) = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGXCPU, SIGABRT]) else { return };
    let watch = move || {
        for signal in signals.forever() {
            if signal != SIGABRT
                && let Some(note) = asked_to_stop()
            {
                say(note);
                continue;
            }
            // Held to the end: nothing is begun or committed any more.
            let _abandoned = attnscope_checkpoint::abandon_all();
            if signal == SIGABRT {
                // The caller has printed the reason: the allocator, or a stack overflow.
                say("error: the program was aborted; the line above, where there is one, says why\n\
                     help: where an allocation failed, free some memory or give the program less to do; anything else is a bug, \
                     please report it\n");
            }
            signal_hook::low_level::exit(if signal == SIGABRT { 2 } else { 128 + signal });
        }
    };
    if std::thread::Builder::new().name("signals".into()).spawn(watch).is_ok() {
        hold_back_abort();
        return;
    }
    // Without a thread to watch on, signals end the process as usual.
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGXCPU] {
        let always = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let _ = signal_hook::flag::register_conditional_default(signal, always);
    }
}

/// Elsewhere parts stay behind, under their hidden names.
#[cfg(not(unix))]
pub(super) fn watch() {}

/// An allocation that fails ends in `abort`. The thread that called it waits here until the watch above, whose turn
/// comes first, has cleaned up and ended the process.
#[cfg(unix)]
#[allow(unsafe_code)]
fn hold_back_abort() {
    let wait = || {
        // Long enough for the largest folder; then the process ends as it would have.
        std::thread::sleep(std::time::Duration::from_secs(10));
    };
    // SAFETY: a handler may do only what is safe in a signal. Sleeping is, and nothing else is done.
    let _ = unsafe { signal_hook::low_level::register(signal_hook::consts::SIGABRT, wait) };
}

#[cfg(unix)]
fn say(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(text.as_bytes());
}
