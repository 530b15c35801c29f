//! The weights of a pass that were left in their file. The nodes of a layer are a part; outside of layers each node is one. A
//! part's weights are read while the part before it is computed, in the order in which they lie in the file, and let go after it.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};

use attnscope_graph::{NodeId, WeightId};

use super::pass::Pass;
use super::uses::use_of;
use crate::error::RunError;
use crate::in_file::InFile;
use crate::limits::Cancel;
use crate::panels::Stored;
use crate::weights::{Unread, Use, Weight, Weights};

/// The unread weights of some nodes that follow each other.
#[derive(Debug)]
pub(super) struct Part {
    /// The first of the nodes.
    first: NodeId,
    weights: Vec<Unread>,
}

/// What was read of a part.
type PartWeights = Vec<(WeightId, Weight)>;

/// Hands out the weights of a pass, part by part.
#[derive(Debug)]
pub(super) struct Feed {
    /// The first nodes of the parts to come, the next one last.
    firsts: Vec<NodeId>,
    from: From,
}

/// Who reads.
#[derive(Debug)]
enum From {
    /// A thread, one part ahead.
    Thread { read: Option<Receiver<Result<PartWeights, RunError>>>, thread: Option<JoinHandle<()>> },
    /// The caller, where the system has no thread to give; the next part last.
    Caller(Vec<Part>, PartReader),
}

/// The parts of a pass: all that it computes, in its order. None where all weights are in memory.
pub(super) fn parts(pass: &Pass<'_>) -> Result<Vec<Part>, RunError> {
    let mut parts: Vec<Part> = Vec::new();
    let mut layer = None;
    if pass.weights.unread().is_none() {
        return Ok(parts);
    }
    let graph = &pass.model.graph;
    for (id, node) in graph.iter().filter(|&(id, _)| pass.is_computed(id)) {
        let begins = node.role.layer().is_none() || node.role.layer() != layer;
        layer = node.role.layer();
        let mut unread = Vec::new();
        for (i, &weight) in node.weights.iter().enumerate() {
            let dims = &graph.weight(weight).dims;
            let Some(shape) = pass.model.sizes.shape(dims) else {
                return Err(RunError::NoShape { of: graph.weight(weight).path.clone() });
            };
            let wanted = use_of(&node.op, i, shape.last().copied().unwrap_or(1));
            // Of a table only the rows that are looked up are read, where that can be done.
            let found = pass.weights.unread_weight(weight, wanted);
            unread.extend(found.filter(|found| wanted != Use::Table || !found.file.has_parts()));
        }
        match parts.last_mut() {
            Some(part) if !begins => part.weights.append(&mut unread),
            _ if begins || !unread.is_empty() => parts.push(Part { first: id, weights: unread }),
            _ => {}
        }
    }
    parts.retain(|part| !part.weights.is_empty());
    for part in &mut parts {
        part.weights.sort_by_key(|weight| weight.file.reader().order());
    }
    Ok(parts)
}

impl Part {
    /// Bytes of its weights.
    fn bytes(&self) -> u64 {
        let mut bytes: HashMap<*const InFile, u64> = HashMap::new();
        for weight in &self.weights {
            bytes.insert(Arc::as_ptr(&weight.file), weight.file.bytes());
        }
        bytes.values().copied().fold(0, u64::saturating_add)
    }
}

/// The most bytes that two parts in a row take: of one that is computed, and of the next, which is read.
pub(super) fn demand(parts: &[Part]) -> u64 {
    let bytes: Vec<u64> = parts.iter().map(Part::bytes).collect();
    let pairs = bytes.windows(2).map(|pair| pair[0].saturating_add(pair[1]));
    pairs.chain(bytes.first().copied()).max().unwrap_or(0)
}

impl Feed {
    /// Begins to read.
    pub(super) fn start(mut parts: Vec<Part>, width: usize, cancel: &Cancel) -> Self {
        parts.reverse();
        let firsts = parts.iter().map(|part| part.first).collect();
        let reader = || PartReader { width, cancel: cancel.clone(), before: Vec::new() };
        // The parts go to the thread only once it runs.
        let (give, take) = sync_channel::<Vec<Part>>(1);
        // Nothing waits in between: what was read is handed over before the next part is begun.
        let (put, read) = sync_channel(0);
        let mut own = reader();
        let thread = Builder::new().name("attnscope-weights".into()).spawn(move || {
            let Ok(mut parts) = take.recv() else { return };
            while let Some(part) = parts.pop() {
                let weights = own.read(&part);
                if weights.is_err() {
                    parts.clear();
                }
                // Nobody waits any more where the pass has ended.
                if put.send(weights).is_err() {
                    return;
                }
            }
        });
        let from = match thread {
            Ok(thread) => match give.send(parts) {
                Ok(()) => From::Thread { read: Some(read), thread: Some(thread) },
                Err(parts) => From::Caller(parts.0, reader()),
            },
            Err(_) => From::Caller(parts, reader()),
        };
        Self { firsts, from }
    }

    /// Whether a part begins with a node: what was handed out before must be let go then.
    pub(super) fn begins(&self, node: NodeId) -> bool {
        self.firsts.last() == Some(&node)
    }

    /// All weights, of which those of the next part are in memory.
    pub(super) fn next(&mut self, all: &Weights) -> Result<Weights, RunError> {
        self.firsts.pop();
        let read = match &mut self.from {
            From::Thread { read, .. } => match read.as_ref().and_then(|read| read.recv().ok()) {
                Some(read) => read?,
                None => {
                    let what = "the thread that reads them has ended";
                    return Err(RunError::Defect { place: "weights".into(), what });
                }
            },
            From::Caller(parts, reader) => match parts.pop() {
                Some(part) => reader.read(&part)?,
                None => Vec::new(),
            },
        };
        Ok(all.with_read(read))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let From::Thread { read, thread } = &mut self.from {
            // Its next hand-over fails, and it ends.
            drop(read.take());
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

/// Reads parts.
#[derive(Debug)]
struct PartReader {
    /// Of panels.
    width: usize,
    cancel: Cancel,
    /// The tensors of the part before: layers may share theirs.
    before: Vec<(Arc<InFile>, Weak<Stored>)>,
}

impl PartReader {
    fn read(&mut self, part: &Part) -> Result<PartWeights, RunError> {
        let mut now: Vec<(Arc<InFile>, Arc<Stored>)> = Vec::new();
        let mut weights = Vec::with_capacity(part.weights.len());
        for unread in &part.weights {
            let file = &unread.file;
            let of_now =
                now.iter().find(|(known, _)| Arc::ptr_eq(known, file)).map(|(_, stored)| stored.clone());
            let of_before = || self.before.iter().find(|(known, _)| Arc::ptr_eq(known, file))?.1.upgrade();
            let stored = match of_now.clone().or_else(of_before) {
                Some(stored) => stored,
                None => {
                    self.cancel.check()?;
                    Arc::new(Stored::Rows(file.read()?))
                }
            };
            weights.push((unread.id, unread.with(&stored, self.width)));
            if of_now.is_none() {
                now.push((file.clone(), stored));
            }
        }
        self.before = now.iter().map(|(file, stored)| (file.clone(), Arc::downgrade(stored))).collect();
        Ok(weights)
    }
}
