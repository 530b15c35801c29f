//! What runs a model.

use attnscope_run::{Executor, Native, Reference};

/// What a model runs on.
///
/// ```
/// use attnscope::{Device, Input};
///
/// let model = attnscope::open("demo")?;
/// let input = Input::text("Two dogs play.").with_targets(["Zwei Hunde spielen."]);
/// let fast = model.trace(&input, "logits")?;
/// let exact = model.on(Device::Reference).trace(&input, "logits")?;
/// let (a, b) = (fast.tensor("logits")?, exact.tensor("logits")?);
/// assert!(a.values.iter().zip(b.values.iter()).all(|(a, b)| (a - b).abs() < 1e-3));
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// All cores, in f32.
    #[default]
    Cpu,
    /// Plain loops in f64, one for each formula: slow; every other device is tested against it.
    Reference,
}

impl Device {
    /// Every device.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Reference];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Reference => "reference",
        }
    }

    /// What runs models there.
    pub(crate) fn executor(self) -> Box<dyn Executor> {
        match self {
            Self::Cpu => Box::new(Native::new()),
            Self::Reference => Box::new(Reference),
        }
    }
}
