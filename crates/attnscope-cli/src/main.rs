//! The `attnscope` binary: parses the command line, runs one command, sets the exit code.

mod attention;
mod command;
mod explain;
mod near;
mod text_file;
mod thresholds_file;

use std::process::ExitCode;
use std::thread;

/// What the first thread usually has. It gets that by `ulimit -s`, which may be too little to read a command line with.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    match thread::Builder::new().stack_size(STACK).spawn(command::main) {
        Ok(thread) => thread.join().unwrap_or(ExitCode::FAILURE),
        // A limit on processes or addresses: this thread has to do.
        Err(_) => command::main(),
    }
}
