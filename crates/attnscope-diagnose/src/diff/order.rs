//! The order of computation of two dumps of other programs, where no model gives it: the order in which they were written, if
//! it is that of the calls, or the order of the graph whose modules the names are. Where neither is known, there is no first
//! divergence.

use std::cmp::Reverse;
use std::collections::HashMap;

use attnscope_checkpoint::{DType, Dump, DumpKind};
use attnscope_graph::{
    Architecture, EmbeddingNorm, Front, Graph, NodeId, NormPlace, Positions, Role, Stack, Wiring, build,
};

use super::names::{MOST_PARTS, Names, computed_before, module_of};
use super::side::Side;

/// Where the order of the compared nodes comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The graph of the model, or of a trace.
    Graph,
    /// The order in which a dump's tensors were written.
    Written,
    /// The modules that the names mean.
    Names,
    /// The numbers at the start of the names.
    Numbers,
    /// No order is known.
    Unknown,
}

impl Order {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Written => "written",
            Self::Names => "names",
            Self::Numbers => "numbers",
            Self::Unknown => "unknown",
        }
    }
}

/// Layers of a graph that is built only for the order of its names.
const MOST_LAYERS: usize = 256;
/// The share of recognised neighbours that may contradict the order of a model.
const MOST_INVERTED: f64 = 0.1;

/// A graph with every node that a name may mean.
pub(super) struct Scheme {
    names: Names,
    graph: Graph,
}

impl Scheme {
    /// For tensors of these names.
    pub(super) fn of<'n>(all: impl Iterator<Item = &'n str> + Clone) -> Self {
        let numbers = all.clone().flat_map(|name| {
            name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<usize>().ok())
        });
        let most = numbers.filter(|&n| n < MOST_LAYERS).max().map_or(1, |n| n + 1);
        let any = |is: &dyn Fn(&str) -> bool| all.clone().any(|name| is(&module_of(name)));
        let ends =
            |ends: &'static [&'static str]| move |name: &str| ends.iter().any(|end| name.ends_with(end));
        let audio = any(&ends(&["conv1", "conv2", "audio.mel", "input_features"]));
        // T5 and Whisper norm first, GPT-2 and Llama, too; others that do so end a stack with a norm.
        let pre = any(&|name| name.contains(".block.") || name.contains(".blocks."))
            || any(&ends(&["coder.layer_norm", "coder.final_layer_norm", "ln_post", "decoder.ln"]))
            || any(&ends(&[".ln_1", ".ln_f", ".input_layernorm"]));
        let wiring = Wiring {
            gated: true,
            relative_bias: true,
            source_embedding_norm: EmbeddingNorm::AfterPositions,
            target_embedding_norm: EmbeddingNorm::AfterPositions,
            encoder_final_norm: true,
            decoder_final_norm: true,
            source_positions: Positions::Table,
            target_positions: Positions::Table,
            front: if audio { Front::Audio } else { Front::Tokens },
            norm_place: if pre { NormPlace::Pre } else { NormPlace::Post },
            ..Wiring::VASWANI
        };
        Self { names: Names::new(), graph: build(&Architecture::encoder_decoder(most, most), &wiring) }
    }

    /// The node that a name means.
    pub(super) fn meaning(&self, name: &str) -> Option<NodeId> {
        let is_node = |path: &str| self.graph.find(path).is_some();
        let reads = |path: &str| {
            let first = self.graph.node(self.graph.find(path)?).inputs.first()?;
            Some(self.graph.node(*first).path.as_str().to_owned())
        };
        let all = self.names.meanings(name, &is_node, &reads);
        self.graph.find(&all.into_iter().next()?.node)
    }

    /// The index of a node's part of the model, regardless of the order within the part.
    fn section(&self, node: NodeId) -> usize {
        let layers = MOST_LAYERS + 2;
        let before = |stack: Stack| if stack == Stack::Encoder { 0 } else { layers };
        match self.graph.node(node).role {
            Role::Audio(_) => 0,
            Role::Entry(attnscope_graph::Side::Source, _) => 0,
            Role::Entry(attnscope_graph::Side::Target, _) => layers,
            Role::Layer(stack, n, _) => before(stack) + 1 + n,
            Role::StackOut(Stack::Encoder) => layers - 1,
            Role::StackOut(Stack::Decoder) | Role::Head(_) | Role::Block(..) | Role::Logits => 2 * layers,
        }
    }

    /// The order of names that mean nodes. A name without a node comes before the module that it is a part of; the others have
    /// no place. `None` where fewer than half have a meaning.
    fn ordered(&self, names: &[&str]) -> Option<Placed> {
        let mut placed: Vec<_> = Vec::new();
        let mut unplaced = Vec::new();
        let mut meant = 0;
        for (i, name) in names.iter().enumerate() {
            let parts = name.matches('.').count();
            if let Some(node) = self.meaning(name) {
                meant += 1;
                placed.push((node.index(), 1, Reverse(parts), i));
            } else if let Some(node) = computed_before(name).and_then(|path| self.graph.find(&path)) {
                placed.push((node.index(), 0, Reverse(parts), i));
            } else if let Some(node) = self.around(name) {
                placed.push((node.index(), 0, Reverse(parts), i));
            } else {
                unplaced.push(i);
            }
        }
        placed.sort_unstable();
        let known = placed.len();
        let tensors = placed.into_iter().map(|(.., i)| i).chain(unplaced).collect();
        (2 * meant >= names.len()).then_some(Placed { tensors, known, order: Order::Names })
    }

    /// The module that a name is a part of.
    fn around(&self, name: &str) -> Option<NodeId> {
        let module = module_of(name);
        let mut ends = module.rmatch_indices('.').map(|(dot, _)| &module[..dot]).take(MOST_PARTS);
        ends.find_map(|outer| self.meaning(outer))
    }

    /// Whether the order of names contradicts every model: `logits` before the encoder.
    fn contradicts(&self, names: &[&str]) -> bool {
        let sections: Vec<usize> =
            names.iter().filter_map(|name| Some(self.section(self.meaning(name)?))).collect();
        let inverted = sections.windows(2).filter(|pair| pair[1] < pair[0]).count();
        inverted as f64 > MOST_INVERTED * sections.len() as f64
    }
}

