//! The machine: a stack, a memo, and one match over the opcodes of protocols 0 to 5.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::reader::Reader;
use super::{Arena, Global, Id, Known, MAX_HELD, MAX_STEPS, Node, Object, RawTensor};
use crate::error::ErrorKind;

/// A pickle, read.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    pub(crate) arena: Arena<'a>,
    pub(crate) root: Id,
    /// Every unknown global, and whether the pickle asks for it to be called. It is listed even when its value was dropped: a
    /// pickle that wants only the side effect does that.
    pub(crate) unknown: BTreeMap<Rc<str>, bool>,
    /// Bytes up to the end of the pickle. Others may follow it.
    pub(crate) end: usize,
}

/// Reads the pickle that `bytes` begin with. `name` is what errors call it.
pub(crate) fn load<'a>(name: &'a str, bytes: &'a [u8]) -> Result<Pickle<'a>, ErrorKind> {
    load_within(name, bytes, MAX_HELD)
}

/// As [`load`], with at most `most` bytes of values.
pub(crate) fn load_within<'a>(name: &'a str, bytes: &'a [u8], most: usize) -> Result<Pickle<'a>, ErrorKind> {
    let mut machine = Machine {
        reader: Reader::new(name, bytes),
        arena: Arena::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        unknown: BTreeMap::new(),
        named: 0,
        steps: 0,
        most,
    };
    loop {
        machine.spend(1)?;
        let opcode = machine.reader.u8()?;
        if opcode == b'.' {
            let root = machine.pop()?;
            let end = machine.reader.position();
            return Ok(Pickle { arena: machine.arena, root, unknown: machine.unknown, end });
        }
        machine.step(opcode)?;
    }
}

/// Bytes of a module's or a class's name. Two bytes can repeat a text from the memo many times.
const MAX_NAME: usize = 256;

struct Machine<'a> {
    reader: Reader<'a>,
    arena: Arena<'a>,
    stack: Vec<Id>,
    /// Lengths of the stack at each open mark.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
    unknown: BTreeMap<Rc<str>, bool>,
    /// Bytes of the names in `unknown`.
    named: usize,
    steps: u64,
    /// Bytes that all of this may take.
    most: usize,
}

impl<'a> Machine<'a> {
    fn step(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        match opcode {
            0x80 => self.protocol(),
            0x95 => self.reader.take(8).map(drop), // FRAME: a hint for buffered reading.
            b'(' => self.mark(),
            b'0' => self.pop_or_mark(),
            b'1' => self.pop_to_mark().map(drop),
            b'2' => self.top().map(|id| self.stack.push(id)),
            b'p' | b'q' | b'r' | 0x94 | b'g' | b'h' | b'j' => self.memo(opcode),
            b'a' | b'e' | 0x90 => self.append(opcode),
            b's' | b'u' => self.set_items(opcode),
            b'c' | 0x93 => self.global(opcode),
            b'R' | 0x81 | 0x92 | b'o' | b'i' => self.construct(opcode),
            b'b' => self.build(),
            b'P' | b'Q' => self.persistent(opcode),
            b']' | b'l' | b')' | b't' | 0x85..=0x87 | b'}' | b'd' | 0x8f | 0x91 => self.container(opcode),
            b'N' => self.push_id(Arena::NONE),
            0x88 => self.push_id(Arena::TRUE),
            0x89 => self.push_id(Arena::FALSE),
            _ => self.atom(opcode),
        }
    }

    fn protocol(&mut self) -> Result<(), ErrorKind> {
        match self.reader.u8()? {
            0..=5 => Ok(()),
            other => Err(self.reader.invalid("protocol 0 to 5", other)),
        }
    }

