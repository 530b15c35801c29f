//! The model as a user of the library has it.

use std::sync::Arc;

use crate::answer::{Inspection, Summary};
use crate::failure::Failure;
use crate::inspect::{Detail, inspect};
use crate::open::Opened;
use crate::summary::{Lengths, summarise};

/// A model that is open. It owns what it needs, can be sent to other threads and shared between them, and is cheap to clone.
///
/// ```
/// let model = attnscope::open("demo")?;
/// let summary = model.summary(&attnscope::Lengths::default())?;
/// assert_eq!(summary.totals.parameters, 1_174_528);
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Debug, Clone)]
pub struct Model {
    opened: Arc<Opened>,
}

/// Opens a file, a folder or a built-in: `demo` or `toy`.
///
/// # Errors
/// Where there is no checkpoint, or one that cannot be read or believed.
pub fn open(name: &str) -> Result<Model, Failure> {
    Ok(Opened::open(name, None)?.into())
}

impl From<Opened> for Model {
    fn from(opened: Opened) -> Self {
        Self { opened: Arc::new(opened) }
    }
}

impl Model {
    /// The checkpoint, and what it was recognised as.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// What the checkpoint is: format, family, every fact and who says so, what is missing.
    ///
    /// ```
    /// use attnscope::Detail;
    ///
    /// let inspection = attnscope::open("demo")?.inspect(Detail::Headers)?;
    /// assert_eq!(inspection.format, "safetensors");
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// With [`Detail::Values`], where a value cannot be read or a checksum is wrong.
    pub fn inspect(&self, detail: Detail) -> Result<Inspection, Failure> {
        inspect(&self.opened, detail)
    }

    /// The layers with their shapes, parameters and costs on an input of these sizes.
    ///
    /// # Errors
    /// Where there is no model to sum up, its head count is not known, or a number does not fit in 64 bits.
    pub fn summary(&self, lengths: &Lengths) -> Result<Summary, Failure> {
        summarise(&self.opened, lengths)
    }
}
