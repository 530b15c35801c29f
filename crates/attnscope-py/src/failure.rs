//! The library's errors as Python's exceptions.

use attnscope::{Failure, FailureKind};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::remedies::{argument_words, words};

/// The exception for a failure: `attnscope.Error` or one of its kinds, with what to do next.
pub(crate) fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    let name = match failure.kind {
        FailureKind::Memory => "OutOfMemory",
        // Nothing but a signal cancels a call.
        FailureKind::Cancelled => return PyKeyboardInterrupt::new_err(()),
        _ => "Error",
    };
    let place = failure.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
    let argument = failure.argument.as_ref().map(|argument| argument_words(argument) + " ");
    let said = format!("{place}{}{}", argument.unwrap_or_default(), failure.error);
    exception(py, name, &said, &words(&failure.remedy), failure.place.as_deref())
}

/// The exception for a panic: a defect of attnscope, not of what it was given.
pub(crate) fn defect(py: Python<'_>, what: &str) -> PyErr {
    let remedy = "this is a defect of attnscope: please report what it was run on";
    exception(py, "Defect", &format!("attnscope ended in the middle of its work: {what}"), remedy, None)
}

fn exception(py: Python<'_>, name: &str, error: &str, remedy: &str, place: Option<&str>) -> PyErr {
    let made = || {
        let named = PyDict::new(py);
        named.set_item("place", place)?;
        py.import("attnscope._errors")?.getattr(name)?.call((error, remedy), Some(&named))
    };
    match made() {
        Ok(exception) => PyErr::from_value(exception),
        // Where the package is not whole, its words are still there.
        Err(_) => PyRuntimeError::new_err(format!("{error}; {remedy}")),
    }
}
