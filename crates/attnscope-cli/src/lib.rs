//! The command line of attnscope, for the binary and for the Python package, which installs it, too.

mod command;
mod text_file;
mod thresholds_file;

pub use command::main;