/// Tensors in an order.
pub(super) struct Placed {
    /// By their numbers in the dump.
    pub(super) tensors: Vec<usize>,
    /// How many of them, from the first on, have a place; the others come last.
    pub(super) known: usize,
    pub(super) order: Order,
}

/// The tensors of A in the order of computation, from A, else from B, else from the names.
pub(super) fn place(a: &Side, b: &Side, scheme: &Scheme) -> Placed {
    let names: Vec<&str> = a.dump.tensors().iter().map(|t| t.name.as_str()).collect();
    written(&a.dump, scheme)
        .or_else(|| like(&names, &b.dump, scheme))
        .or_else(|| scheme.ordered(&names))
        .unwrap_or_else(|| Placed { tensors: (0..names.len()).collect(), known: 0, order: Order::Unknown })
}

/// Whether a dump was written in the order of computation, judged by its names.
pub(super) fn is_call_order(side: &Side) -> bool {
    let names = side.dump.tensors().iter().map(|t| t.name.as_str());
    written(&side.dump, &Scheme::of(names)).is_some_and(|placed| placed.order == Order::Written)
}

/// The order in which a dump was written, if it is the order of the calls.
fn written(dump: &Dump, scheme: &Scheme) -> Option<Placed> {
    let names: Vec<&str> = dump.tensors().iter().map(|t| t.name.as_str()).collect();
    let known = dump.written_in_order();
    let first = names.get(..known)?;
    let calls = match dump.kind() {
        DumpKind::Debugger | DumpKind::Capture => true,
        _ => known > 1 && !is_sorted(dump) && !is_listing(first) && !scheme.contradicts(first),
    };
    if !calls {
        return numbered(&names).filter(|_| !scheme.contradicts(&names));
    }
    match known == names.len() {
        true => Some(Placed { tensors: (0..known).collect(), known, order: Order::Written }),
        // A debugger's tree leaves layers out although their files exist.
        false => scheme
            .ordered(&names)
            .or_else(|| Some(Placed { tensors: (0..names.len()).collect(), known, order: Order::Written })),
    }
}

