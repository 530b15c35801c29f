//! Which node a name in another program's dump means: node paths themselves, and module names of the schemes of weight names.
//! The module of a weight gives the node, because a node that owns a weight is that module's output.

use attnscope_graph::{FAMILIES, Stack};

/// What a name means: a node, and a rank. Lower is more certain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Meaning {
    pub(super) rank: u8,
    pub(super) node: String,
}

/// More parts than any path or module name has; a hostile name may have thousands.
pub(super) const MOST_PARTS: usize = 16;

/// Modules without weights: the node of their output, the node of their input (`<` before it: that node's input), their name.
const MODULES: &[(&str, &str, &str)] = &[
    ("{s}.{n}.out", "{s}.{n}.in", "{s}.layers.{n}"),
    ("{s}.{n}.out", "{s}.{n}.in", "{s}.block.{n}"),
    ("{s}.{n}.out", "{s}.{n}.in", "{s}.blocks.{n}"),
    ("{s}.{n}.self_attn.out", "<{s}.{n}.self_attn.q", "{s}.layers.{n}.self_attn"),
    ("decoder.{n}.cross_attn.out", "<decoder.{n}.cross_attn.q", "decoder.layers.{n}.encoder_attn"),
    ("{s}.{n}.ffn.act", "{s}.{n}.ffn.hidden", "{s}.layers.{n}.activation_fn"),
    ("{s}.{n}.self_attn.out", "<{s}.{n}.self_attn.q", "{s}.block.{n}.layer.0.SelfAttention"),
    ("{s}.{n}.self_attn.residual", "{s}.{n}.in", "{s}.block.{n}.layer.0"),
    ("decoder.{n}.cross_attn.out", "<decoder.{n}.cross_attn.q", "decoder.block.{n}.layer.1.EncDecAttention"),
    ("decoder.{n}.cross_attn.residual", "decoder.{n}.self_attn.residual", "decoder.block.{n}.layer.1"),
    ("encoder.{n}.ffn.residual", "encoder.{n}.self_attn.residual", "encoder.block.{n}.layer.1"),
    ("decoder.{n}.ffn.residual", "decoder.{n}.cross_attn.residual", "decoder.block.{n}.layer.2"),
    ("encoder.{n}.ffn.out", "<encoder.{n}.ffn.hidden", "encoder.block.{n}.layer.1.DenseReluDense"),
    ("decoder.{n}.ffn.out", "<decoder.{n}.ffn.hidden", "decoder.block.{n}.layer.2.DenseReluDense"),
    ("encoder.{n}.ffn.act", "encoder.{n}.ffn.hidden", "encoder.block.{n}.layer.1.DenseReluDense.act"),
    ("decoder.{n}.ffn.act", "decoder.{n}.ffn.hidden", "decoder.block.{n}.layer.2.DenseReluDense.act"),
    ("{s}.{n}.self_attn.out", "<{s}.{n}.self_attn.q", "{s}.blocks.{n}.attn"),
    ("decoder.{n}.cross_attn.out", "<decoder.{n}.cross_attn.q", "decoder.blocks.{n}.cross_attn"),
    ("{s}.{n}.ffn.act", "{s}.{n}.ffn.hidden", "{s}.blocks.{n}.mlp.1"),
    ("{s}.{n}.ffn.out", "<{s}.{n}.ffn.hidden", "{s}.blocks.{n}.mlp"),
    ("encoder.out", "src.embed_pos", "encoder"),
    ("decoder.out", "tgt.embed_pos", "decoder"),
    // GPT-2. Dropout does nothing at inference.
    ("tgt.embed_pos", "tgt.embed_pos", "transformer.drop"),
    ("decoder.{n}.out", "decoder.{n}.in", "h.{n}"),
    ("decoder.{n}.self_attn.out", "<decoder.{n}.self_attn.q", "h.{n}.attn"),
    ("decoder.{n}.self_attn.weights", "<decoder.{n}.self_attn.q", "h.{n}.attn.1"),
    ("decoder.{n}.self_attn.out", "decoder.{n}.self_attn.out", "h.{n}.attn.resid_dropout"),
    ("decoder.{n}.ffn.out", "<decoder.{n}.ffn.hidden", "h.{n}.mlp"),
    ("decoder.{n}.ffn.act", "decoder.{n}.ffn.hidden", "h.{n}.mlp.act"),
    ("decoder.{n}.ffn.out", "decoder.{n}.ffn.out", "h.{n}.mlp.dropout"),
    // Llama.
    ("decoder.{n}.out", "decoder.{n}.in", "layers.{n}"),
    ("decoder.{n}.self_attn.out", "<decoder.{n}.self_attn.q", "layers.{n}.self_attn"),
    ("decoder.{n}.self_attn.weights", "<decoder.{n}.self_attn.q", "layers.{n}.self_attn.1"),
    ("decoder.{n}.ffn.out", "<decoder.{n}.ffn.hidden", "layers.{n}.mlp"),
    ("decoder.{n}.ffn.act", "decoder.{n}.ffn.hidden", "layers.{n}.mlp.act_fn"),
    // GPT-NeoX.
    ("decoder.{n}.self_attn.out", "<decoder.{n}.self_attn.q", "layers.{n}.attention"),
    ("decoder.{n}.self_attn.weights", "<decoder.{n}.self_attn.q", "layers.{n}.attention.1"),
    ("decoder.{n}.ffn.act", "decoder.{n}.ffn.hidden", "layers.{n}.mlp.act"),
    // ModernBERT.
    ("encoder.{n}.out", "encoder.{n}.in", "layers.{n}"),
    ("encoder.{n}.self_attn.out", "<encoder.{n}.self_attn.q", "layers.{n}.attn"),
    ("encoder.{n}.ffn.out", "<encoder.{n}.ffn.hidden", "layers.{n}.mlp"),
    // BERT, which calls modules `output`, too.
    ("src.embed_pos", "src.embed", "bert.embeddings"),
    ("src.embed_pos", "src.embed_pos", "bert.embeddings.dropout"),
    ("encoder.{n}.out", "encoder.{n}.in", "encoder.layer.{n}"),
    ("encoder.{n}.self_attn.norm", "encoder.{n}.in", "encoder.layer.{n}.attention"),
    ("encoder.{n}.self_attn.context", "<encoder.{n}.self_attn.q", "encoder.layer.{n}.attention.self"),
    ("encoder.{n}.self_attn.weights", "<encoder.{n}.self_attn.q", "encoder.layer.{n}.attention.self.1"),
    ("encoder.{n}.self_attn.norm", "encoder.{n}.self_attn.context", "encoder.layer.{n}.attention.output"),
    ("encoder.{n}.self_attn.out", "encoder.{n}.self_attn.out", "encoder.layer.{n}.attention.output.dropout"),
    ("encoder.{n}.ffn.act", "<encoder.{n}.ffn.hidden", "encoder.layer.{n}.intermediate"),
    ("encoder.{n}.ffn.act", "encoder.{n}.ffn.hidden", "encoder.layer.{n}.intermediate.intermediate_act_fn"),
    ("encoder.{n}.ffn.norm", "encoder.{n}.ffn.act", "encoder.layer.{n}.output"),
    ("encoder.{n}.ffn.out", "encoder.{n}.ffn.out", "encoder.layer.{n}.output.dropout"),
    ("head.act", "head.dense", "cls.predictions.transform.transform_act_fn"),
    ("head.norm", "<head.dense", "cls.predictions.transform"),
    ("logits", "<head.dense", "cls.predictions"),
    ("logits", "<head.dense", "cls"),
];

