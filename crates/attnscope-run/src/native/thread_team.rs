//! Threads that share a loop. Between the loops of a pass they spin for a moment, because waking a thread costs more
//! than many of these loops; after that they sleep.
//!
//! `unsafe`, because a loop's body borrows from its caller and is run by threads that outlive the loop: the caller waits until
//! the last of them has left it.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::limits::{Cancel, Limits};

/// How often a thread spins before it sleeps: some tens of microseconds.
const SPINS: u32 = 20_000;

/// The state of the loop: whether a loop is open, how many helpers are in it, and which loop it is.
const OPEN: u64 = 1;
const HELPER: u64 = 2;
const HELPERS: u64 = 0xffff_fffe;
const LOOP: u64 = 1 << 32;

/// The caller's thread and its helpers.
#[derive(Debug)]
pub(crate) struct ThreadTeam {
    size: usize,
    /// An `OnceCell` is not `Sync`: a body, which may run on any thread, cannot start a loop itself.
    helpers: OnceCell<Vec<JoinHandle<()>>>,
    shared: Arc<SharedLoop>,
    /// Once it is raised, chunks are left undone: whoever runs loops looks at it before what they made is used.
    cancel: Cancel,
}

/// What caller and helpers share.
#[derive(Default)]
struct SharedLoop {
    state: AtomicU64,
    /// The loop's body, `&&dyn Fn(usize)` of the caller; valid while the loop is open or a helper is in it.
    body: AtomicPtr<()>,
    /// The next chunk, and the number of chunks.
    next: AtomicUsize,
    chunks: AtomicUsize,
    asleep: AtomicUsize,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for SharedLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedLoop")
    }
}

type Body<'a> = &'a (dyn Fn(usize) + Sync);

impl ThreadTeam {
    /// A team of as many threads as allowed, or as the process uses, which starts its helpers when they are first needed. More
    /// than the machine has cores would spin while they wait for each other.
    pub(crate) fn new(limits: &Limits) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let size = limits.threads.unwrap_or_else(rayon::current_num_threads).min(cores);
        Self::of(size, limits.cancel.clone())
    }

    fn of(size: usize, cancel: Cancel) -> Self {
        Self { size: size.max(1), helpers: OnceCell::new(), shared: Arc::default(), cancel }
    }

    /// How many threads there are.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Runs `body` for each of the chunks, on all threads.
    pub(crate) fn each(&self, chunks: usize, body: impl Fn(usize) + Sync) {
        let cancel = &self.cancel;
        let body = |chunk| {
            if !cancel.is_cancelled() {
                body(chunk);
            }
        };
        if chunks <= 1 || self.size == 1 {
            (0..chunks).for_each(body);
            return;
        }
        let helpers = self.helpers.get_or_init(|| self.start());
        // A loop within a loop would overwrite the body that the helpers run.
        assert_eq!(self.shared.state.load(Ordering::Relaxed) & OPEN, 0, "a loop within a loop");
        let mut body: Body<'_> = &body;
        let shared = &*self.shared;
        // Drops the panic of an earlier loop.
        shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.body.store((&raw mut body).cast(), Ordering::Relaxed);
        shared.next.store(0, Ordering::Relaxed);
        shared.chunks.store(chunks, Ordering::Relaxed);
        // SeqCst: either a helper that falls asleep sees the open loop, or the caller sees that it sleeps.
        shared.state.fetch_add(LOOP | OPEN, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            helpers.iter().for_each(|helper| helper.thread().unpark());
        }
        // The loop is closed and all helpers leave it, even if the caller's own chunk panics.
        let closing = Closing(shared);
        shared.run_chunks(body);
        drop(closing);
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Runs `body` once for each item, on all threads.
    pub(crate) fn each_of<T: Send>(&self, items: &mut [T], body: impl Fn(usize, &mut T) + Sync) {
        let items_start = Start(items.as_mut_ptr());
        self.each(items.len(), |i| {
            // SAFETY: `i` is below the length, and every chunk runs once: no two threads hold one item.
            body(i, unsafe { &mut *items_start.at(i) });
        });
    }

    fn start(&self) -> Vec<JoinHandle<()>> {
        let helper = |_| {
            let shared = Arc::clone(&self.shared);
            std::thread::Builder::new().name("attnscope".into()).spawn(move || shared.help()).ok()
        };
        // Where no more threads can be started, those that exist do the work.
        (1..self.size).map_while(helper).collect()
    }
}

