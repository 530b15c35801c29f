//! How the weights of the graph are called in files: tables of names, and how a name is found in a listing.

use std::collections::HashMap;
use std::ops::Range;

use crate::dim::Stack;
use crate::rotary::RotaryPairs;

/// A name and shape as a file gives them. The graph binds to these, not to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The tensor's name.
    pub name: String,
    /// Its shape, slowest dimension first.
    pub shape: Vec<usize>,
    /// How it is stored, as shown: `f16`, `q4_k`.
    pub dtype: &'static str,
    /// Its size in the file.
    pub bytes: u64,
    /// Tensors with the same number here are one tensor under several names.
    pub storage: usize,
}

/// One row of a table: what the graph calls a module or a weight, and what a file calls it.
///
/// `{s}` stands for `encoder` or `decoder`, `{n}` for a layer. A row names a module, and `.weight` or `.bias` is
/// appended on both sides, unless the left side itself ends in one of them; then the right side is a whole tensor
/// name. A right side that ends in `[i/n]` is the i-th of n equal groups of rows of that tensor, in `[i/n by head]` of the rows
/// of each head; one that ends in `[q|name]`, `[k|name]` or `[v|name]` is that projection of a tensor that packs all three,
/// of which q has as many rows as the tensor of that name has columns, and k and v have the rest. One that ends in `^T` is
/// stored as [input, output], as GPT-2's Conv1D does, and is read transposed before rows are counted.
pub type Row = (&'static str, &'static str);

/// A way of naming the weights, used by one or more families.
#[derive(Debug)]
pub struct NameScheme {
    /// Its name as shown.
    pub id: &'static str,
    /// Its tables. Rows with the same left side are alternatives, tried in order. Where there are none, a file calls its tensors
    /// as the graph calls its weights.
    pub tables: &'static [&'static [Row]],
    /// Ends of the names of tensors that are constants of the model, not parameters.
    pub buffers: &'static [&'static str],
    /// Which features are a pair for rotary positions in files with these names, where that follows from them.
    pub pairs: Option<RotaryPairs>,
}

/// A tensor in a file, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Index into the listing.
    pub tensor: usize,
    /// The rows of this weight, where the tensor packs several weights.
    pub rows: Option<Range<usize>>,
    /// The file holds it as [input, output]; rows are those of the transposed matrix.
    pub transposed: bool,
    /// The file holds the rows of so many weights head by head; rows are those of the weights one after another.
    pub by_head: Option<usize>,
}

impl Found {
    /// The shape of what was found.
    pub fn shape(&self, tensors: &[TensorSpec]) -> Vec<usize> {
        let mut shape = tensors[self.tensor].shape.clone();
        if self.transposed {
            shape.reverse();
        }
        if let (Some(rows), Some(first)) = (&self.rows, shape.first_mut()) {
            *first = rows.len();
        }
        shape
    }
}

impl NameScheme {
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|t| t.iter())
    }

    /// What files may call a weight of the graph, best first, without any prefix.
    pub fn candidates(&self, weight_path: &str) -> Vec<String> {
        if self.tables.is_empty() {
            return vec![weight_path.to_owned()];
        }
        let slot = Slot::parse(weight_path);
        let fill = |template: &str| match slot.layer {
            Some((stack, n)) => template.replace("{s}", stack.name()).replace("{n}", &n.to_string()),
            None => template.to_owned(),
        };
        let named = |&(left, right): &Row| {
            if left == slot.general || left == slot.specific {
                return Some(fill(right));
            }
            let module = slot.general.strip_suffix(slot.leaf).and_then(|m| m.strip_suffix('.'));
            let specific = slot.specific.strip_suffix(slot.leaf).and_then(|m| m.strip_suffix('.'));
            (Some(left) == module || Some(left) == specific).then(|| with_leaf(&fill(right), slot.leaf))
        };
        self.rows().filter_map(named).collect()
    }

    /// Whether a tensor is a constant of the model, not a parameter.
    pub(crate) fn is_buffer(&self, tensor_name: &str) -> bool {
        self.buffers.iter().any(|end| tensor_name.ends_with(end))
    }

    /// The rows that name tensors of layers, ready to be matched against many names.
    pub(crate) fn patterns(&self) -> Patterns {
        let mut patterns: HashMap<String, Vec<(Stack, String)>> = HashMap::new();
        for &(left, right) in self.rows() {
            let whole = left.ends_with(".weight") || left.ends_with(".bias");
            let endings: &[&str] = if whole { &[""] } else { &[".weight", ".bias"] };
            let right = tensor_name(right);
            for stack in Stack::ALL {
                if !left.starts_with("{s}") && !left.starts_with(stack.name()) {
                    continue;
                }
                let right = right.replace("{s}", stack.name());
                let Some((head, tail)) = right.split_once("{n}") else { continue };
                for ending in endings {
                    patterns.entry(format!("{tail}{ending}")).or_default().push((stack, head.to_owned()));
                }
            }
        }
        Patterns(patterns)
    }
}

