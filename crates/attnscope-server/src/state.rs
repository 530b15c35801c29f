//! What requests share: the model, the page, the queue, and the runs that are under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use attnscope::answer::Report;
use attnscope::{Cancel, Failure, Model};
use attnscope_render::html::{self, Place};

use crate::queue::Queue;

/// What a request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Tokens of a source or of a target.
    pub tokens: usize,
    /// Bytes of a recording.
    pub upload_bytes: usize,
    /// Bytes of a body that is JSON.
    pub text_bytes: usize,
    /// How long a body may take to arrive.
    pub upload_time: Duration,
    /// How long a run may take, its turn in the queue left out.
    pub time: Duration,
    /// Requests that wait or run at once.
    pub queue: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            tokens: 1024,
            upload_bytes: 32 << 20,
            text_bytes: 1 << 20,
            upload_time: Duration::from_secs(30),
            time: Duration::from_secs(120),
            queue: 64,
        }
    }
}

/// What is known of the model.
pub(crate) struct Known {
    /// The page that shows it.
    pub(crate) page: String,
    /// The report as JSON.
    pub(crate) json: String,
    /// Whether the doctor is done, or was not asked.
    pub(crate) is_examined: bool,
}

impl Known {
    pub(crate) fn of(report: &Report, is_examined: bool) -> Result<Self, Failure> {
        let bug = |e: &dyn std::fmt::Display| Failure::new(format!("the page: {e}"), "please report this");
        let json = serde_json::to_string(report).map_err(|e| bug(&e))?;
        let page = html::report(report, &json, Place::Server).map_err(|e| bug(&e))?;
        Ok(Self { page, json, is_examined })
    }
}

/// What requests share.
pub(crate) struct Shared {
    model: Model,
    bounds: Bounds,
    words: fn(&Failure) -> (String, String),
    known: watch::Sender<Arc<Known>>,
    pub(crate) queue: Queue,
    runs: Mutex<HashMap<u64, Cancel>>,
    next: AtomicU64,
    /// Raised when the server is told to end.
    pub(crate) ending: Cancel,
}

impl Shared {
    pub(crate) fn new(
        model: Model,
        bounds: Bounds,
        words: fn(&Failure) -> (String, String),
        known: Known,
    ) -> Self {
        Self {
            model,
            bounds,
            words,
            known: watch::Sender::new(Arc::new(known)),
            queue: Queue::new(bounds.queue),
            runs: Mutex::default(),
            next: AtomicU64::new(1),
            ending: Cancel::default(),
        }
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    pub(crate) fn known(&self) -> Arc<Known> {
        self.known.borrow().clone()
    }

    /// From now on this is known.
    pub(crate) fn learn(&self, known: Known) {
        self.known.send_replace(Arc::new(known));
    }

    /// What is known once the doctor is done.
    pub(crate) async fn examined(&self) -> Option<Arc<Known>> {
        let mut known = self.known.subscribe();
        known.wait_for(|known| known.is_examined).await.ok().map(|known| known.clone())
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// A failure in words.
    pub(crate) fn words(&self, failure: &Failure) -> (String, String) {
        (self.words)(failure)
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
        self.ending.cancel();
        self.runs().values().for_each(Cancel::cancel);
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<u64, Cancel>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