    /// Numbers, text and bytes.
    fn atom(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        let r = &mut self.reader;
        let node = match opcode {
            b'I' | b'L' => r.int_line()?,
            b'J' => Node::Int(i32::from_le_bytes(r.array()?).into()),
            b'K' => Node::Int(r.u8()?.into()),
            b'M' => Node::Int(r.u16()?.into()),
            0x8a => {
                let n = r.u8()?.into();
                r.long(n)?
            }
            0x8b => {
                let n = r.u32()?.into();
                r.long(n)?
            }
            b'F' => Node::Float(r.number()?),
            b'G' => Node::Float(f64::from_be_bytes(r.array()?)),
            b'S' => r.quoted_line()?,
            b'V' => r.unicode_line()?,
            b'T' | b'U' | b'X' | 0x8c | 0x8d => {
                let n = self.length(opcode)?;
                self.reader.text(n)?
            }
            b'B' | b'C' | 0x8e | 0x96 => {
                let n = self.length(opcode)?;
                self.reader.take(n)?;
                Node::Bytes
            }
            0x82..=0x84 => return Err(r.invalid("a pickle that stands alone", "a copyreg extension code")),
            0x97 | 0x98 => return Err(r.invalid("a pickle that stands alone", "an out-of-band buffer")),
            other => return Err(r.invalid("an opcode of a pickle", format!("byte 0x{other:02x}"))),
        };
        self.push(node);
        Ok(())
    }

    fn length(&mut self, opcode: u8) -> Result<u64, ErrorKind> {
        Ok(match opcode {
            b'U' | b'C' | 0x8c => self.reader.u8()?.into(),
            b'T' | b'X' | b'B' => self.reader.u32()?.into(),
            _ => self.reader.u64()?,
        })
    }

    fn memo(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        let key = match opcode {
            b'p' | b'g' => self.reader.number()?,
            b'q' | b'h' => self.reader.u8()?.into(),
            b'r' | b'j' => self.reader.u32()?.into(),
            _ => self.memo.len() as u64,
        };
        if matches!(opcode, b'g' | b'h' | b'j') {
            let id = self.memo.get(&key).copied();
            let id = id.ok_or_else(|| self.reader.invalid("a value put in the memo before", key))?;
            self.stack.push(id);
        } else {
            let top = self.top()?;
            self.memo.insert(key, top);
        }
        Ok(())
    }

    fn container(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        let node = match opcode {
            b']' | 0x8f => Node::List(Vec::new()),
            b')' => Node::Tuple(Vec::new()),
            b'}' => Node::Dict(Vec::new()),
            b'l' | 0x91 => Node::List(self.pop_to_mark()?),
            b't' => Node::Tuple(self.pop_to_mark()?),
            b'd' => Node::Dict(self.pop_pairs()?),
            n => {
                let n = usize::from(n) - 0x84;
                if self.floor() + n > self.stack.len() {
                    return Err(self.empty());
                }
                Node::Tuple(self.stack.split_off(self.stack.len() - n))
            }
        };
        self.push(node);
        Ok(())
    }

    fn append(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        let items = if opcode == b'a' { vec![self.pop()?] } else { self.pop_to_mark()? };
        self.arena.grown(items.len());
        let target = self.top()?;
        match self.arena.get_mut(target) {
            Some(Node::List(list)) => list.extend(items),
            Some(Node::Object(object)) => object.list.extend(items),
            _ => return Err(self.reader.invalid("a list to append to", self.arena.describe(target))),
        }
        Ok(())
    }

    fn set_items(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        let pairs = if opcode == b's' {
            let value = self.pop()?;
            vec![(self.pop()?, value)]
        } else {
            self.pop_pairs()?
        };
        self.arena.grown(pairs.len());
        let target = self.top()?;
        match self.arena.get_mut(target) {
            Some(Node::Dict(dict)) => dict.extend(pairs),
            Some(Node::Object(object)) => object.items.extend(pairs),
            _ => return Err(self.reader.invalid("a dictionary to fill", self.arena.describe(target))),
        }
        Ok(())
    }

    fn global(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        let (module, name) = if opcode == b'c' {
            (self.reader.text_line()?, self.reader.text_line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            (self.text_of(module)?, self.text_of(name)?)
        };
        let global = self.find(module, name)?;
        self.push(Node::Global(global));
        Ok(())
    }

    fn text_of(&self, id: Id) -> Result<Cow<'a, str>, ErrorKind> {
        match self.arena.get(id) {
            Node::Str(text) if text.len() <= MAX_NAME => Ok(text.clone()),
            _ => Err(self.reader.invalid("a global's name", self.arena.describe(id))),
        }
    }

