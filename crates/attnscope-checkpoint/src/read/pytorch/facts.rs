//! Plain values of the pickle as JSON: OpenAI's `dims`, fairseq's `args` and `cfg`, Lightning's `hyper_parameters`.

use serde_json::{Map, Number, Value};

use crate::listing::Config;
use crate::read::clip;
use crate::read::pickle::{Arena, Id, Node, Object, Pickle};

/// Deeper than any configuration; this is the recursion of [`Facts::value`].
const MAX_DEPTH: usize = 32;

/// Limits of the values and of the bytes of text in all facts of a file. The rest is left out.
const MAX_VALUES: usize = 200_000;
const MAX_TEXT: usize = 16 << 20;

/// One configuration for each top-level entry that has facts, and one for the plain entries themselves.
pub(super) fn configs(pickle: &Pickle<'_>) -> Vec<Config> {
    let mut facts = Facts { arena: &pickle.arena, values: MAX_VALUES, text: MAX_TEXT };
    let mut configs = Vec::new();
    let mut plain = Map::new();
    for &(key, value) in facts.fields(pickle.root) {
        let Some(key) = facts.key(key) else { continue };
        match facts.value(value, 0) {
            Some(Value::Object(facts)) if facts.is_empty() => {}
            Some(Value::Object(facts)) => configs.push(Config { source: key, facts }),
            Some(value) => {
                plain.insert(key, value);
            }
            None => {}
        }
    }
    if !plain.is_empty() {
        configs.push(Config { source: "top level".into(), facts: plain });
    }
    configs
}

struct Facts<'p, 'a> {
    arena: &'p Arena<'a>,
    values: usize,
    text: usize,
}

impl<'p> Facts<'p, '_> {
    /// A value as JSON; `None` for a tensor and for what holds nothing but tensors.
    fn value(&mut self, id: Id, depth: usize) -> Option<Value> {
        self.values = self.values.checked_sub(1)?;
        if depth > MAX_DEPTH {
            return None;
        }
        match self.arena.get(id) {
            Node::None => Some(Value::Null),
            Node::Bool(truth) => Some(Value::Bool(*truth)),
            Node::Int(n) => Some((*n).into()),
            Node::Long(bytes) => Some(Value::String(hex(bytes))),
            // JSON has no infinities; fairseq's configurations do.
            Node::Float(x) => Some(Number::from_f64(*x).map_or(Value::String(x.to_string()), Value::Number)),
            Node::Str(text) => self.string(text).map(Value::String),
            Node::List(items) | Node::Tuple(items) => self.list(items, depth),
            Node::Dict(pairs) => Some(Value::Object(self.map(pairs, depth))),
            Node::Object(object) => self.object(object, depth),
            Node::Global(_) => Some(Value::String(clip(&self.arena.class_name(id)))),
            Node::Bytes | Node::Tensor(_) | Node::Persistent(_) => None,
        }
    }

    fn string(&mut self, text: &str) -> Option<String> {
        self.text = self.text.checked_sub(text.len())?;
        Some(text.to_owned())
    }

    fn list(&mut self, items: &'p [Id], depth: usize) -> Option<Value> {
        let values: Vec<Value> = items.iter().map_while(|&item| self.value(item, depth + 1)).collect();
        // A list with tensors in it is not a fact, not even in part.
        (values.len() == items.len()).then_some(Value::Array(values))
    }

    fn map(&mut self, pairs: &'p [(Id, Id)], depth: usize) -> Map<String, Value> {
        let mut map = Map::new();
        for &(key, value) in pairs {
            if self.values == 0 {
                break;
            }
            let was_empty = self.arena.dict(value).is_some_and(<[_]>::is_empty);
            let Some(value) = self.value(value, depth + 1) else { continue };
            // A dictionary of tensors alone is not a fact; one that is empty in the file is.
            let told = was_empty || value.as_object().is_none_or(|facts| !facts.is_empty());
            if let Some(key) = self.key(key).filter(|_| told) {
                map.insert(key, value);
            }
        }
        map
    }

    fn key(&mut self, key: Id) -> Option<String> {
        match self.arena.get(key) {
            Node::Str(text) => self.string(text),
            Node::Int(n) => Some(n.to_string()),
            Node::Bool(truth) => Some(truth.to_string()),
            _ => None,
        }
    }

    /// An object is the facts in its state. omegaconf wraps each value in a node and each group in `_content`; an
    /// enum has no state, only the value it is made from.
    fn object(&mut self, object: &'p Object, depth: usize) -> Option<Value> {
        let state = object.state.unwrap_or(object.args);
        for wrapper in ["_content", "_val"] {
            if let Some(inner) = self.arena.field(state, wrapper) {
                return self.value(inner, depth + 1);
            }
        }
        let fields = self.object_fields(object);
        if !fields.is_empty() {
            return Some(Value::Object(self.map(fields, depth)));
        }
        match self.arena.items(object.args) {
            Some(&[only]) if object.state.is_none() => self.value(only, depth + 1),
            _ => Some(Value::String(clip(&self.arena.class_name(object.class)))),
        }
    }

    fn object_fields(&self, object: &'p Object) -> &'p [(Id, Id)] {
        let state = object.state.map(|id| self.arena.get(id));
        let from_state = match state {
            Some(Node::Dict(pairs)) => pairs.as_slice(),
            // With `__slots__`, state is a pair of dictionaries, one of which is empty or None.
            Some(Node::Tuple(pair)) => pair
                .iter()
                .take(2)
                .filter_map(|&part| self.arena.dict(part))
                .max_by_key(|d| d.len())
                .unwrap_or(&[]),
            _ => &[],
        };
        if from_state.is_empty() { &object.items } else { from_state }
    }

    /// The entries of the file's value: a dictionary's, or those of an object's state.
    fn fields(&self, root: Id) -> &'p [(Id, Id)] {
        match self.arena.get(root) {
            Node::Dict(pairs) => pairs,
            Node::Object(object) => self.object_fields(object),
            _ => &[],
        }
    }
}

/// An integer too long for JSON, most significant byte first.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().rev().take(32).map(|b| format!("{b:02x}")).collect();
    format!("0x{digits}")
}