/// The order of B for the tensors of A that have its names.
fn like(names: &[&str], other: &Dump, scheme: &Scheme) -> Option<Placed> {
    let theirs = written(other, scheme)?;
    let known = theirs.tensors.iter().take(theirs.known).enumerate();
    let place_of: HashMap<&str, usize> =
        known.filter_map(|(place, &i)| Some((other.tensors().get(i)?.name.as_str(), place))).rev().collect();
    let places: Vec<Option<usize>> = names.iter().map(|name| place_of.get(name).copied()).collect();
    let known = places.iter().flatten().count();
    let mut tensors: Vec<usize> = (0..names.len()).collect();
    tensors.sort_by_key(|&i| places[i].unwrap_or(usize::MAX));
    (2 * known >= names.len()).then_some(Placed { tensors, known, order: theirs.order })
}

/// Whether names are sorted alphabetically, as some writers do: all names, or those of each type.
fn is_sorted(dump: &Dump) -> bool {
    let tensors = dump.tensors();
    // The last name of each type, of which there are few.
    let mut last: Vec<(DType, &str)> = Vec::new();
    let by_type =
        tensors.iter().all(|tensor| match last.iter_mut().find(|(dtype, _)| *dtype == tensor.dtype) {
            Some((_, name)) => std::mem::replace(name, &tensor.name) <= tensor.name.as_str(),
            None => {
                last.push((tensor.dtype, &tensor.name));
                true
            }
        });
    by_type || tensors.iter().map(|t| &t.name).is_sorted()
}

/// Modules before their parts, as `named_modules` lists them: an output comes after those of its parts.
fn is_listing(names: &[&str]) -> bool {
    let places: HashMap<&str, usize> = names.iter().enumerate().map(|(i, name)| (*name, i)).rev().collect();
    let (mut before, mut after) = (0, 0);
    for (i, name) in names.iter().enumerate().filter(|(_, name)| !name.contains("input")) {
        let mut outer = name.rmatch_indices('.').map(|(dot, _)| &name[..dot]);
        if let Some(&outer) = outer.find_map(|outer| places.get(outer)) {
            *(if outer < i { &mut before } else { &mut after }) += 1;
        }
    }
    before > after
}