    fn find(&mut self, module: Cow<'a, str>, name: Cow<'a, str>) -> Result<Global, ErrorKind> {
        if module.len().max(name.len()) > MAX_NAME {
            return Err(self
                .reader
                .invalid("a global's name", format!("{} bytes", module.len().max(name.len()))));
        }
        if let Some(known) = Known::find(&module, &name) {
            return Ok(Global::Known(known));
        }
        let whole = format!("{module}.{name}");
        let name = match self.unknown.get_key_value(whole.as_str()) {
            Some((name, _)) => Rc::clone(name),
            None => {
                self.named += whole.len();
                let name = Rc::from(whole);
                self.unknown.insert(Rc::clone(&name), false);
                name
            }
        };
        Ok(Global::Unknown(name))
    }

    /// The opcodes that call or instantiate.
    fn construct(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        let mut state = None;
        let (class, args) = match opcode {
            b'i' => {
                let (module, name) = (self.reader.text_line()?, self.reader.text_line()?);
                let global = self.find(module, name)?;
                let args = Node::Tuple(self.pop_to_mark()?);
                (self.arena.push(Node::Global(global)), self.arena.push(args))
            }
            b'o' => {
                let mut args = self.pop_to_mark()?;
                if args.is_empty() {
                    return Err(self.empty());
                }
                (args.remove(0), self.arena.push(Node::Tuple(args)))
            }
            0x92 => {
                state = Some(self.pop()?)
                    .filter(|&kwargs| self.arena.dict(kwargs).is_some_and(|d| !d.is_empty()));
                let args = self.pop()?;
                (self.pop()?, args)
            }
            _ => {
                let args = self.pop()?;
                (self.pop()?, args)
            }
        };
        let id = self.call(class, args, state)?;
        self.stack.push(id);
        Ok(())
    }

    /// What calling `class` with `args` would give, for the few that are known; else an inert object.
    fn call(&mut self, class: Id, args: Id, state: Option<Id>) -> Result<Id, ErrorKind> {
        let known = match self.arena.get(class) {
            Node::Global(Global::Known(known)) => *known,
            other => {
                if let Node::Global(Global::Unknown(name)) = other {
                    self.unknown.insert(Rc::clone(name), true);
                }
                let object = Object { class, args, state, items: Vec::new(), list: Vec::new() };
                return Ok(self.arena.push(Node::Object(Box::new(object))));
            }
        };
        let given = self.arena.items(args).unwrap_or_default();
        let wrong = |n: usize| {
            let found = format!("{} arguments", given.len());
            self.reader.invalid(&format!("{n} arguments for {known}"), found)
        };
        match (known, given) {
            (Known::Tensor, &[storage, offset, shape, strides, ..]) => {
                Ok(self.tensor(RawTensor { storage, offset, shape, strides, dtype: None }))
            }
            (Known::TensorOfDtype, &[storage, offset, shape, strides, _, _, dtype, ..]) => {
                Ok(self.tensor(RawTensor { storage, offset, shape, strides, dtype: Some(dtype) }))
            }
            (Known::Tensor | Known::TensorOfDtype, _) => Err(wrong(4)),
            (Known::Parameter, &[data, ..]) => Ok(data),
            (Known::FromType, &[build, _, args, ..]) => self.subclass(build, args),
            (Known::Dict, given) => {
                let first = given.first().copied();
                self.dict(first)
            }
            (Known::Sequence, []) => Ok(self.arena.push(Node::List(Vec::new()))),
            // The argument itself: a copy would let a few bytes make a large value many times over.
            (Known::Sequence | Known::Encode | Known::Device, &[inner, ..]) => Ok(inner),
            _ => Err(wrong(1)),
        }
    }

    fn tensor(&mut self, raw: RawTensor) -> Id {
        self.arena.push(Node::Tensor(Box::new(raw)))
    }

