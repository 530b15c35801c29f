//! `attnscope._core`: the library in Python. A function here takes Python's arguments, calls the library, and gives its answer a
//! Python face; nothing is computed or worded that the library or the renderer could.

mod answer;
mod arrow;
mod ask;
mod audit;
mod failure;
mod given;
mod held;
mod model;
mod one_of;
mod remedies;
mod rows;
mod trace;
mod work;

use pyo3::prelude::*;

/// What the package is made of; its users import `attnscope`.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::answer::Answer;
    #[pymodule_export]
    use crate::arrow::{audit_stream, audited_schema_stream, with_swaps_stream};
    #[pymodule_export]
    use crate::ask::{check, command, topics, train};
    #[pymodule_export]
    use crate::audit::{audit, compare_audits, merge_audits, read_audit};
    #[pymodule_export]
    use crate::held::{diff_runs, open_held};
    #[pymodule_export]
    use crate::model::{Model, open};
    #[pymodule_export]
    use crate::rows::Table;
    #[pymodule_export]
    use crate::trace::{Tensor, Trace};
}
