//! Finds every tensor and every placeholder in the pickled value and gives it the path that leads to it.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::rc::Rc;

use super::tensor::Storages;
use crate::error::ErrorKind;
use crate::read::pickle::{Arena, Global, Id, Node, Object, Pickle};
use crate::tensor::TensorInfo;

/// Levels of nesting. Whole pickled modules come to a few dozen.
const MAX_DEPTH: usize = 256;

/// Values visited. A value that is reachable by many paths is visited on each of them, and a few dozen nested pairs have
/// astronomically many paths.
const MAX_VISITS: u64 = 4 << 20;

/// Bytes of one name.
const MAX_PATH: usize = 4 << 10;

/// Bytes of everything that is listed. A tensor that is reachable by many paths is listed by each.
const MAX_LISTED: usize = 64 << 20;

/// What the walk found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) tensors: Vec<TensorInfo>,
    /// The first place of each unknown global.
    pub(super) places: HashMap<Rc<str>, String>,
}

/// Walks the value without recursion; a value inside itself is not entered again.
pub(super) fn walk(pickle: &Pickle<'_>, storages: Storages<'_>) -> Result<Found, ErrorKind> {
    let mut walker = Walker {
        arena: &pickle.arena,
        storages,
        found: Found::default(),
        path: String::new(),
        frames: Vec::new(),
        open: HashSet::new(),
        listed: 0,
    };
    walker.visit(pickle.root)?;
    for _ in 0..MAX_VISITS {
        if !walker.step()? {
            return Ok(walker.found);
        }
    }
    Err(too_much(format!("at most {MAX_VISITS} values")))
}

struct Walker<'p, 'a, 's> {
    arena: &'p Arena<'a>,
    storages: Storages<'s>,
    found: Found,
    path: String,
    frames: Vec<Frame>,
    /// The containers of `frames`.
    open: HashSet<Id>,
    /// Bytes of what is listed so far.
    listed: usize,
}

/// A container whose parts are being visited.
struct Frame {
    id: Id,
    next: usize,
    /// Length of the path that leads to it.
    path: usize,
}

/// A step from a value to a part of it.
enum Step {
    Key(Id),
    Index(usize),
    /// A part that has no name of its own: an object's state is the object.
    Same,
}

impl Walker<'_, '_, '_> {
    /// Goes on to the next part of the innermost container; false when there is none left.
    fn step(&mut self) -> Result<bool, ErrorKind> {
        let Some(frame) = self.frames.last_mut() else { return Ok(false) };
        self.path.truncate(frame.path);
        let Some((step, child)) = child(self.arena, frame.id, frame.next) else {
            self.open.remove(&frame.id);
            self.frames.pop();
            return Ok(true);
        };
        frame.next += 1;
        if !is_plain(self.arena.get(child)) {
            extend(self.arena, &mut self.path, &step);
            self.visit(child)?;
        }
        Ok(true)
    }

    fn visit(&mut self, id: Id) -> Result<(), ErrorKind> {
        if self.path.len() > MAX_PATH {
            return Err(too_much(format!("names of at most {MAX_PATH} bytes")));
        }
        match self.arena.get(id) {
            Node::Tensor(raw) => {
                let name = if self.path.is_empty() { "tensor" } else { &self.path };
                let tensor = self.storages.tensor(self.arena, name, raw)?;
                let dims = 2 * tensor.shape.len() * size_of::<usize>();
                self.list(size_of::<TensorInfo>() + tensor.name.len() + dims)?;
                self.found.tensors.push(tensor);
            }
            Node::Global(Global::Unknown(_)) => self.note(id)?,
            Node::Object(object) => {
                self.note(object.class)?;
                self.enter(id)?;
            }
            Node::List(_) | Node::Tuple(_) | Node::Dict(_) => self.enter(id)?,
            _ => {}
        }
        Ok(())
    }

    fn list(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        self.listed += bytes;
        if self.listed > MAX_LISTED {
            return Err(too_much(format!("a listing of at most {MAX_LISTED} bytes")));
        }
        Ok(())
    }

    fn note(&mut self, class: Id) -> Result<(), ErrorKind> {
        let Node::Global(Global::Unknown(name)) = self.arena.get(class) else { return Ok(()) };
        if self.found.places.contains_key(name) {
            return Ok(());
        }
        let place = if self.path.is_empty() { "(the whole value)" } else { &self.path }.to_owned();
        // Once here and once in the listing of placeholders.
        self.list(2 * (place.len() + name.len()))?;
        self.found.places.insert(Rc::clone(name), place);
        Ok(())
    }

    fn enter(&mut self, id: Id) -> Result<(), ErrorKind> {
        if self.frames.len() == MAX_DEPTH {
            return Err(too_much(format!("values nested at most {MAX_DEPTH} deep")));
        }
        if self.open.insert(id) {
            self.frames.push(Frame { id, next: 0, path: self.path.len() });
        }
        Ok(())
    }
}

fn too_much(expected: String) -> ErrorKind {
    ErrorKind::invalid("pickle", expected, "more")
}

/// Values that hold neither tensors nor objects.
fn is_plain(node: &Node<'_>) -> bool {
    matches!(
        node,
        Node::None
            | Node::Bool(_)
            | Node::Int(_)
            | Node::Long(_)
            | Node::Float(_)
            | Node::Str(_)
            | Node::Bytes
            | Node::Persistent(_)
            | Node::Global(Global::Known(_))
    )
}

fn child(arena: &Arena<'_>, id: Id, n: usize) -> Option<(Step, Id)> {
    match arena.get(id) {
        Node::List(items) | Node::Tuple(items) => items.get(n).map(|&item| (Step::Index(n), item)),
        Node::Dict(pairs) => pairs.get(n).map(|&(key, value)| (Step::Key(key), value)),
        Node::Object(object) => part(object, n),
        _ => None,
    }
}

/// An object's parts: its items, its list, its state, and what it would have been made from.
fn part(object: &Object, n: usize) -> Option<(Step, Id)> {
    if let Some(&(key, value)) = object.items.get(n) {
        return Some((Step::Key(key), value));
    }
    let n = n - object.items.len();
    if let Some(&item) = object.list.get(n) {
        return Some((Step::Index(n), item));
    }
    let rest = [object.state, Some(object.args), Some(object.class)];
    rest.into_iter().flatten().nth(n - object.list.len()).map(|id| (Step::Same, id))
}

/// Adds a step to a path. A pickled module keeps its parts under these three names, which its own
/// `state_dict` leaves out.
fn extend(arena: &Arena<'_>, path: &mut String, step: &Step) {
    let before = path.len();
    if before > 0 && !matches!(step, Step::Same) {
        path.push('.');
    }
    let written = match step {
        Step::Same => Ok(()),
        Step::Index(n) => write!(path, "{n}"),
        Step::Key(key) => match arena.get(*key) {
            Node::Str(text) if matches!(text.as_ref(), "_modules" | "_parameters" | "_buffers") => {
                path.truncate(before);
                Ok(())
            }
            // One byte more than is allowed is enough to be refused.
            Node::Str(text) => path.write_str(text.get(..MAX_PATH + 1).unwrap_or(text)),
            Node::Int(n) => write!(path, "{n}"),
            Node::Bool(truth) => write!(path, "{truth}"),
            other => write!(path, "({})", other.kind()),
        },
    };
    // Writing to a String does not fail.
    debug_assert!(written.is_ok());
}
