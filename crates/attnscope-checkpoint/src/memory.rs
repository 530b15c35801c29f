//! How much memory this process may still use: the least of what the machine has free, what its control groups and limits
//! allow, and what the user allows.
//!
//! Linux promises more memory than it has, and kills the process when it runs out. So the need of a run is computed before it
//! starts and compared with this limit; a failing allocation would come too late.

use crate::remedy::Remedy;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ErrorKind;

/// For needs below this the system is not asked.
const SMALL: u64 = 64 << 20;

/// The user's limit; `u64::MAX` where there is none.
static ALLOWED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Limits the memory of this process to so many bytes, wherever [`check_memory`] is called.
pub fn allow_memory(bytes: u64) {
    ALLOWED.store(bytes, Ordering::Relaxed);
}

/// A need that is larger than the available memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("needs {} of memory, and {} {limit}", Bytes(*.need), Bytes(*.have))]
pub struct Shortage {
    /// Bytes that are needed in addition to those in use.
    pub need: u64,
    /// Bytes that may still be used.
    pub have: u64,
    /// Where the limit comes from.
    pub limit: Limit,
}

impl Shortage {
    /// What to do about it, whatever the memory was for.
    pub fn remedy(&self) -> Remedy {
        match self.limit {
            Limit::Allowed => Remedy::AllowMemory,
            Limit::Assumed => Remedy::SayMemory,
            Limit::Process => "raise the limit with `ulimit -v` and `ulimit -d`, or free some memory".into(),
            Limit::Group => "give the container or job more memory".into(),
            Limit::Machine => "free some memory, or run it on a machine with more".into(),
        }
    }
}

/// What limits this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The user.
    Allowed,
    /// A control group: a container, a job of a cluster.
    Group,
    /// `ulimit`.
    Process,
    /// The machine.
    Machine,
    /// None: the system does not tell.
    Assumed,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allowed => "are left of what was allowed",
            Self::Group => "are left in this container or control group",
            Self::Process => "are left of this process's limit (ulimit)",
            Self::Machine => "are available on this machine",
            Self::Assumed => "are taken to be available, since this system does not say",
        })
    }
}

/// Bytes in a unit that can be read.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} bytes", self.0),
            1_000..1_000_000 => write!(f, "{:.0} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.0} MB", bytes / 1e6),
            _ => write!(f, "{:.1} GB", bytes / 1e9),
        }
    }
}

/// Refuses a need that exceeds the available memory.
///
/// # Errors
/// When there is less, with both numbers.
pub fn check_memory(need: u64) -> Result<(), Shortage> {
    check_memory_within(need, None)
}

/// The same where the process may use no more than so many bytes for this, with what it uses already.
///
/// # Errors
/// When there is less, with both numbers.
pub fn check_memory_within(need: u64, budget: Option<u64>) -> Result<(), Shortage> {
    // The user's limit is always checked; the system's only for larger needs.
    let process = if need < SMALL { allowed() } else { available() };
    let budget = budget.map(|budget| (budget.saturating_sub(system::in_use()), Limit::Allowed));
    match [process, budget].into_iter().flatten().min_by_key(|(left, _)| *left) {
        Some((have, limit)) if have < need => Err(Shortage { need, have, limit }),
        _ => Ok(()),
    }
}

/// The same for a need that a file claims: where the system does not tell its memory, at most `assumed` bytes.
///
/// # Errors
/// When there is less, with both numbers.
pub fn check_memory_assuming(need: u64, assumed: u64) -> Result<(), Shortage> {
    check_memory(need)?;
    // The system is not asked twice for every small tensor.
    if need <= assumed { Ok(()) } else { within_assumed(need, available(), assumed) }
}

fn within_assumed(need: u64, known: Option<(u64, Limit)>, assumed: u64) -> Result<(), Shortage> {
    match known {
        None if need > assumed => Err(Shortage { need, have: assumed, limit: Limit::Assumed }),
        _ => Ok(()),
    }
}

/// An empty vector with capacity for so many values. Too little memory is an error about `place`, not an abort.
pub(crate) fn room<T>(values: u64, place: impl fmt::Display) -> Result<Vec<T>, ErrorKind> {
    let need = values.saturating_mul(size_of::<T>() as u64);
    check_memory(need).map_err(|shortage| ErrorKind::Shortage { place: place.to_string(), shortage })?;
    let mut room = Vec::new();
    match usize::try_from(values).ok().filter(|&values| room.try_reserve_exact(values).is_ok()) {
        Some(_) => Ok(room),
        None => Err(ErrorKind::Memory { place: place.to_string(), need }),
    }
}

/// What is left of the user's limit, if there is one.
fn allowed() -> Option<(u64, Limit)> {
    let allowed = ALLOWED.load(Ordering::Relaxed);
    (allowed < u64::MAX).then(|| (allowed.saturating_sub(system::in_use()), Limit::Allowed))
}

