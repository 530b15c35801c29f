//! The `attnscope` binary: parses the command line, runs one command, sets the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    attnscope::cli::main()
}
