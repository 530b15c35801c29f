//! Not written yet.

use crate::error::ErrorKind;
use crate::listing::Listing;
use crate::source::Source;

/// Lists the file.
pub(crate) fn read(_source: &Source) -> Result<Listing, ErrorKind> {
    Err(ErrorKind::Unsupported { what: "apr is not read yet".into(), help: "use another format".into() })
}
