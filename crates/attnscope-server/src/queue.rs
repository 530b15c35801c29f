//! One run at a time, the others in the order in which they came, and not too many of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// First come, first served.
    turn: Arc<Semaphore>,
    /// Who waits or runs.
    inside: Arc<AtomicUsize>,
    /// What a turn took lately, in milliseconds: each turn counts for a quarter, all before it for the rest.
    lately: Arc<AtomicU64>,
    most: usize,
}

/// A place in the queue, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    turn: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    lately: Arc<AtomicU64>,
    /// How many came before and are not done.
    pub(crate) before: usize,
}

/// The right to run, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
    begun: Instant,
    lately: Arc<AtomicU64>,
}

impl Queue {
    pub(crate) fn new(most: usize) -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), inside: Arc::default(), lately: Arc::default(), most }
    }

    /// A place, or nothing where all are taken.
    pub(crate) fn enter(&self) -> Option<Ticket> {
        let add = |inside: usize| (inside < self.most).then_some(inside + 1);
        let before = self.inside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).ok()?;
        let (turn, inside, lately) = (self.turn.clone(), self.inside.clone(), self.lately.clone());
        Some(Ticket { turn, inside, lately, before })
    }

    /// When whoever is turned away should come again: half of those inside are done by then, if their turns take what turns
    /// took lately.
    pub(crate) fn again_in(&self) -> Duration {
        let inside = self.inside.load(Ordering::SeqCst) as u64;
        let waiting = Duration::from_millis(self.lately.load(Ordering::SeqCst) * inside / 2);
        waiting.clamp(Duration::from_secs(1), Duration::from_secs(600))
    }
}

impl Ticket {
    /// Waits until it is this one's turn; the turn ends when what comes back is dropped.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        let permit = self.turn.clone().acquire_owned().await.ok()?;
        Some(Turn { _permit: permit, begun: Instant::now(), lately: self.lately.clone() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let took = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // One turn at a time: nobody else writes.
        let lately = match self.lately.load(Ordering::SeqCst) {
            0 => took,
            before => (before - before / 4).saturating_add(took / 4),
        };
        self.lately.store(lately, Ordering::SeqCst);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_turns_others_away_until_somebody_leaves() {
        let queue = Queue::new(2);
        let (first, second) = (queue.enter().unwrap(), queue.enter().unwrap());
        assert_eq!((first.before, second.before), (0, 1));
        assert!(queue.enter().is_none());
        drop(first);
        assert_eq!(queue.enter().map(|ticket| ticket.before), Some(1));
    }

    #[test]
    fn those_who_are_turned_away_come_again_when_half_of_the_queue_is_done() {
        let queue = Queue::new(8);
        let inside: Vec<Ticket> = (0..8).map_while(|_| queue.enter()).collect();
        assert_eq!((inside.len(), queue.again_in()), (8, Duration::from_secs(1)));
        let long_ago = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let permit = queue.turn.clone().try_acquire_owned().unwrap();
        drop(Turn { _permit: permit, begun: long_ago, lately: queue.lately.clone() });
        assert_eq!(queue.again_in().as_secs(), 40);
    }
}
