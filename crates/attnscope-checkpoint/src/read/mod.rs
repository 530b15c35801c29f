//! One reader a format. Each is a function `read(&Source) -> Result<Listing, ErrorKind>`.

pub(crate) mod apr;
pub(crate) mod fields;
pub(crate) mod ggml;
pub(crate) mod ggml_types;
pub(crate) mod gguf;

#[cfg(test)]
pub(crate) mod hostile;
