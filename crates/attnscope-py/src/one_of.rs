//! Arguments that may be of several types. What is none of them is an error that says, in Python's words, what was expected.

/// An enum with one variant for each type, tried in their order, and what they are together.
macro_rules! one_of {
    (
        $(#[$attribute:meta])*
        pub(crate) enum $name:ident $(<$lifetime:lifetime>)? { $($variant:ident($kind:ty)),+ $(,)? }
        $expected:literal
    ) => {
        $(#[$attribute])*
        pub(crate) enum $name $(<$lifetime>)? { $($variant($kind)),+ }

        impl<'a, 'py> pyo3::FromPyObject<'a, 'py> for $name $(<$lifetime>)? {
            type Error = pyo3::PyErr;

            fn extract(given: pyo3::Borrowed<'a, 'py, pyo3::PyAny>) -> pyo3::PyResult<Self> {
                use pyo3::types::{PyAnyMethods, PyTypeMethods};
                $(if let Ok(value) = given.extract::<$kind>() {
                    return Ok(Self::$variant(value));
                })+
                let found = given.get_type();
                let error = format!(concat!("expected ", $expected, ", found {}"), found.name()?);
                Err(pyo3::exceptions::PyTypeError::new_err(error))
            }
        }
    };
}

pub(crate) use one_of;
