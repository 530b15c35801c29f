//! The values a pickle can build.

use std::borrow::Cow;
use std::rc::Rc;

use super::Known;

/// A value's number in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(u32);

/// A value. Strings borrow from the pickle where it needs no decoding.
#[derive(Debug)]
pub(crate) enum Node<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits: two's complement, little-endian.
    Long(&'a [u8]),
    Float(f64),
    Str(Cow<'a, str>),
    /// These are neither facts nor weights, so they are not kept.
    Bytes,
    /// Lists and sets; the difference does not matter here.
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Object(Box<Object>),
    Tensor(Box<RawTensor>),
    /// A persistent id: torch names its storages with one.
    Persistent(Id),
}

/// A `module.name` of the pickle.
#[derive(Debug, Clone)]
pub(crate) enum Global {
    Known(Known),
    /// Its whole name. A pickle can repeat it with a few bytes, so it is not copied.
    Unknown(Rc<str>),
}

/// What an unknown callable was given. It was not called.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) class: Id,
    pub(crate) args: Id,
    pub(crate) state: Option<Id>,
    pub(crate) items: Vec<(Id, Id)>,
    pub(crate) list: Vec<Id>,
}

/// The arguments of one of torch's tensor builders, unchecked: they are checked where the tensor's name is known.
#[derive(Debug)]
pub(crate) struct RawTensor {
    pub(crate) storage: Id,
    pub(crate) offset: Id,
    pub(crate) shape: Id,
    pub(crate) strides: Id,
    /// Given where the storage is bytes without a type.
    pub(crate) dtype: Option<Id>,
}

/// All values of one pickle.
#[derive(Debug)]
pub(crate) struct Arena<'a> {
    nodes: Vec<Node<'a>>,
    held: usize,
}

impl<'a> Arena<'a> {
    /// The values that a pickle repeats most; an opcode for one of them makes no new node.
    pub(super) const NONE: Id = Id(0);
    pub(super) const TRUE: Id = Id(1);
    pub(super) const FALSE: Id = Id(2);

    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::None, Node::Bool(true), Node::Bool(false)], held: 0 }
    }

    pub(super) fn push(&mut self, node: Node<'a>) -> Id {
        // The number of nodes is bounded by MAX_STEPS, which fits.
        let id = Id(self.nodes.len() as u32);
        self.held += size_of::<Node<'_>>() + node.heap();
        self.nodes.push(node);
        id
    }

    /// About how many bytes the values take.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Counts items that were added to a value.
    pub(super) fn grown(&mut self, items: usize) {
        self.held += items * size_of::<(Id, Id)>();
    }

    /// All persistent ids, also those whose value the pickle dropped.
    pub(crate) fn persistent(&self) -> impl Iterator<Item = Id> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Persistent(id) => Some(*id),
            _ => None,
        })
    }

    pub(crate) fn get(&self, id: Id) -> &Node<'a> {
        self.nodes.get(id.0 as usize).unwrap_or(&Node::None)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Node<'a>> {
        self.nodes.get_mut(id.0 as usize)
    }

    pub(crate) fn str(&self, id: Id) -> Option<&str> {
        match self.get(id) {
            Node::Str(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn items(&self, id: Id) -> Option<&[Id]> {
        match self.get(id) {
            Node::List(items) | Node::Tuple(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn dict(&self, id: Id) -> Option<&[(Id, Id)]> {
        match self.get(id) {
            Node::Dict(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// The value of one of the first fields of an object's state. Only the first, because a pickle may give one
    /// large dictionary to many objects.
    pub(crate) fn field(&self, dict: Id, key: &str) -> Option<Id> {
        self.dict(dict)?.iter().take(32).find(|(k, _)| self.str(*k) == Some(key)).map(|(_, v)| *v)
    }

    /// `module.name` of a global, or what the value is instead.
    pub(crate) fn class_name(&self, id: Id) -> String {
        match self.get(id) {
            Node::Global(Global::Unknown(name)) => name.to_string(),
            Node::Global(Global::Known(known)) => known.to_string(),
            Node::Object(object) => match self.get(object.class) {
                Node::Global(Global::Unknown(name)) => format!("{name}()"),
                _ => "an object".into(),
            },
            other => other.kind().into(),
        }
    }

    /// What a value is, for errors.
    pub(crate) fn describe(&self, id: Id) -> String {
        match self.get(id) {
            Node::Global(_) => format!("the global {}", super::super::clip(&self.class_name(id))),
            Node::Object(o) => format!("an object of {}", super::super::clip(&self.class_name(o.class))),
            Node::Int(n) => format!("the number {n}"),
            Node::Str(text) => format!("the text {:?}", super::super::clip(text)),
            other => other.kind().into(),
        }
    }
}

impl Node<'_> {
    /// Bytes beside the node itself. An allocation takes some bytes more than were asked for.
    fn heap(&self) -> usize {
        const ALLOCATION: usize = 24;
        match self {
            Self::Str(Cow::Owned(text)) => ALLOCATION + text.capacity(),
            Self::List(items) | Self::Tuple(items) => ALLOCATION + items.capacity() * size_of::<Id>(),
            Self::Dict(pairs) => ALLOCATION + pairs.capacity() * size_of::<(Id, Id)>(),
            Self::Object(_) => ALLOCATION + size_of::<Object>(),
            Self::Tensor(_) => ALLOCATION + size_of::<RawTensor>(),
            _ => 0,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a truth value",
            Self::Int(_) | Self::Long(_) => "a number",
            Self::Float(_) => "a float",
            Self::Str(_) => "text",
            Self::Bytes => "bytes",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dictionary",
            Self::Global(_) => "a global",
            Self::Object(_) => "an object",
            Self::Tensor(_) => "a tensor",
            Self::Persistent(_) => "a persistent id",
        }
    }
}
