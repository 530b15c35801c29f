//! What is wrong with the file, in words: the mistake that an edit undoes.

use super::edit::{RowOrder, WeightEdit};
use super::lossy::Loss;

/// Names that are written out; the rest are counted.
const NAMED: usize = 4;

impl WeightEdit {
    /// The mistake: "decoder.1.cross_attn.k and decoder.1.cross_attn.v are exchanged".
    pub fn mistake(&self) -> String {
        match self {
            Self::SwapLayers { stack, layers: [a, b] } => {
                format!("layers {a} and {b} of the {} are exchanged", stack.name())
            }
            Self::Transpose { weights } => format!("{} {} transposed", listed(weights), is(weights)),
            Self::Exchange { pairs } => exchanged(pairs),
            Self::PermuteHeads { weights, order } => {
                let order: Vec<String> = order.iter().map(ToString::to_string).collect();
                format!(
                    "the heads of {} are not in the order of the other projections (right: {})",
                    listed(&modules(weights)),
                    order.join(", ")
                )
            }
            Self::Interleave { weights, rows } => {
                let how = match rows {
                    RowOrder::HalvesToPairs => "each head's even rows stand before its odd rows",
                    RowOrder::PairsToHalves => "the two halves of each head's rows are interleaved",
                    RowOrder::RowsToHeads => "the heads' rows are interleaved",
                    RowOrder::HeadsToRows => {
                        "the heads' rows stand head by head, and were interleaved in training"
                    }
                };
                format!("{how} in {}", listed(&modules(weights)))
            }
            Self::Negate { weights } => format!("{} {} the wrong sign", named(weights), has(weights)),
            Self::Scale { weights, factor } => {
                format!(
                    "{} {} {} times as large as trained",
                    named(weights),
                    is(&modules(weights)),
                    number(1.0 / factor)
                )
            }
            Self::Roll { weights, rows } => {
                let by = if rows.abs() == 1 { "1 row".to_owned() } else { format!("{} rows", rows.abs()) };
                let way = if *rows > 0 { "up" } else { "down" };
                format!("the rows of {} are moved {way} by {by}", listed(weights))
            }
        }
    }
}

impl Loss {
    /// What is lost.
    pub fn mistake(&self) -> String {
        match self {
            Self::DroppedBias { weight, siblings } => {
                let others = if *siblings == 1 {
                    "1 other layer".to_owned()
                } else {
                    format!("{siblings} other layers")
                };
                format!("every value of {weight} is 0, and not so in {others}: it was dropped")
            }
            Self::CopiedLayer { stack, layers: [a, b] } => {
                format!("layer {b} of the {} holds the values of layer {a}, to the last bit", stack.name())
            }
            Self::MissingLayer { stack, found, declared, source } => {
                format!("{source} says {declared} {} layers, and the file has {found}", stack.name())
            }
        }
    }
}

/// A number without digits that say nothing: 4, 5.66, 0.25.
pub(crate) fn number(x: f64) -> String {
    let text = if x.abs() >= 100.0 { format!("{x:.0}") } else { format!("{x:.3}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Modules whose matrix is among some weights, each once.
fn modules(weights: &[String]) -> Vec<String> {
    let mut modules: Vec<String> = Vec::new();
    for weight in weights {
        let module = weight.strip_suffix(".weight").or(weight.strip_suffix(".bias")).unwrap_or(weight);
        if modules.last().is_none_or(|last| last != module) {
            modules.push(module.to_owned());
        }
    }
    modules
}

/// A module by its name where its bias is meant too, else the weight by its own.
fn named(weights: &[String]) -> String {
    let with_bias = weights.iter().any(|weight| weight.ends_with(".bias"));
    if with_bias { listed(&modules(weights)) } else { listed(weights) }
}

fn exchanged(pairs: &[[String; 2]]) -> String {
    let with_bias = pairs.iter().any(|[a, _]| a.ends_with(".bias"));
    let side = |i: usize| -> Vec<String> {
        let paths: Vec<String> = pairs.iter().map(|pair| pair[i].clone()).collect();
        if with_bias { modules(&paths) } else { paths }
    };
    let both: Vec<String> = side(0).iter().zip(side(1)).map(|(a, b)| format!("{a} and {b}")).collect();
    format!("{} are exchanged", listed(&both))
}

fn listed(names: &[String]) -> String {
    match names.len() {
        0..=NAMED => names.join(", "),
        more => format!("{} and {} more", names[..NAMED - 1].join(", "), more - NAMED + 1),
    }
}

fn is(names: &[String]) -> &'static str {
    if names.len() == 1 { "is" } else { "are" }
}

fn has(names: &[String]) -> &'static str {
    if modules(names).len() == 1 { "has" } else { "have" }
}

#[cfg(test)]
mod tests {
    use attnscope_graph::Stack;

    use super::*;

    fn paths(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let at = "decoder.1.cross_attn";
        let pair = |leaf: &str| [format!("{at}.k.{leaf}"), format!("{at}.v.{leaf}")];
        let exchange = WeightEdit::Exchange { pairs: vec![pair("weight"), pair("bias")] };
        assert_eq!(exchange.mistake(), "decoder.1.cross_attn.k and decoder.1.cross_attn.v are exchanged");
        let swap = WeightEdit::SwapLayers { stack: Stack::Encoder, layers: [0, 1] };
        assert_eq!(swap.mistake(), "layers 0 and 1 of the encoder are exchanged");
        let scale = WeightEdit::Scale { weights: paths(&["encoder.0.self_attn.q.weight"]), factor: 0.25 };
        assert_eq!(scale.mistake(), "encoder.0.self_attn.q.weight is 4 times as large as trained");
        let roll = WeightEdit::Roll { weights: paths(&["src.embed.weight"]), rows: -1 };
        assert_eq!(roll.mistake(), "the rows of src.embed.weight are moved down by 1 row");
    }

    #[test]
    fn long_lists_are_counted() {
        let names = paths(&["a", "b", "c", "d", "e", "f"]);
        assert_eq!(listed(&names), "a, b, c and 3 more");
        assert_eq!(number(5.656_854), "5.657");
        assert_eq!(number(16.0), "16");
    }
}
