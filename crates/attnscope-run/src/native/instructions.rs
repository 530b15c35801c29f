//! Which vector instructions the native executor uses: the best of the machine, or a smaller set on request.

use std::sync::OnceLock;

use pulp::Arch;

use crate::error::RunError;

/// The variable that asks for fewer than the machine has.
const VARIABLE: &str = "ATTNSCOPE_INSTRUCTIONS";

/// Vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instructions {
    /// The best that the machine has.
    Best,
    /// AVX2 and FMA, also on a machine with AVX-512.
    Avx2,
    /// None: plain code.
    Scalar,
}

impl Instructions {
    /// Those that the environment variable `ATTNSCOPE_INSTRUCTIONS` names; the best where it is not set.
    ///
    /// # Errors
    /// When it names unknown instructions, or some that the machine does not have.
    pub fn chosen() -> Result<Self, RunError> {
        static CHOSEN: OnceLock<Result<Instructions, String>> = OnceLock::new();
        let chosen = CHOSEN
            .get_or_init(|| Self::named(&std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy()));
        chosen.clone().map_err(|found| RunError::Input {
            place: VARIABLE.into(),
            found,
            expected: "it must be avx2, scalar or empty, and the machine must have these instructions".into(),
            remedy: "correct the environment variable, or unset it".into(),
        })
    }

    /// The instructions of a name, or the name where there are none.
    fn named(name: &str) -> Result<Self, String> {
        let named = match name {
            "" => Some(Self::Best),
            "avx2" => Some(Self::Avx2),
            "scalar" => Some(Self::Scalar),
            _ => None,
        };
        named.filter(|instructions| instructions.arch().is_some()).ok_or_else(|| format!("{name:?}"))
    }

    /// The dispatch token of `pulp`; `None` where the machine does not have them.
    pub(super) fn arch(self) -> Option<Arch> {
        match self {
            Self::Best => Some(Arch::new()),
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Self::Avx2 => pulp::x86::V3::try_new().map(Arch::V3),
            #[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
            Self::Avx2 => None,
            Self::Scalar => Some(Arch::Scalar),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error() {
        assert_eq!(Instructions::named(""), Ok(Instructions::Best));
        assert_eq!(Instructions::named("scalar"), Ok(Instructions::Scalar));
        for wrong in ["AVX2", "avx-2", "avx512"] {
            assert_eq!(Instructions::named(wrong), Err(format!("{wrong:?}")));
        }
    }
}
