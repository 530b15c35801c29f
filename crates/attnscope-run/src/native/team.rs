//! Threads that share a loop. Between the loops of a pass they wait awake for a moment, since waking a thread costs more
//! than many of these loops; after that they sleep.
//!
//! `unsafe`, because a loop's body borrows from its caller and threads that outlive the loop run it: the caller does not
//! go on before the last of them has left.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How often a thread looks for work before it sleeps: some tens of microseconds.
const LOOKS: u32 = 20_000;

/// The state of the board: whether a loop is open, how many helpers are in it, and which loop it is.
const OPEN: u64 = 1;
const HELPER: u64 = 2;
const HELPERS: u64 = 0xffff_fffe;
const LOOP: u64 = 1 << 32;

/// The caller's thread and its helpers.
#[derive(Debug)]
pub(crate) struct Team {
    size: usize,
    /// A cell also keeps a body, which may run on any thread, from starting a loop of its own.
    helpers: OnceCell<Vec<JoinHandle<()>>>,
    board: Arc<Board>,
}

/// What caller and helpers share.
#[derive(Default)]
struct Board {
    state: AtomicU64,
    /// The loop's body, `&&dyn Fn(usize)` of the caller; valid while the loop is open or a helper is in it.
    body: AtomicPtr<()>,
    /// The next turn, and the number of turns.
    next: AtomicUsize,
    turns: AtomicUsize,
    asleep: AtomicUsize,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Board")
    }
}

type Body<'a> = &'a (dyn Fn(usize) + Sync);

impl Team {
    /// A team of as many threads as the process uses, which starts its helpers when they are first needed. More than the
    /// machine has cores would wait for each other awake.
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::of(rayon::current_num_threads().min(cores))
    }

    fn of(size: usize) -> Self {
        Self { size: size.max(1), helpers: OnceCell::new(), board: Arc::default() }
    }

    /// How many threads there are.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Runs `body` for each of the turns, on all threads.
    pub(crate) fn each(&self, turns: usize, body: impl Fn(usize) + Sync) {
        if turns <= 1 || self.size == 1 {
            (0..turns).for_each(body);
            return;
        }
        let helpers = self.helpers.get_or_init(|| self.start());
        // Whoever starts a loop within a loop would write over the body that the others run.
        assert_eq!(self.board.state.load(Ordering::Relaxed) & OPEN, 0, "a loop within a loop");
        let mut body: Body<'_> = &body;
        let board = &*self.board;
        // Nothing of a loop that ended in a panic of its own.
        board.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        board.body.store((&raw mut body).cast(), Ordering::Relaxed);
        board.next.store(0, Ordering::Relaxed);
        board.turns.store(turns, Ordering::Relaxed);
        // SeqCst: either a helper that falls asleep sees the open loop, or the caller sees that it sleeps.
        board.state.fetch_add(LOOP | OPEN, Ordering::SeqCst);
        if board.asleep.load(Ordering::SeqCst) > 0 {
            helpers.iter().for_each(|helper| helper.thread().unpark());
        }
        // The loop is closed and left by all even when the caller's own turn panics.
        let closing = Closing(board);
        board.take_turns(body);
        drop(closing);
        let panic = board.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Runs `body` once for each item, on all threads.
    pub(crate) fn each_of<T: Send>(&self, items: &mut [T], body: impl Fn(usize, &mut T) + Sync) {
        let items_start = Start(items.as_mut_ptr());
        self.each(items.len(), |i| {
            // SAFETY: `i` is below the length, and every turn is taken once: no two threads hold one item.
            body(i, unsafe { &mut *items_start.at(i) });
        });
    }

    fn start(&self) -> Vec<JoinHandle<()>> {
        let helper = |_| {
            let board = Arc::clone(&self.board);
            std::thread::Builder::new().name("attnscope".into()).spawn(move || board.help()).ok()
        };
        // Where the machine has no thread to give, those that there are do the work.
        (1..self.size).map_while(helper).collect()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.board.stop.store(true, Ordering::SeqCst);
        for helper in self.helpers.take().into_iter().flatten() {
            helper.thread().unpark();
            // A helper catches what its turns throw, so that it ends in peace.
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
struct Closing<'a>(&'a Board);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // No turn is left to take, also when the caller panicked.
        self.0.next.fetch_max(self.0.turns.load(Ordering::Relaxed), Ordering::Relaxed);
        self.0.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0;
        while self.0.state.load(Ordering::Acquire) & HELPERS != 0 {
            pause(&mut looks);
        }
    }
}

/// Waits a little; lets others run when it takes longer.
fn pause(looks: &mut u32) {
    *looks += 1;
    if *looks < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

impl Board {
    fn take_turns(&self, body: Body<'_>) {
        let turns = self.turns.load(Ordering::Relaxed);
        loop {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            if turn >= turns {
                return;
            }
            body(turn);
        }
    }

    /// A helper's life.
    fn help(&self) {
        let mut done = 0;
        let mut looks = 0;
        while !self.stop.load(Ordering::SeqCst) {
            let state = self.state.load(Ordering::SeqCst);
            if state & OPEN != 0 && state / LOOP != done {
                if self.join(state) {
                    done = state / LOOP;
                    looks = 0;
                }
            } else if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                self.asleep.fetch_add(1, Ordering::SeqCst);
                if self.state.load(Ordering::SeqCst) == state && !self.stop.load(Ordering::SeqCst) {
                    std::thread::park();
                }
                self.asleep.fetch_sub(1, Ordering::SeqCst);
                looks = 0;
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
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.take_turns(body))) {
            self.next.fetch_max(self.turns.load(Ordering::Relaxed), Ordering::Relaxed);
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
    fn every_turn_is_taken_once() {
        for size in [1, 2, 5] {
            let team = Team::of(size);
            for turns in [0, 1, 2, 3, 64, 1000] {
                let mut seen = vec![0; turns];
                team.each_of(&mut seen, |i, item| *item += i + 1);
                assert_eq!(seen, (1..=turns).collect::<Vec<_>>(), "{size} threads");
            }
        }
    }

    #[test]
    fn helpers_that_sleep_are_woken() {
        let team = Team::of(3);
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
        let team = Team::of(2);
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
        let team = Team::of(2);
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
