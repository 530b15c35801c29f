//! What requests share: the model, the page, the queue, and the runs that are under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attnscope::{Cancel, Failure, Model};

use crate::Served;
use crate::queue::Queue;

/// What a request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Characters of a source or of a target.
    pub text_length: usize,
    /// Bytes of a recording.
    pub upload_bytes: usize,
    /// How long a run may take, its turn in the queue left out.
    pub time: Duration,
    /// Requests that wait or run at once.
    pub queue: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { text_length: 4000, upload_bytes: 32 << 20, time: Duration::from_secs(120), queue: 64 }
    }
}

/// What requests share.
pub(crate) struct Shared {
    served: Served,
    page: String,
    json: String,
    pub(crate) queue: Queue,
    runs: Mutex<HashMap<u64, Cancel>>,
    next: AtomicU64,
}

impl Shared {
    pub(crate) fn new(served: Served, page: String) -> Result<Self, Failure> {
        let json = serde_json::to_string(&served.report)
            .map_err(|e| Failure::new(format!("the model's report: {e}"), "please report this"))?;
        let queue = Queue::new(served.bounds.queue);
        Ok(Self { served, page, json, queue, runs: Mutex::default(), next: AtomicU64::new(1) })
    }

    pub(crate) fn model(&self) -> &Model {
        &self.served.model
    }

    pub(crate) fn page(&self) -> &str {
        &self.page
    }

    pub(crate) fn model_json(&self) -> &str {
        &self.json
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.served.bounds
    }

    /// A failure in words.
    pub(crate) fn words(&self, failure: &Failure) -> (String, String) {
        (self.served.words)(failure)
    }

    /// Remembers how to end a run, under a new number.
    pub(crate) fn begin(&self, cancel: Cancel) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.runs().insert(id, cancel);
        id
    }

    pub(crate) fn end(&self, id: u64) {
        self.runs().remove(&id);
    }

    /// Ends a run; false where there is none of this number.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        self.runs().get(&id).map(Cancel::cancel).is_some()
    }

    pub(crate) fn cancel_all(&self) {
        self.runs().values().for_each(Cancel::cancel);
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<u64, Cancel>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