/// Bytes that may still be used and what limits them; `None` where nothing is known.
fn available() -> Option<(u64, Limit)> {
    let group = system::group().map(|left| (left, Limit::Group));
    let process = system::process().map(|left| (left, Limit::Process));
    let machine = system::machine().map(|left| (left, Limit::Machine));
    [allowed(), group, process, machine].into_iter().flatten().min_by_key(|(left, _)| *left)
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::path::{Path, PathBuf};

    use rustix::process::{Resource, getrlimit};

    /// `MemAvailable:   12345 kB`
    fn kilobytes(text: &str, key: &str) -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()?.saturating_mul(1024))
    }

    fn own(key: &str) -> u64 {
        let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
        kilobytes(&text, key).unwrap_or(0)
    }

    /// Bytes that are resident now.
    pub(super) fn in_use() -> u64 {
        own("VmRSS")
    }

    pub(super) fn machine() -> Option<u64> {
        kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
    }

    /// Limits on addresses and on data, less what is used of them.
    pub(super) fn process() -> Option<u64> {
        let left = |resource: Resource, used: &str| {
            getrlimit(resource).current.map(|limit| limit.saturating_sub(own(used)))
        };
        [left(Resource::As, "VmSize"), left(Resource::Data, "VmData")].into_iter().flatten().min()
    }

    /// The least that is left in the group of this process and in those above it.
    pub(super) fn group() -> Option<u64> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let left = |line: &str| {
            let mut parts = line.splitn(3, ':');
            let (_, kind, path) = (parts.next()?, parts.next()?, parts.next()?);
            match kind {
                "" => above("/sys/fs/cgroup", path, &second),
                _ if kind.split(',').any(|k| k == "memory") => above("/sys/fs/cgroup/memory", path, &first),
                _ => None,
            }
        };
        groups.lines().filter_map(left).min()
    }

    /// The least of a group and those above it. Inside a container the path may be one of the machine's, and the root is
    /// all that is seen.
    fn above(root: &str, path: &str, left: &dyn Fn(&Path) -> Option<u64>) -> Option<u64> {
        let folder = PathBuf::from(root).join(path.trim_start_matches('/'));
        folder.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(left).min()
    }

    fn number(file: &Path) -> Option<u64> {
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Pages of files that can be dropped count as used.
    fn droppable(folder: &Path, key: &str) -> u64 {
        let text = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        value.unwrap_or(0)
    }

    /// Version 2; "max" means no limit.
    fn second(folder: &Path) -> Option<u64> {
        let (limit, used) = (number(&folder.join("memory.max"))?, number(&folder.join("memory.current"))?);
        Some(limit.saturating_sub(used.saturating_sub(droppable(folder, "inactive_file "))))
    }

    /// Version 1; a number larger than any machine means no limit.
    fn first(folder: &Path) -> Option<u64> {
        let limit = number(&folder.join("memory.limit_in_bytes"))?;
        let used = number(&folder.join("memory.usage_in_bytes"))?;
        Some(limit.saturating_sub(used.saturating_sub(droppable(folder, "total_inactive_file "))))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn this_machine_has_memory() {
            assert!(machine().unwrap() > 1 << 20 && in_use() > 1 << 16);
            assert_eq!(kilobytes("MemTotal:  9 kB\nMemAvailable:   12 kB\n", "MemAvailable"), Some(12288));
        }

        #[test]
        fn the_tightest_group_counts() {
            let root = tempfile::tempdir().unwrap();
            let inner = root.path().join("a/b");
            fs::create_dir_all(&inner).unwrap();
            let write = |folder: &Path, name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
            write(&inner, "memory.max", "max\n");
            write(&inner, "memory.current", "10\n");
            write(&root.path().join("a"), "memory.max", "1000\n");
            write(&root.path().join("a"), "memory.current", "900\n");
            write(&root.path().join("a"), "memory.stat", "anon 300\ninactive_file 600\n");
            assert_eq!(above(&root.path().display().to_string(), "/a/b", &second), Some(700));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn in_use() -> u64 {
        0
    }

    pub(super) fn machine() -> Option<u64> {
        None
    }

    pub(super) fn process() -> Option<u64> {
        None
    }

    pub(super) fn group() -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_that_does_not_say_has_a_fixed_limit() {
        let found = within_assumed(9, None, 8).unwrap_err();
        assert_eq!((found.have, found.limit), (8, Limit::Assumed));
        within_assumed(8, None, 8).unwrap();
        // Where the system tells its memory, that was checked above.
        within_assumed(9, Some((100, Limit::Machine)), 8).unwrap();
    }

    #[test]
    fn a_need_beyond_the_machine_is_refused_with_both_numbers() {
        check_memory(1 << 20).unwrap();
        let shortage = check_memory(u64::MAX).unwrap_err();
        assert!(shortage.have < shortage.need && shortage.to_string().contains(" GB"), "{shortage}");
    }
}
