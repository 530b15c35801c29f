//! The `attnscope` binary: parses the command line, runs one command, sets the exit code.

use std::process::ExitCode;
use std::thread;

/// What the first thread usually has. It gets that by `ulimit -s`, which may be too little to read a command line with.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    match thread::Builder::new().stack_size(STACK).spawn(attnscope::cli::main) {
        Ok(thread) => thread.join().unwrap_or(ExitCode::FAILURE),
        // A limit on processes or addresses: this thread has to do.
        Err(_) => attnscope::cli::main(),
    }
}
