//! What work on a model may use, how it is ended from outside, and who is told how far it has come.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attnscope_checkpoint::check_memory_within;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::RunError;

/// Stack of a thread of a pool: formulas and reports nest more deeply than the two megabytes that threads usually have allow
/// for.
const STACK: usize = 8 << 20;

/// What work may use. Nothing is limited by default.
///
/// ```
/// use attnscope_run::{Cancel, Limits, Progress};
///
/// let cancel = Cancel::default();
/// let limits = Limits {
///     threads: Some(1),
///     memory: Some(2 << 30),
///     cancel: cancel.clone(), // `cancel.cancel()` from any thread ends the work.
///     progress: Progress::new(|step| eprintln!("{} of {} {}", step.done, step.total, step.of.name())),
/// };
/// assert!(!limits.cancel.is_cancelled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// How many threads; by default as many as the process uses.
    pub threads: Option<usize>,
    /// Bytes that the process may use, with what it uses already: weights and the tensors of runs are counted before they are
    /// made. Where absent, what the process as a whole is allowed.
    pub memory: Option<u64>,
    /// Ends work that is under way.
    pub cancel: Cancel,
    /// Told how far it has come.
    pub progress: Progress,
}

impl Limits {
    /// The same for a part of the work, of which nobody is told.
    #[must_use]
    pub fn quiet(&self) -> Self {
        Self { progress: Progress::default(), ..self.clone() }
    }

    /// The same for work that is one of many, each on a thread of its own.
    #[must_use]
    pub fn one_thread(&self) -> Self {
        Self { threads: Some(1), ..self.quiet() }
    }

    /// An error where the memory that somebody is about to use is not there.
    ///
    /// # Errors
    /// [`RunError::Memory`], with what is needed and what is left.
    pub fn check_memory(&self, need: u64) -> Result<(), RunError> {
        check_memory_within(need, self.memory).map_err(RunError::Memory)
    }

    /// Does the work on no more threads than allowed.
    ///
    /// # Errors
    /// When the system does not give that many threads.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, RunError> {
        Ok(match self.pool()? {
            Some(pool) => pool.install(work),
            None => work(),
        })
    }

    /// Threads for parallel loops; `None` where those of the process serve.
    pub(crate) fn pool(&self) -> Result<Option<ThreadPool>, RunError> {
        let Some(threads) = self.threads.map(|threads| threads.max(1)) else { return Ok(None) };
        let pool = ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK).build();
        pool.map(Some).map_err(|_| RunError::Threads { wanted: threads })
    }
}

/// The same work on every core, each with a pool of one thread: many small runs side by side are faster than one run
/// after the other on all cores. Where the system gives fewer threads (a limit on processes), on those that it gives.
pub fn on_all_cores<T: Send>(worker: &(dyn Fn() -> T + Sync)) -> Vec<T> {
    let alone = || match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        Ok(pool) => pool.install(worker),
        Err(_) => worker(),
    };
    std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, alone).ok();
        let threads: Vec<_> = (0..rayon::current_num_threads()).map_while(start).collect();
        if threads.is_empty() {
            return vec![alone()];
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

/// A flag that ends work, shared by whoever holds a copy of it.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends the work that looks at this flag, with [`RunError::Cancelled`].
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag was raised.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for work that ends by itself where it is raised.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// An error if the flag was set.
    ///
    /// # Errors
    /// [`RunError::Cancelled`].
    pub fn check(&self) -> Result<(), RunError> {
        if self.is_cancelled() { Err(RunError::Cancelled) } else { Ok(()) }
    }
}

/// How far some work has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is counted.
    pub of: Counted,
    /// How many are done.
    pub done: usize,
    /// Of how many. A search may find more to do on the way, and then begins to count anew.
    pub total: usize,
}

/// What the steps of some work are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counted {
    /// Nodes of the graph, which are computed.
    Nodes,
    /// Nodes or weights that are compared.
    Compared,
    /// Other wirings and repairs that are tried.
    Trials,
    /// Claims about masks that are proved.
    Proofs,
    /// Sentences, or seconds of a recording, that are decoded.
    Decoded,
    /// Sentences of a corpus that are measured.
    Sentences,
}

impl Counted {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Compared => "tensors compared",
            Self::Trials => "other wirings and repairs",
            Self::Proofs => "proofs",
            Self::Decoded => "decoded",
            Self::Sentences => "sentences measured",
        }
    }
}

/// Who is told how far work has come: a function that any thread may call, or nobody.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(Step) + Send + Sync>>);

impl Progress {
    /// Tells a function. It should return soon: work waits for it.
    pub fn new(listener: impl Fn(Step) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Says how far the work is.
    pub fn tell(&self, of: Counted, done: usize, total: usize) {
        if let Some(listener) = &self.0 {
            listener(Step { of, done, total });
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(told)" } else { "Progress(nobody)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_on_as_many_threads_as_allowed() {
        for threads in [1, 2, 3] {
            let limits = Limits { threads: Some(threads), ..Limits::default() };
            assert_eq!(limits.install(rayon::current_num_threads).unwrap(), threads);
        }
        let own = rayon::current_num_threads();
        assert_eq!(Limits::default().install(rayon::current_num_threads).unwrap(), own);
    }

    #[test]
    fn a_budget_is_held_against_what_is_needed() {
        Limits::default().check_memory(1 << 20).unwrap();
        let limits = Limits { memory: Some(1 << 10), ..Limits::default() };
        assert!(matches!(limits.check_memory(1 << 20), Err(RunError::Memory(_))));
    }
}
