//! A model's weights, ready to run on each device: read and laid out when they are first needed, once for all who wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use attnscope_run::{Limits, Prepared};

use crate::device::Device;
use crate::failure::Failure;
use crate::open::Opened;
use crate::ready::prepare;

#[derive(Default)]
pub(crate) struct Loaded(Mutex<HashMap<Device, Arc<dyn Prepared>>>);

impl Loaded {
    /// The model on a device. The file is read once: what another device has loaded serves this one.
    pub(crate) fn on(
        &self,
        opened: &Opened,
        device: Device,
        limits: &Limits,
    ) -> Result<Arc<dyn Prepared>, Failure> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = loaded.get(&device) {
            return Ok(prepared.with_limits(limits));
        }
        let other = loaded.values().next().cloned();
        let prepared = apart(limits, || match &other {
            Some(other) => Ok(device.executor().prepare(other.model().clone(), other.weights().clone())?),
            None => prepare(opened, device, limits),
        })?;
        loaded.insert(device, prepared.clone());
        Ok(prepared.with_limits(limits))
    }
}

/// Does work on threads of its own. A thread of a pool that waits for a part of its work takes up other work of the pool, which may
/// want what this one holds.
fn apart<T: Send>(
    limits: &Limits,
    work: impl Fn() -> Result<T, Failure> + Send + Sync,
) -> Result<T, Failure> {
    let threads = Some(limits.threads.unwrap_or_else(rayon::current_num_threads));
    let limits = Limits { threads, ..Limits::default() };
    let work = &work;
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, move || limits.install(work));
        match started.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(Ok(result))) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // The system has no threads to give: those that there are do it.
            Ok(Ok(Err(_))) | Err(_) => work(),
        }
    })
}