/// Modules without a node, and the node before which they are computed.
const BEFORE: &[(&str, &str)] = &[
    ("decoder.{n}.self_attn.q", "h.{n}.attn.c_attn"),
    ("decoder.0.in", "rotary_emb"),
    ("decoder.0.in", "rotary_emb.1"),
    ("decoder.{n}.self_attn.scores", "layers.{n}.self_attn.rotary_emb"),
    ("decoder.{n}.self_attn.scores", "layers.{n}.self_attn.rotary_emb.1"),
];

/// Names of whole inputs and outputs.
const PLAIN: &[(&str, &str)] = &[
    ("{s}.{n}.self_attn.weights", "{s}_attentions.{n}"),
    ("decoder.{n}.cross_attn.weights", "cross_attentions.{n}"),
    ("{s}.{n}.in", "{s}_hidden_states.{n}"),
    ("encoder.out", "encoder_last_hidden_state"),
    ("decoder.out", "last_hidden_state"),
    ("tgt.ids", "decoder.inputs.kwargs.input_ids"),
    ("tgt.ids", "decoder_input_ids"),
    ("src.ids", "input_ids"),
    ("audio.mel", "input_features"),
    ("logits", "logits"),
];

/// Whether a name of another program, or of a graph that this version does not know, is that of a mask or of masked scores.
pub(super) fn means_masked(name: &str) -> bool {
    name.ends_with("mask") || name.ends_with(".masked_scores")
}

