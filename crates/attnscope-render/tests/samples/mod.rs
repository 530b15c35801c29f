//! Diagrams like those the program makes of real models.
#![allow(dead_code, clippy::panic)]

use attnscope_render::{Arrow, Block, Diagram, Hole, Kind};

/// A diagram under construction, blocks known by their titles.
pub struct Sketch(Diagram);

impl Sketch {
    pub fn new(title: &str, facts: &[&str]) -> Self {
        let facts = facts.iter().map(|&fact| fact.to_owned()).collect();
        Sketch(Diagram { title: title.to_owned(), facts, ..Diagram::default() })
    }

    pub fn block(mut self, kind: Kind, title: &str, shape: &str, lines: &[&str]) -> Self {
        self.0.blocks.push(Block {
            path: format!("decoder.0.{title}"),
            title: title.to_owned(),
            shape: shape.to_owned(),
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
            kind,
            hole: None,
        });
        self
    }

    pub fn hole(mut self, hole: Hole) -> Self {
        if let Some(block) = self.0.blocks.last_mut() {
            block.hole = Some(hole);
        }
        self
    }

    pub fn arrow(mut self, from: &str, to: &str, label: &str) -> Self {
        let find = |title: &str| {
            self.0
                .blocks
                .iter()
                .position(|block| block.title == title)
                .unwrap_or_else(|| panic!("no {title}"))
        };
        let arrow = Arrow { from: find(from), to: find(to), label: label.to_owned() };
        self.0.arrows.push(arrow);
        self
    }

    pub fn done(self) -> Diagram {
        self.0
    }
}

fn linear(sketch: Sketch, names: [&str; 3], shapes: [&str; 3], prefix: &str) -> Sketch {
    names.iter().zip(shapes).fold(sketch, |sketch, (name, shape)| {
        let weight = format!("{prefix}{name}_proj.weight [128, 128] f16");
        sketch.block(Kind::Linear, name, shape, &[&weight, "+ bias", "4 heads × 32"])
    })
}

pub fn cross_attention(prefix: &str) -> Diagram {
    let sketch = Sketch::new(
        "decoder.0.cross_attn",
        &[
            "Marian · 4 heads × 32 · post-norm",
            "queries come from the decoder, keys and values from the encoder",
        ],
    )
    .block(Kind::Outside, "decoder.0.self_attn.norm", "[T, 128]", &[])
    .block(Kind::Outside, "encoder.out", "[S, 128]", &[]);
    linear(sketch, ["q", "k", "v"], ["[T, 128]", "[S, 128]", "[S, 128]"], prefix)
        .block(Kind::Attention, "scores", "[4, T, S]", &["q·kᵀ × 1/√32"])
        .block(Kind::Mask, "mask", "[1, 1, S]", &["source padding"])
        .block(Kind::Attention, "masked_scores", "[4, T, S]", &["scores + mask"])
        .block(Kind::Attention, "weights", "[4, T, S]", &["softmax over S"])
        .block(Kind::Attention, "context", "[T, 128]", &["weights · v, heads joined"])
        .block(
            Kind::Linear,
            "out",
            "[T, 128]",
            &[&format!("{prefix}out_proj.weight [128, 128] f16"), "+ bias"],
        )
        .block(Kind::Stream, "residual", "[T, 128]", &["x + out"])
        .block(Kind::Stream, "norm", "[T, 128]", &["LayerNorm, eps 1e-5"])
        .arrow("decoder.0.self_attn.norm", "q", "")
        .arrow("encoder.out", "k", "")
        .arrow("encoder.out", "v", "")
        .arrow("q", "scores", "")
        .arrow("k", "scores", "")
        .arrow("scores", "masked_scores", "")
        .arrow("mask", "masked_scores", "")
        .arrow("masked_scores", "weights", "")
        .arrow("weights", "context", "")
        .arrow("v", "context", "")
        .arrow("context", "out", "")
        .arrow("decoder.0.self_attn.norm", "residual", "x")
        .arrow("out", "residual", "")
        .arrow("residual", "norm", "")
        .done()
}

