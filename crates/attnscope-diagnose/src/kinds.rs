//! The names of an enum's variants in JSON, as a function and as a list.

/// Writes `kind`, from patterns and names, and `KINDS`: a name that a command gives stands in one place.
macro_rules! kinds {
    ($type:ident { $($pattern:pat => $name:literal,)* }) => {
        impl $type {
            /// Every name that one can have.
            pub const KINDS: &'static [&'static str] = &[$($name),*];

            /// Its name in JSON.
            pub fn kind(&self) -> &'static str {
                match self {
                    $($pattern => $name,)*
                }
            }
        }
    };
}

pub(crate) use kinds;
