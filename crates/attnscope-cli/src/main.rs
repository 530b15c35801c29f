//! The `attnscope` binary: parses the command line, runs one command, sets the exit code.

mod allocator;

use std::process::ExitCode;
use std::thread;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// The usual stack of the main thread. Its own, by `ulimit -s`, may be too small even to read a command line.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    let main = || attnscope_cli::main(std::env::args_os());
    match thread::Builder::new().stack_size(STACK).spawn(main) {
        // A defect is neither a finding nor a difference, so the exit code is not 1.
        Ok(thread) => thread.join().unwrap_or_else(|_| {
            eprintln!("error: attnscope ended in the middle of its work");
            eprintln!("help: this is a defect of attnscope: please report what it was run on");
            ExitCode::from(2)
        }),
        // No thread could be started (a limit on processes or addresses): use this one.
        Err(_) => main(),
    }
}
