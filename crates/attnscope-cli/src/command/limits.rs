//! What a command may use: threads and memory.

use std::sync::mpsc;
use std::thread::{self, Builder};

use clap::Args;

/// Limits that every command keeps.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Limits {
    /// Threads to work with [default: all cores]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Refuse what would need more memory than this, as 4G or 512M: weights and tensors are counted before they are made,
    /// with what is in use already; small buffers are not [default: what the machine, the container and ulimit leave]
    #[arg(long, global = true, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
}

impl Limits {
    /// Called once, before a command works.
    pub(super) fn set(self) {
        start(self.threads.map(usize::from));
        if let Some(bytes) = self.memory {
            attnscope_checkpoint::allow_memory(bytes);
        }
    }
}

/// `4G`, `1.5GB`, `512MiB`, `1000000`.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 7] = [
        ("k", 1e3),
        ("m", 1e6),
        ("g", 1e9),
        ("t", 1e12),
        ("ki", 1024.0),
        ("mi", 1048576.0),
        ("gi", 1073741824.0),
    ];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let factor = match unit {
        "" => Some(1.0),
        unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor),
    };
    match (number.parse::<f64>(), factor) {
        (Ok(number), Some(factor)) if number * factor >= 1.0 => Ok((number * factor) as u64),
        _ => Err("expected a size, as 4G, 512M or 1000000".into()),
    }
}

/// Starts the pool with so many threads, or with one a core. Where the system does not give that many (a limit on
/// processes), with as many as it gives; with none, everything is done on this thread.
fn start(wanted: Option<usize>) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // A few for each core help where one waits for a disk; a thousand only wait for each other.
    let wanted = wanted.unwrap_or(cores).clamp(1, 4 * cores);
    let builder = rayon::ThreadPoolBuilder::new();
    let builder = match granted(wanted) {
        0 => builder.num_threads(1).use_current_thread(),
        n => builder.num_threads(n),
    };
    // A pool that is there already serves as well.
    let _ = builder.build_global();
}

/// How many of so many threads the system lets us have at once. The pool itself panics where it gets fewer than it was
/// promised.
fn granted(wanted: usize) -> usize {
    let mut waiting = Vec::new();
    for _ in 0..wanted {
        let (go, wait) = mpsc::channel::<()>();
        match Builder::new().spawn(move || matches!(wait.recv(), Ok(()))) {
            Ok(thread) => waiting.push((go, thread)),
            Err(_) => break,
        }
    }
    let granted = waiting.len();
    for (go, thread) in waiting {
        drop(go);
        let _ = thread.join();
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in
            [("4G", 4_000_000_000), ("1.5gb", 1_500_000_000), ("512MiB", 512 << 20), ("7", 7), ("2 k", 2000)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for bad in ["", "G", "-1", "4X", "0", "1..2", "1e9"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