    /// A tensor subclass: what its builder gives. Its builder must not be of this kind again, so the recursion ends.
    fn subclass(&mut self, build: Id, args: Id) -> Result<Id, ErrorKind> {
        match self.arena.get(build) {
            Node::Global(Global::Known(Known::FromType)) => {
                Err(self.reader.invalid("a builder of tensors", "a builder of builders"))
            }
            _ => self.call(build, args, None),
        }
    }

    /// A new dictionary, from pairs where Python 2 gave them as the argument.
    fn dict(&mut self, from: Option<Id>) -> Result<Id, ErrorKind> {
        let pairs: Vec<(Id, Id)> = match from.map(|id| self.arena.get(id)) {
            Some(Node::Dict(pairs)) => pairs.clone(),
            Some(Node::List(list)) => list
                .iter()
                .filter_map(|&pair| match self.arena.items(pair) {
                    Some(&[key, value]) => Some((key, value)),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        self.spend(pairs.len() as u64)?;
        Ok(self.arena.push(Node::Dict(pairs)))
    }

    /// State for an object. That of a dictionary or a tensor is attributes (`_metadata`) that hold no weights.
    fn build(&mut self) -> Result<(), ErrorKind> {
        let state = self.pop()?;
        let target = self.top()?;
        if let Some(Node::Object(object)) = self.arena.get_mut(target) {
            object.state = Some(state);
        }
        Ok(())
    }

    fn persistent(&mut self, opcode: u8) -> Result<(), ErrorKind> {
        let id = if opcode == b'P' {
            let text = self.reader.text_line()?;
            self.arena.push(Node::Str(text))
        } else {
            self.pop()?
        };
        match self.arena.items(id) {
            // Files of before the zip name a module's class so, beside its source.
            Some(&[kind, class, ..]) if self.arena.str(kind) == Some("module") => self.stack.push(class),
            _ => self.push(Node::Persistent(id)),
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<(), ErrorKind> {
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn push_id(&mut self, id: Id) -> Result<(), ErrorKind> {
        self.stack.push(id);
        Ok(())
    }

    fn push(&mut self, node: Node<'a>) {
        let id = self.arena.push(node);
        self.stack.push(id);
    }

    /// Where the innermost mark is: values below it belong to outer containers.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn empty(&self) -> ErrorKind {
        self.reader.invalid("a value on the stack", "none")
    }

    fn top(&self) -> Result<Id, ErrorKind> {
        let top = self.stack.last().filter(|_| self.stack.len() > self.floor());
        top.copied().ok_or_else(|| self.empty())
    }

    fn pop(&mut self) -> Result<Id, ErrorKind> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// `POP` takes a mark away where there is nothing above it.
    fn pop_or_mark(&mut self) -> Result<(), ErrorKind> {
        if !self.marks.is_empty() && self.stack.len() == self.floor() {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, ErrorKind> {
        let mark = self.marks.pop().ok_or_else(|| self.reader.invalid("an open mark", "none"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn pop_pairs(&mut self) -> Result<Vec<(Id, Id)>, ErrorKind> {
        let items = self.pop_to_mark()?;
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.reader.invalid("a value for each key", format!("{} values", items.len())));
        }
        Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
    }

    fn spend(&mut self, steps: u64) -> Result<(), ErrorKind> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MAX_STEPS {
            return Err(self.reader.invalid(&format!("at most {MAX_STEPS} opcodes"), "more"));
        }
        if self.held() > self.most {
            return Err(self.reader.invalid(&format!("values of at most {} bytes", self.most), "more"));
        }
        Ok(())
    }

    /// About how many bytes all of this takes.
    fn held(&self) -> usize {
        // A hash table is at worst a little less than half full; a tree's node holds eleven entries, half of them used.
        const MEMO: usize = 40;
        const NAME: usize = 80;
        let stacks = self.stack.len() * size_of::<Id>() + self.marks.len() * size_of::<usize>();
        let names = self.named + self.unknown.len() * NAME;
        self.arena.held() + self.memo.len() * MEMO + stacks + names
    }
}
