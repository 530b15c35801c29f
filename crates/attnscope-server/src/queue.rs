//! One run at a time, the others in the order in which they came, and not too many of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// First come, first served.
    turn: Arc<Semaphore>,
    /// Who waits or runs.
    inside: Arc<AtomicUsize>,
    most: usize,
}

/// A place in the queue, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    turn: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    /// How many came before and are not done.
    pub(crate) before: usize,
}

impl Queue {
    pub(crate) fn new(most: usize) -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), inside: Arc::default(), most }
    }

    /// A place, or nothing where all are taken.
    pub(crate) fn enter(&self) -> Option<Ticket> {
        let add = |inside: usize| (inside < self.most).then_some(inside + 1);
        let before = self.inside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).ok()?;
        Some(Ticket { turn: self.turn.clone(), inside: self.inside.clone(), before })
    }
}

impl Ticket {
    /// Waits until it is this one's turn; the turn ends when what comes back is dropped.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turn.clone().acquire_owned().await.ok()
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
}