/// A module's weight or bias. Only the matrix is stored transposed, never the bias.
fn with_leaf(module: &str, leaf: &str) -> String {
    match module.strip_suffix("^T") {
        Some(module) if leaf == "weight" => format!("{module}.{leaf}^T"),
        Some(module) => format!("{module}.{leaf}"),
        None => format!("{module}.{leaf}"),
    }
}

/// The text around a layer's number in the names of a scheme: what follows it, then the stack and what comes before it.
pub(crate) struct Patterns(HashMap<String, Vec<(Stack, String)>>);

impl Patterns {
    /// The layer of a tensor and the prefix before the scheme's name, if the name belongs to the scheme.
    pub(crate) fn layer_of<'n>(&self, name: &'n str) -> Option<(Stack, usize, &'n str)> {
        let is_digit = |at: usize| name.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        // Each place where a number ends.
        (1..name.len()).filter(|&end| is_digit(end - 1) && !is_digit(end)).find_map(|end| {
            let candidates = self.0.get(name.get(end..)?)?;
            let start = end - name[..end].bytes().rev().take_while(u8::is_ascii_digit).count();
            let (before, number) = (&name[..start], &name[start..end]);
            candidates.iter().find_map(|(stack, head)| {
                let prefix = before.strip_suffix(head.as_str())?;
                let starts_a_name = prefix.is_empty() || prefix.ends_with('.');
                starts_a_name.then_some((*stack, number.parse().ok()?, prefix))
            })
        })
    }
}

/// A weight's path with its layer taken out, so that it can be looked up in a table.
struct Slot<'a> {
    layer: Option<(Stack, usize)>,
    /// `{s}.{n}.self_attn.q.weight`
    general: String,
    /// `encoder.{n}.self_attn.q.weight`: for names that differ between the stacks.
    specific: String,
    leaf: &'a str,
}

impl<'a> Slot<'a> {
    fn parse(path: &'a str) -> Self {
        let leaf = path.rsplit('.').next().unwrap_or(path);
        let node = crate::graph::NodePath::from(path.to_owned());
        let layer = node.layer();
        let (general, specific) = match layer {
            Some((stack, _)) => {
                let rest = node.within_layer();
                (format!("{{s}}.{{n}}.{rest}"), format!("{}.{{n}}.{rest}", stack.name()))
            }
            None => (path.to_owned(), path.to_owned()),
        };
        Self { layer, general, specific, leaf }
    }
}

/// A scheme applied to a listing with a prefix: finds tensors by their names in the graph.
pub(crate) struct Lookup<'a> {
    pub(crate) scheme: &'a NameScheme,
    pub(crate) prefix: String,
    pub(crate) tensors: &'a [TensorSpec],
    by_name: HashMap<&'a str, usize>,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(scheme: &'a NameScheme, prefix: String, tensors: &'a [TensorSpec]) -> Self {
        let by_name = tensors.iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
        Self { scheme, prefix, tensors, by_name }
    }

    /// The tensor of a weight, by the first of its names that the file has.
    pub(crate) fn find(&self, weight_path: &str) -> Option<Found> {
        self.find_all(weight_path).into_iter().next()
    }

    /// Every tensor that has one of the weight's names.
    pub(crate) fn find_all(&self, weight_path: &str) -> Vec<Found> {
        self.scheme.candidates(weight_path).iter().filter_map(|c| self.locate(c)).collect()
    }

    /// The name the file would use for a weight it does not have.
    pub(crate) fn expected_name(&self, weight_path: &str) -> Option<String> {
        let name = self.scheme.candidates(weight_path).into_iter().next()?;
        Some(format!("{}{}", self.prefix, tensor_name(&name)))
    }

    /// `lm_head` is stored without the prefix `model.` of the other names.
    fn locate(&self, candidate: &str) -> Option<Found> {
        let tensor = self.named(tensor_name(candidate))?;
        let transposed = candidate.contains("^T");
        let whole = Found { tensor, rows: None, transposed, by_head: None };
        let Some((_, part)) = candidate.split_once('[') else { return Some(whole) };
        let part = part.trim_end_matches("^T").trim_end_matches(']');
        let count = *whole.shape(self.tensors).first()?;
        if let Some((projection, sibling)) = part.split_once('|') {
            let own = self.named(sibling).and_then(|tensor| self.tensors[tensor].shape.last().copied())?;
            return Some(Found { rows: Some(packed_rows(projection, own, count)?), ..whole });
        }
        let (part, by_head) = part.strip_suffix(" by head").map_or((part, false), |part| (part, true));
        let parts = part.split_once('/').and_then(|(_, n)| n.parse().ok()).filter(|_| by_head);
        Some(Found { rows: Some(rows_of(part, count)?), by_head: parts, ..whole })
    }

    /// The tensor of a name, with the prefix, then with less and less of it.
    fn named(&self, name: &str) -> Option<usize> {
        self.prefixes().find_map(|prefix| self.by_name.get(format!("{prefix}{name}").as_str())).copied()
    }

    fn prefixes(&self) -> impl Iterator<Item = &str> {
        let mut next = Some(self.prefix.as_str());
        std::iter::from_fn(move || {
            let current = next?;
            next = current.strip_suffix('.').map(|p| p.rfind('.').map_or("", |dot| &p[..=dot]));
            Some(current)
        })
    }
}

