//! Which vector instructions the native executor uses: the best that the machine has, or fewer where that is asked for.

use std::sync::OnceLock;

use pulp::Arch;

/// The variable that asks for fewer than the machine has.
const VARIABLE: &str = "ATTNSCOPE_INSTRUCTIONS";

/// Vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instructions {
    /// The best that the machine has.
    Best,
    /// AVX2 and FMA, also where there is AVX-512.
    Avx2,
    /// None: plain code.
    Scalar,
}

impl Instructions {
    /// Those that the environment variable `ATTNSCOPE_INSTRUCTIONS` names: `avx2`, `scalar`; the best where it names none
    /// that the machine has.
    pub fn chosen() -> Self {
        static CHOSEN: OnceLock<Instructions> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let said = std::env::var(VARIABLE).unwrap_or_default();
            let asked = match said.as_str() {
                "avx2" => Self::Avx2,
                "scalar" => Self::Scalar,
                _ => Self::Best,
            };
            if asked.arch().is_some() { asked } else { Self::Best }
        })
    }

    /// How they are dispatched to; `None` where the machine does not have them.
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