pub fn whole_model() -> Diagram {
    Sketch::new("Helsinki-NLP/opus-mt-en-de", &["Marian · 7.6 M parameters · f16"])
        .block(Kind::Input, "src.ids", "[S]", &["tokens of the source sentence"])
        .block(Kind::Embedding, "src.embed", "[S, 128]", &["shared.weight [5000, 128]", "× √128"])
        .block(Kind::Embedding, "src.embed_pos", "[S, 128]", &["+ sinusoidal positions"])
        .block(
            Kind::Stack,
            "encoder × 2",
            "[S, 128]",
            &["self-attention · feed-forward", "post-norm, 4 heads"],
        )
        .block(Kind::Stream, "encoder.out", "[S, 128]", &[])
        .block(Kind::Input, "tgt.ids", "[T]", &["target, shifted right"])
        .block(Kind::Embedding, "tgt.embed", "[T, 128]", &["shared.weight [5000, 128]", "× √128"])
        .block(Kind::Embedding, "tgt.embed_pos", "[T, 128]", &["+ sinusoidal positions"])
        .block(Kind::Stack, "decoder × 2", "[T, 128]", &["self-attention · cross-attention · feed-forward"])
        .block(Kind::Stream, "decoder.out", "[T, 128]", &[])
        .block(Kind::Output, "logits", "[T, 5000]", &["shared.weight, tied", "+ final_logits_bias"])
        .arrow("src.ids", "src.embed", "")
        .arrow("src.embed", "src.embed_pos", "")
        .arrow("src.embed_pos", "encoder × 2", "")
        .arrow("encoder × 2", "encoder.out", "")
        .arrow("encoder.out", "decoder × 2", "k, v")
        .arrow("tgt.ids", "tgt.embed", "")
        .arrow("tgt.embed", "tgt.embed_pos", "")
        .arrow("tgt.embed_pos", "decoder × 2", "")
        .arrow("decoder × 2", "decoder.out", "")
        .arrow("decoder.out", "logits", "")
        .done()
}

pub fn self_attention() -> Diagram {
    let sketch = Sketch::new("encoder.0.self_attn", &["T5 · 8 heads × 64 · pre-norm, no scale"])
        .block(Kind::Outside, "encoder.0.in", "[S, 512]", &[])
        .block(Kind::Stream, "norm", "[S, 512]", &["RMSNorm, eps 1e-6"]);
    linear(sketch, ["q", "k", "v"], ["[S, 512]"; 3], "SelfAttention.")
        .block(Kind::Attention, "scores", "[8, S, S]", &["q·kᵀ, not scaled"])
        .block(
            Kind::Mask,
            "bias",
            "[8, S, S]",
            &["relative_attention_bias [32, 8]", "32 buckets, distance ≤ 128"],
        )
        .hole(Hole::Missing)
        .block(Kind::Mask, "mask", "[1, 1, S]", &["source padding"])
        .block(Kind::Attention, "masked_scores", "[8, S, S]", &["scores + bias + mask"])
        .block(Kind::Attention, "weights", "[8, S, S]", &["softmax over S"])
        .block(Kind::Attention, "context", "[S, 512]", &["weights · v"])
        .block(Kind::Linear, "out", "[S, 512]", &["SelfAttention.o.weight [512, 512]"])
        .block(Kind::Stream, "residual", "[S, 512]", &["in + out"])
        .arrow("encoder.0.in", "norm", "")
        .arrow("norm", "q", "")
        .arrow("norm", "k", "")
        .arrow("norm", "v", "")
        .arrow("q", "scores", "")
        .arrow("k", "scores", "")
        .arrow("scores", "masked_scores", "")
        .arrow("bias", "masked_scores", "")
        .arrow("mask", "masked_scores", "")
        .arrow("masked_scores", "weights", "")
        .arrow("weights", "context", "")
        .arrow("v", "context", "")
        .arrow("context", "out", "")
        .arrow("encoder.0.in", "residual", "residual")
        .arrow("out", "residual", "")
        .done()
}

pub fn feed_forward() -> Diagram {
    Sketch::new("encoder.0.ffn", &["gated: act(x·W₀) ⊙ x·W₁"])
        .block(Kind::Outside, "encoder.0.self_attn.residual", "[S, 512]", &[])
        .block(Kind::Stream, "norm", "[S, 512]", &["RMSNorm"])
        .block(Kind::Linear, "hidden", "[S, 1024]", &["wi_0.weight [1024, 512]"])
        .block(Kind::Linear, "gate", "[S, 1024]", &["wi_1.weight [1024, 512]"])
        .block(Kind::Activation, "act", "[S, 1024]", &["gelu(hidden) × gate"])
        .block(Kind::Linear, "out", "[S, 512]", &["wo.weight [512, 1024]"])
        .block(Kind::Stream, "residual", "[S, 512]", &[])
        .arrow("encoder.0.self_attn.residual", "norm", "")
        .arrow("norm", "hidden", "")
        .arrow("norm", "gate", "")
        .arrow("hidden", "act", "")
        .arrow("gate", "act", "")
        .arrow("act", "out", "")
        .arrow("out", "residual", "")
        .arrow("encoder.0.self_attn.residual", "residual", "residual")
        .done()
}