/// Names that begin with numbers, such as `012_encoder`, perhaps after a common prefix.
fn numbered(names: &[&str]) -> Option<Placed> {
    let split = |name: &&str| {
        let start = name.find(|c: char| c.is_ascii_digit())?;
        let digits: String = name[start..].chars().take_while(char::is_ascii_digit).collect();
        Some((name[..start].to_owned(), digits.parse::<u64>().ok()?))
    };
    let all: Vec<(String, u64)> = names.iter().map(split).collect::<Option<_>>()?;
    let mut tensors: Vec<usize> = (0..names.len()).collect();
    tensors.sort_by_key(|&i| all[i].1);
    let same_start = all.iter().all(|(text, _)| *text == all[0].0);
    let distinct = tensors.windows(2).all(|pair| all[pair[0]].1 < all[pair[1]].1);
    let known = names.len();
    (same_start && distinct && known > 2).then_some(Placed { tensors, known, order: Order::Numbers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_names(names: &[&str]) -> Option<Vec<String>> {
        let placed = Scheme::of(names.iter().copied()).ordered(names)?;
        Some(placed.tensors[..placed.known].iter().map(|&i| names[i].to_owned()).collect())
    }

    #[test]
    fn module_names_of_every_scheme_are_ordered_as_they_are_computed() {
        let orders: [&[&str]; 6] = [
            &[
                "model.encoder.embed_tokens",
                "model.encoder.layers.0.self_attn.q_proj",
                "model.encoder.layers.0.self_attn.out_proj",
                "model.encoder.layers.0.self_attn",
                "model.encoder.layers.0.self_attn_layer_norm",
                "model.encoder.layers.0.fc1",
                "model.encoder.layers.0.fc2",
                "model.encoder.layers.0",
                "model.encoder.layers.10.fc1",
                "model.decoder.layers.0.encoder_attn.q_proj",
                "model.decoder.layers.1",
                "lm_head",
            ],
            // Norm first.
            &[
                "encoder.block.0.layer.0.layer_norm",
                "encoder.block.0.layer.0.SelfAttention.q",
                "encoder.block.0.layer.1.DenseReluDense.wo",
                "encoder.block.0",
                "decoder.block.0.layer.1.EncDecAttention.o",
                "lm_head",
            ],
            &[
                "encoder.conv1",
                "encoder.conv2",
                "encoder.blocks.0.attn_ln",
                "encoder.blocks.0.attn.query",
                "encoder.blocks.3.mlp.0",
                "encoder.ln_post",
                "decoder.blocks.0.cross_attn.out",
                "decoder.ln",
            ],
            // Models of one stack: GPT-2, Llama, BERT.
            &[
                "transformer.wte",
                "transformer.wpe",
                "transformer.drop",
                "transformer.h.0.ln_1",
                "transformer.h.0.attn.c_attn",
                "transformer.h.0.attn.1",
                "transformer.h.0.attn.c_proj",
                "transformer.h.0.attn.resid_dropout",
                "transformer.h.0.attn",
                "transformer.h.0.ln_2",
                "transformer.h.0.mlp.c_fc",
                "transformer.h.0.mlp.act",
                "transformer.h.0.mlp.c_proj",
                "transformer.h.0.mlp",
                "transformer.h.0",
                "transformer.h.1.ln_1",
                "transformer.ln_f",
                "lm_head",
            ],
            &[
                "model.embed_tokens",
                "model.rotary_emb.1",
                "model.rotary_emb",
                "model.layers.0.input_layernorm",
                "model.layers.0.self_attn.q_proj",
                "model.layers.0.self_attn.v_proj",
                "model.layers.0.self_attn.1",
                "model.layers.0.self_attn.o_proj",
                "model.layers.0.self_attn",
                "model.layers.0.post_attention_layernorm",
                "model.layers.0.mlp.gate_proj",
                "model.layers.0.mlp.act_fn",
                "model.layers.0.mlp.up_proj",
                "model.layers.0.mlp.down_proj",
                "model.layers.0.mlp",
                "model.layers.0",
                "model.norm",
                "lm_head",
            ],
            &[
                "bert.embeddings.word_embeddings",
                "bert.embeddings.LayerNorm",
                "bert.embeddings",
                "bert.encoder.layer.0.attention.self.query",
                "bert.encoder.layer.0.attention.self",
                "bert.encoder.layer.0.attention.output.dense",
                "bert.encoder.layer.0.attention.output.LayerNorm",
                "bert.encoder.layer.0.attention.output",
                "bert.encoder.layer.0.attention",
                "bert.encoder.layer.0.intermediate.dense",
                "bert.encoder.layer.0.intermediate",
                "bert.encoder.layer.0.output.dense",
                "bert.encoder.layer.0.output.LayerNorm",
                "bert.encoder.layer.0.output",
                "bert.encoder.layer.0",
                "cls.predictions.transform.dense",
                "cls.predictions.decoder",
                "cls",
            ],
        ];
        for order in orders {
            let mut shuffled = order.to_vec();
            shuffled.sort_unstable();
            assert_ne!(shuffled, order);
            assert_eq!(by_names(&shuffled).as_deref(), Some(order.map_names().as_slice()));
        }
        assert_eq!(by_names(&["alpha", "beta", "gamma"]), None);
    }

    trait MapNames {
        fn map_names(&self) -> Vec<String>;
    }

    impl MapNames for [&str] {
        fn map_names(&self) -> Vec<String> {
            self.iter().map(|name| (*name).to_owned()).collect()
        }
    }

    #[test]
    fn a_listing_of_modules_is_no_order_of_calls() {
        assert!(is_listing(&["encoder", "encoder.layers.0", "encoder.layers.0.fc1", "lm_head"]));
        assert!(!is_listing(&["encoder.layers.0.fc1", "encoder.layers.0", "encoder", "lm_head"]));
    }

    #[test]
    fn outputs_listed_from_the_end_contradict_every_model() {
        let outputs =
            ["logits", "decoder_hidden_states.0", "encoder_last_hidden_state", "encoder_hidden_states.0"];
        let scheme = Scheme::of(outputs.iter().copied());
        assert!(scheme.contradicts(&outputs));
        let mut right = outputs;
        right.reverse();
        assert!(!scheme.contradicts(&right));
    }

    #[test]
    fn numbers_in_front_are_an_order() {
        let order = |names: &[&str]| numbered(names).map(|placed| placed.tensors);
        assert_eq!(order(&["10_x", "2_y", "1_z"]), Some(vec![2, 1, 0]));
        assert_eq!(order(&["0.q", "0.k", "1.q"]), None);
        assert_eq!(order(&["step1", "other2", "step3"]), None);
    }
}