/// The name of the tensor in a right side of a table.
pub(crate) fn tensor_name(right: &str) -> &str {
    right.split(['[', '^']).next().unwrap_or(right)
}

/// `1/3` of 96 rows is 32..64.
fn rows_of(part: &str, rows: usize) -> Option<Range<usize>> {
    let (i, n) = part.split_once('/')?;
    let (i, n) = (i.parse::<usize>().ok()?, n.parse::<usize>().ok()?);
    let each = rows.checked_div(n)?;
    (rows.is_multiple_of(n) && i < n).then(|| i * each..(i + 1) * each)
}

/// The rows of q, k or v where all three are packed, q first: q has `own` of them, k and v share the rest.
fn packed_rows(projection: &str, own: usize, rows: usize) -> Option<Range<usize>> {
    let rest = rows.checked_sub(own).filter(|rest| rest.is_multiple_of(2))?;
    let (k, v) = (own, own + rest / 2);
    match projection {
        "q" => Some(0..k),
        "k" => Some(k..v),
        "v" => Some(v..rows),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEME: NameScheme = NameScheme {
        id: "test",
        tables: &[&[
            ("{s}.{n}.self_attn.q", "{s}.layers.{n}.q_proj"),
            ("decoder.{n}.self_attn.k.weight", "h.{n}.packed.weight[1/3]^T"),
            ("decoder.{n}.ffn.out", "h.{n}.proj^T"),
            ("logits", "lm_head"),
            ("logits", "head"),
        ]],
        buffers: &["lm_head.bias"],
        pairs: None,
    };

    #[test]
    fn a_weight_has_the_names_that_the_table_gives_it() {
        let cases: &[(&str, &[&str])] = &[
            ("encoder.3.self_attn.q.weight", &["encoder.layers.3.q_proj.weight"]),
            ("decoder.0.self_attn.q.bias", &["decoder.layers.0.q_proj.bias"]),
            ("decoder.2.self_attn.k.weight", &["h.2.packed.weight[1/3]^T"]),
            // A matrix is stored transposed, its bias is not.
            ("decoder.2.ffn.out.weight", &["h.2.proj.weight^T"]),
            ("decoder.2.ffn.out.bias", &["h.2.proj.bias"]),
            ("logits.weight", &["lm_head.weight", "head.weight"]),
            ("encoder.0.ffn.out.weight", &[]),
        ];
        for (weight, names) in cases {
            assert_eq!(SCHEME.candidates(weight), *names, "{weight}");
        }
    }

    fn spec(name: &str, shape: &[usize]) -> TensorSpec {
        TensorSpec { name: name.into(), shape: shape.to_vec(), dtype: "f32", bytes: 0, storage: 0 }
    }

    #[test]
    fn a_part_of_a_transposed_tensor_has_the_shape_that_the_graph_asks_for() {
        let tensors = [spec("model.h.0.packed.weight", &[5, 12]), spec("lm_head.weight", &[9, 5])];
        let lookup = Lookup::new(&SCHEME, "model.".into(), &tensors);
        let found = lookup.find("decoder.0.self_attn.k.weight").map(|f| (f.rows.clone(), f.shape(&tensors)));
        assert_eq!(found, Some((Some(4..8), vec![4, 5])));
        // It is stored without the prefix.
        assert_eq!(lookup.find("logits.weight").map(|f| f.tensor), Some(1));
        assert_eq!(lookup.find("encoder.0.self_attn.q.weight"), None);
    }

    #[test]
    fn rows_are_shared_out_evenly_or_not_at_all() {
        let cases =
            [("0/3", 96, Some(0..32)), ("2/3", 96, Some(64..96)), ("3/3", 96, None), ("0/3", 95, None)];
        for (part, rows, expected) in cases {
            assert_eq!(rows_of(part, rows), expected, "{part} of {rows}");
        }
    }

    #[test]
    fn a_layer_is_read_off_a_name_behind_any_prefix() {
        let patterns = SCHEME.patterns();
        let cases = [
            ("encoder.layers.12.q_proj.weight", Some((Stack::Encoder, 12, ""))),
            ("model.decoder.layers.0.q_proj.bias", Some((Stack::Decoder, 0, "model."))),
            ("transformer.h.7.proj.weight", Some((Stack::Decoder, 7, "transformer."))),
            ("xencoder.layers.1.q_proj.weight", None),
            ("encoder.layers.1.k_proj.weight", None),
        ];
        for (name, expected) in cases {
            assert_eq!(patterns.layer_of(name), expected, "{name}");
        }
    }
}