/// Prefixes and suffixes of module names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port<'n> {
    /// The output: whole, or one of several.
    Output(Option<&'n str>),
    /// What it reads.
    Input(Option<&'n str>),
}

/// The names of every scheme, ready to be looked up.
pub(super) struct Names {
    /// Node given, node read, the parts of the module's name.
    modules: Vec<(&'static str, Option<&'static str>, Vec<&'static str>)>,
    plain: Vec<(&'static str, Vec<&'static str>)>,
}

impl Names {
    pub(super) fn new() -> Self {
        let mut modules = Vec::new();
        let schemes = FAMILIES.iter().flat_map(|family| family.schemes.iter().map(move |s| (family, s)));
        for (family, scheme) in schemes {
            for &(node, module) in scheme.tables.iter().flat_map(|table| table.iter()) {
                let module = module.trim_end_matches("^T");
                let is_weight = node.ends_with(".weight") || node.ends_with(".bias") || module.contains('[');
                // A shared table is used by both sides, and the name does not say which; `output` alone can be any module's.
                let other_side = (node.starts_with("src.") && module.starts_with("decoder."))
                    || ["shared", "token_embd", "output"].contains(&module);
                // A single word (`norm`) is accepted only after the name of a stack.
                let holders: &[Option<&str>] = match family.stacks.len() == 1 && !module.contains('.') {
                    true => &[Some("model"), Some("transformer"), Some("bert"), Some("gpt_neox")],
                    false => &[None],
                };
                for holder in holders {
                    let parts = holder.iter().copied().chain(module.split('.')).collect::<Vec<_>>();
                    let row = (node, None, parts);
                    if !is_weight && !other_side && !modules.contains(&row) {
                        modules.push(row);
                    }
                }
            }
        }
        modules.extend(MODULES.iter().map(|&(out, into, name)| (out, Some(into), name.split('.').collect())));
        // The longest name is the most specific.
        modules.sort_by_key(|(_, _, parts)| std::cmp::Reverse(parts.len()));
        let plain = PLAIN.iter().map(|&(node, name)| (node, name.split('.').collect())).collect();
        Self { modules, plain }
    }

    /// What a name may mean. `reads` gives the first input of a node, `is_node` knows the graph's paths.
    pub(super) fn meanings(
        &self,
        name: &str,
        is_node: &dyn Fn(&str) -> bool,
        reads: &dyn Fn(&str) -> Option<String>,
    ) -> Vec<Meaning> {
        let name = plain(name);
        let mut found: Vec<Meaning> = Vec::new();
        let mut add = |rank: u8, node: Option<String>| {
            if let Some(node) = node.filter(|node| is_node(node)) {
                found.push(Meaning { rank, node });
            }
        };
        // The path itself, with or without something before it.
        add(0, Some(name.to_owned()));
        // The longest first, of no more parts than a path can have.
        let ends: Vec<usize> = name.rmatch_indices('.').map(|(dot, _)| dot + 1).take(MOST_PARTS).collect();
        for start in ends.into_iter().rev() {
            add(1, name.get(start..).map(str::to_owned));
        }
        let parts: Vec<&str> = name.split('.').collect();
        for (node, pattern) in &self.plain {
            let Some(node) = filled(node, pattern, &parts) else { continue };
            // After the last layer comes the end of the stack.
            let past_the_end =
                Some(node.as_str()).filter(|n| !is_node(n)).and_then(|n| n.strip_suffix(".in"));
            let end = past_the_end.and_then(|n| n.split_once('.')).map(|(stack, _)| format!("{stack}.out"));
            add(2, end.or(Some(node)));
            // The more specific name is first in the table.
            break;
        }
        let (module, port) =
            match self.modules.iter().any(|(out, _, name)| filled(out, name, &parts).is_some()) {
                true => (parts.as_slice(), Port::Output(None)),
                false => split(&parts),
            };
        let is_first =
            |part: Option<&str>| matches!(part, None | Some("0" | "hidden_states" | "input" | "x"));
        for (out, into, pattern) in &self.modules {
            let (Some(out), into) =
                (filled(out, pattern, module), into.map(|into| filled(into, pattern, module)))
            else {
                continue;
            };
            // Gemma's norm of an attention's output has the name of Llama's norm before the feed-forward; only Gemma has both.
            let sure = u8::from(!out.ends_with(".out_norm"));
            match port {
                // A module with weights is the node itself; a module around it may do more.
                Port::Output(part) if is_first(part) => {
                    add(if into.is_some() { 4 } else { 2 + sure }, Some(out))
                }
                Port::Output(Some("1")) if out.ends_with("_attn.out") => {
                    add(4, out.strip_suffix("out").map(|path| format!("{path}weights")));
                }
                Port::Input(part) if is_first(part) => match into {
                    Some(Some(into)) => match into.strip_prefix('<') {
                        Some(node) => add(5, reads(node)),
                        None => add(5, Some(into)),
                    },
                    _ => add(4 + sure, reads(&out)),
                },
                _ => {}
            }
        }
        found.sort();
        found
    }
}

/// For a module without a node: the path of the node before which it is computed.
pub(super) fn computed_before(name: &str) -> Option<String> {
    let name = plain(name);
    let parts: Vec<&str> = name.split('.').collect();
    BEFORE.iter().find_map(|(node, module)| filled(node, &module.split('.').collect::<Vec<_>>(), &parts))
}

/// The module's name without the suffix for its input or output.
pub(super) fn module_of(name: &str) -> String {
    let name = plain(name);
    let parts: Vec<&str> = name.split('.').collect();
    split(&parts).0.join(".")
}

/// Slashes, colons and the number of an output become dots.
fn plain(name: &str) -> String {
    let name = name.strip_suffix(":0").unwrap_or(name);
    name.replace("::", ".").replace(['/', ':'], ".").trim_matches('.').to_owned()
}

/// A module's name, and whether it is its input or output: `fc1.inputs.args.0`, `fc1.output`, `fc1_output`, `fc1`.
fn split<'p, 'n>(parts: &'p [&'n str]) -> (&'p [&'n str], Port<'n>) {
    let word = |part: &str| match part {
        "inputs" | "input" => Some(true),
        "outputs" | "output" => Some(false),
        _ => None,
    };
    let port =
        |is_input: bool, part: Option<&'n str>| if is_input { Port::Input(part) } else { Port::Output(part) };
    if let Some(at) = parts.iter().rposition(|part| word(part).is_some()) {
        let after = parts.get(at + 1..).unwrap_or_default();
        let after = match after.split_first() {
            Some((&("args" | "kwargs"), rest)) => rest,
            _ => after,
        };
        return (&parts[..at], port(word(parts[at]) == Some(true), after.first().copied()));
    }
    (parts, Port::Output(None))
}