impl Drop for ThreadTeam {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for helper in self.helpers.take().into_iter().flatten() {
            helper.thread().unpark();
            // A helper catches the panics of its chunks, so that it never unwinds.
            let _ = helper.join();
        }
    }
}

struct Start<T>(*mut T);

// SAFETY: it is only used to reach items that are `Send`, each from one thread.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    fn at(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

/// Closes the loop and waits for the helpers that are in it.
struct Closing<'a>(&'a SharedLoop);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // No chunk is left to run, also when the caller panicked.
        self.0.next.fetch_max(self.0.chunks.load(Ordering::Relaxed), Ordering::Relaxed);
        self.0.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while self.0.state.load(Ordering::Acquire) & HELPERS != 0 {
            pause(&mut spins);
        }
    }
}

/// Spins; after a while lets other threads run.
fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

impl SharedLoop {
    fn run_chunks(&self, body: Body<'_>) {
        let chunks = self.chunks.load(Ordering::Relaxed);
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return;
            }
            body(chunk);
        }
    }

    /// What a helper does until the team is dropped.
    fn help(&self) {
        let mut done = 0;
        let mut spins = 0;
        while !self.stop.load(Ordering::SeqCst) {
            let state = self.state.load(Ordering::SeqCst);
            if state & OPEN != 0 && state / LOOP != done {
                if self.join(state) {
                    done = state / LOOP;
                    spins = 0;
                }
            } else if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                self.asleep.fetch_add(1, Ordering::SeqCst);
                if self.state.load(Ordering::SeqCst) == state && !self.stop.load(Ordering::SeqCst) {
                    std::thread::park();
                }
                self.asleep.fetch_sub(1, Ordering::SeqCst);
                spins = 0;
            }
        }
    }

    /// Takes part in the loop, unless it has been closed meanwhile.
    fn join(&self, state: u64) -> bool {
        let entered = self.state.compare_exchange(state, state + HELPER, Ordering::AcqRel, Ordering::Relaxed);
        if entered.is_err() {
            return false;
        }
        // SAFETY: the loop was open when this helper was counted, and its caller waits until the count is 0.
        let body = unsafe { *self.body.load(Ordering::Relaxed).cast::<Body<'_>>() };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run_chunks(body))) {
            self.next.fetch_max(self.chunks.load(Ordering::Relaxed), Ordering::Relaxed);
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        self.state.fetch_sub(HELPER, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_runs_once() {
        for size in [1, 2, 5] {
            let team = ThreadTeam::of(size, Cancel::default());
            for chunks in [0, 1, 2, 3, 64, 1000] {
                let mut seen = vec![0; chunks];
                team.each_of(&mut seen, |i, item| *item += i + 1);
                assert_eq!(seen, (1..=chunks).collect::<Vec<_>>(), "{size} threads");
            }
        }
    }

    #[test]
    fn helpers_that_sleep_are_woken() {
        let team = ThreadTeam::of(3, Cancel::default());
        for _ in 0..20 {
            let count = AtomicUsize::new(0);
            team.each(8, |_| {
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(1));
            });
            assert_eq!(count.into_inner(), 8);
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
    }

    #[test]
    fn many_short_loops_leave_nothing_behind() {
        let team = ThreadTeam::of(2, Cancel::default());
        let mut total = 0;
        for round in 0..20_000 {
            let sum = AtomicUsize::new(0);
            team.each(3, |i| {
                sum.fetch_add(i + round, Ordering::Relaxed);
            });
            total += sum.into_inner();
        }
        assert_eq!(total, (0..20_000).map(|round| 3 * round + 3).sum::<usize>());
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_goes_on() {
        let team = ThreadTeam::of(2, Cancel::default());
        for bad in 0..4 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                team.each(4, |i| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    assert_ne!(i, bad);
                });
            }));
            assert!(result.is_err());
            let mut seen = [false; 9];
            team.each_of(&mut seen, |_, seen| *seen = true);
            assert_eq!(seen, [true; 9]);
        }
    }
}