/// Names as hostile and as wide as they come.
pub fn strange_names() -> Diagram {
    let long =
        "model.decoder.layers.11.encoder_attn.q_proj.weight_quantized_blockwise_scales [1024, 1024] bf16";
    Sketch::new("奇妙な名前", &["names from a stranger's checkpoint"])
        .block(Kind::Input, "入力", "[数, 128]", &["重み.注意機構.クエリ [128, 128]"])
        .block(Kind::Linear, "a\u{1b}[31mred", "[T]", &[long, "x\u{202e}desrever"])
        .hole(Hole::WrongShape)
        .block(Kind::Output, "出力", "", &["softmax → 確率…"])
        .arrow("入力", "a\u{1b}[31mred", "")
        .arrow("a\u{1b}[31mred", "出力", "ラベル")
        .done()
}

/// Two values that both go to two places: lines have to cross.
pub fn crossing() -> Diagram {
    Sketch::new("two by two", &[])
        .block(Kind::Outside, "a", "[T]", &["the first value"])
        .block(Kind::Outside, "b", "[S]", &["the second value"])
        .block(Kind::Attention, "c", "[T, S]", &["takes both"])
        .block(Kind::Attention, "d", "[T, S]", &["takes both too"])
        .block(Kind::Output, "e", "[T]", &["c + d + a"])
        .arrow("a", "c", "")
        .arrow("b", "c", "")
        .arrow("a", "d", "")
        .arrow("b", "d", "")
        .arrow("c", "e", "")
        .arrow("d", "e", "")
        .arrow("a", "e", "a")
        .done()
}

/// A layer with three skip arrows and a value that enters from the side.
pub fn decoder_layer() -> Diagram {
    Sketch::new("decoder.0", &["Marian · post-norm"])
        .block(Kind::Outside, "decoder.0.in", "[T, 128]", &[])
        .block(Kind::Attention, "self_attn", "[T, 128]", &["causal, 4 heads × 32", "66,048 parameters"])
        .block(Kind::Stream, "self_attn.residual + norm", "[T, 128]", &[])
        .block(Kind::Outside, "encoder.out", "[S, 128]", &[])
        .block(Kind::Attention, "cross_attn", "[T, 128]", &["4 heads × 32", "66,048 parameters"])
        .block(Kind::Stream, "cross_attn.residual + norm", "[T, 128]", &[])
        .block(Kind::Linear, "ffn", "[T, 128]", &["128 → 256 → 128, relu", "65,920 parameters"])
        .block(Kind::Stream, "ffn.residual + norm", "[T, 128]", &[])
        .block(Kind::Output, "decoder.0.out", "[T, 128]", &[])
        .arrow("decoder.0.in", "self_attn", "")
        .arrow("decoder.0.in", "self_attn.residual + norm", "")
        .arrow("self_attn", "self_attn.residual + norm", "")
        .arrow("self_attn.residual + norm", "cross_attn", "q")
        .arrow("encoder.out", "cross_attn", "k, v")
        .arrow("self_attn.residual + norm", "cross_attn.residual + norm", "")
        .arrow("cross_attn", "cross_attn.residual + norm", "")
        .arrow("cross_attn.residual + norm", "ffn", "")
        .arrow("cross_attn.residual + norm", "ffn.residual + norm", "")
        .arrow("ffn", "ffn.residual + norm", "")
        .arrow("ffn.residual + norm", "decoder.0.out", "")
        .done()
}

/// All samples with a name for their snapshots.
pub fn all() -> Vec<(&'static str, Diagram)> {
    vec![
        ("cross_attention", cross_attention("")),
        ("long_names", cross_attention("model.decoder.layers.0.encoder_attn.")),
        ("whole_model", whole_model()),
        ("self_attention", self_attention()),
        ("feed_forward", feed_forward()),
        ("strange_names", strange_names()),
        ("crossing", crossing()),
        ("decoder_layer", decoder_layer()),
    ]
}