/// The stack that a name or a path begins with.
fn stack_of(path: &str) -> Option<Stack> {
    let first = path.split('.').next().unwrap_or_default();
    Stack::ALL.into_iter().find(|stack| first == stack.name() || first == stack.side().name())
}

/// A node's path, with stack and layer taken from where the pattern matches the end of the name.
fn filled(node: &str, pattern: &[&str], parts: &[&str]) -> Option<String> {
    let at = parts.len().checked_sub(pattern.len())?;
    let end = parts.get(at..)?;
    let before = at.checked_sub(1).and_then(|at| parts.get(at));
    // A stack's name before the match must be the node's own, else the match is by chance.
    let stacks = (before.and_then(|before| stack_of(before)), stack_of(node.trim_start_matches('<')));
    if let (Some(before), Some(of_node)) = stacks
        && before != of_node
    {
        return None;
    }
    let (mut stack, mut layer) = (None, None);
    for (&want, &have) in pattern.iter().zip(end) {
        let have = have.split_once("_output").map_or(have, |(module, _)| module);
        match want {
            "{n}" if !have.is_empty() && have.len() < 6 && have.bytes().all(|b| b.is_ascii_digit()) => {
                layer = Some(have)
            }
            _ if want.starts_with("{s}") => {
                let rest = want.strip_prefix("{s}")?;
                stack =
                    Some(["encoder", "decoder"].into_iter().find(|s| have.strip_prefix(s) == Some(rest))?);
            }
            _ if want == have => {}
            _ => return None,
        }
    }
    Some(node.replace("{s}", stack.unwrap_or("{s}")).replace("{n}", layer.unwrap_or("{n}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_graph::{Architecture, Graph, NormPlace, Wiring, build};

    fn meaning(graph: &Graph, name: &str) -> Option<String> {
        let reads = |path: &str| {
            let first = graph.node(graph.find(path)?).inputs.first()?;
            Some(graph.node(*first).path.as_str().to_owned())
        };
        let all = Names::new().meanings(name, &|path| graph.find(path).is_some(), &reads);
        all.into_iter().next().map(|m| m.node)
    }

    #[test]
    fn names_of_other_programs_mean_nodes() {
        let graph = build(&Architecture::encoder_decoder(2, 2), &Wiring::VASWANI);
        let cases = [
            ("encoder.1.ffn.act", "encoder.1.ffn.act"),
            ("run/decoder.0.cross_attn.q", "decoder.0.cross_attn.q"),
            ("MarianMTModel.model.encoder.layers.0.self_attn.q_proj.outputs", "encoder.0.self_attn.q"),
            ("MarianMTModel.model.encoder.layers.1.fc2.inputs.args.0", "encoder.1.ffn.act"),
            ("model.decoder.layers.1.encoder_attn.k_proj.inputs.args.0", "encoder.out"),
            ("model.decoder.layers.1.inputs.args.0", "decoder.1.in"),
            ("model.encoder.layers.0.self_attn.outputs.1", "encoder.0.self_attn.weights"),
            ("decoder.block.1.layer.1.EncDecAttention.o", "decoder.1.cross_attn.out"),
            ("decoder.block.1.layer.2.DenseReluDense.act.output", "decoder.1.ffn.act"),
            ("encoder.blocks.0.mlp.2", "encoder.0.ffn.out"),
            ("encoder.blocks.0.attn.query_output", "encoder.0.self_attn.q"),
            ("cross_attentions.1", "decoder.1.cross_attn.weights"),
            ("encoder_hidden_states.1", "encoder.1.in"),
            ("encoder_hidden_states.2", "encoder.out"),
            ("model.encoder.layers.0.fc1.output", "encoder.0.ffn.hidden"),
            ("bert.encoder.layer.0.attention.output.dense", "encoder.0.self_attn.out"),
            ("bert.encoder.layer.1.attention.output", "encoder.1.self_attn.norm"),
            ("transformer.h.1.attn.resid_dropout", "decoder.1.self_attn.out"),
            ("model.layers.0.mlp", "decoder.0.ffn.out"),
            ("MarianMTModel.outputs.logits", "logits"),
            ("MarianMTModel.model.decoder.inputs.kwargs.input_ids", "tgt.ids"),
            ("MarianMTModel.inputs.kwargs.input_ids", "src.ids"),
            ("model.decoder.embed_tokens", "tgt.embed"),
        ];
        for (name, node) in cases {
            assert_eq!(meaning(&graph, name).as_deref(), Some(node), "{name}");
        }
        let gemma = Wiring { norm_place: NormPlace::Both, gated: true, ..Wiring::VASWANI };
        let gemma = build(&Architecture::decoder_only(2), &gemma);
        for (name, node) in [
            ("model.layers.1.post_attention_layernorm", "decoder.1.self_attn.out_norm"),
            ("model.layers.1.post_attention_layernorm.inputs.args.0", "decoder.1.self_attn.out"),
            ("model.layers.1.pre_feedforward_layernorm", "decoder.1.ffn.norm"),
            ("gpt_neox.layers.0.attention.dense", "decoder.0.self_attn.out"),
        ] {
            assert_eq!(meaning(&gemma, name).as_deref(), Some(node), "{name}");
        }
        for other in [
            "loss",
            "model.encoder.layers.7.fc1",
            "model.shared#2.outputs",
            "",
            "....",
            "encoder.blocks..mlp",
        ] {
            assert_eq!(meaning(&graph, other), None, "{other}");
        }
    }
}
