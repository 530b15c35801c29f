//! llama.cpp's names in GGUF files: one word for the same part in all architectures, as far as it can be.

use crate::names::{NameScheme, Row};

/// llama.cpp's names for T5 in GGUF files. Ungated, `ffn_up` is the only wide map; gated, it is the linear branch.
pub(super) const T5: NameScheme = NameScheme {
    id: "llama.cpp T5",
    tables: &[&[
        ("encoder.{n}.self_attn.q", "enc.blk.{n}.attn_q"),
        ("encoder.{n}.self_attn.k", "enc.blk.{n}.attn_k"),
        ("encoder.{n}.self_attn.v", "enc.blk.{n}.attn_v"),
        ("encoder.{n}.self_attn.out", "enc.blk.{n}.attn_o"),
        ("encoder.{n}.self_attn.norm", "enc.blk.{n}.attn_norm"),
        ("encoder.{n}.self_attn.bias", "enc.blk.{n}.attn_rel_b"),
        ("encoder.{n}.ffn.hidden", "enc.blk.{n}.ffn_gate"),
        ("encoder.{n}.ffn.hidden", "enc.blk.{n}.ffn_up"),
        ("encoder.{n}.ffn.gate", "enc.blk.{n}.ffn_up"),
        ("encoder.{n}.ffn.out", "enc.blk.{n}.ffn_down"),
        ("encoder.{n}.ffn.norm", "enc.blk.{n}.ffn_norm"),
        ("decoder.{n}.self_attn.q", "dec.blk.{n}.attn_q"),
        ("decoder.{n}.self_attn.k", "dec.blk.{n}.attn_k"),
        ("decoder.{n}.self_attn.v", "dec.blk.{n}.attn_v"),
        ("decoder.{n}.self_attn.out", "dec.blk.{n}.attn_o"),
        ("decoder.{n}.self_attn.norm", "dec.blk.{n}.attn_norm"),
        ("decoder.{n}.self_attn.bias", "dec.blk.{n}.attn_rel_b"),
        ("decoder.{n}.cross_attn.q", "dec.blk.{n}.cross_attn_q"),
        ("decoder.{n}.cross_attn.k", "dec.blk.{n}.cross_attn_k"),
        ("decoder.{n}.cross_attn.v", "dec.blk.{n}.cross_attn_v"),
        ("decoder.{n}.cross_attn.out", "dec.blk.{n}.cross_attn_o"),
        ("decoder.{n}.cross_attn.norm", "dec.blk.{n}.cross_attn_norm"),
        ("decoder.{n}.ffn.hidden", "dec.blk.{n}.ffn_gate"),
        ("decoder.{n}.ffn.hidden", "dec.blk.{n}.ffn_up"),
        ("decoder.{n}.ffn.gate", "dec.blk.{n}.ffn_up"),
        ("decoder.{n}.ffn.out", "dec.blk.{n}.ffn_down"),
        ("decoder.{n}.ffn.norm", "dec.blk.{n}.ffn_norm"),
        ("src.embed", "token_embd"),
        ("tgt.embed", "token_embd"),
        ("encoder.out", "enc.output_norm"),
        ("decoder.out", "dec.output_norm"),
        ("logits", "output"),
    ]],
    buffers: &[],
    pairs: None,
};

/// llama.cpp's names for language models in GGUF files: the same for all architectures, but for the feed-forward.
const SHARED: &[Row] = &[
    ("decoder.{n}.self_attn.norm", "blk.{n}.attn_norm"),
    ("decoder.{n}.self_attn.q", "blk.{n}.attn_q"),
    ("decoder.{n}.self_attn.k", "blk.{n}.attn_k"),
    ("decoder.{n}.self_attn.v", "blk.{n}.attn_v"),
    ("decoder.{n}.self_attn.q.weight", "blk.{n}.attn_qkv.weight[q|blk.{n}.attn_output.weight]"),
    ("decoder.{n}.self_attn.k.weight", "blk.{n}.attn_qkv.weight[k|blk.{n}.attn_output.weight]"),
    ("decoder.{n}.self_attn.v.weight", "blk.{n}.attn_qkv.weight[v|blk.{n}.attn_output.weight]"),
    ("decoder.{n}.self_attn.q.bias", "blk.{n}.attn_qkv.bias[q|blk.{n}.attn_output.weight]"),
    ("decoder.{n}.self_attn.k.bias", "blk.{n}.attn_qkv.bias[k|blk.{n}.attn_output.weight]"),
    ("decoder.{n}.self_attn.v.bias", "blk.{n}.attn_qkv.bias[v|blk.{n}.attn_output.weight]"),
    ("decoder.{n}.self_attn.q_norm", "blk.{n}.attn_q_norm"),
    ("decoder.{n}.self_attn.k_norm", "blk.{n}.attn_k_norm"),
    ("decoder.{n}.self_attn.q_rot.weight", "rope_freqs.weight"),
    ("decoder.{n}.self_attn.q_rot.weight", "rope_factors_short.weight"),
    ("decoder.{n}.self_attn.k_rot.weight", "rope_factors_long.weight"),
    ("decoder.{n}.self_attn.out", "blk.{n}.attn_output"),
    ("decoder.{n}.self_attn.out_norm", "blk.{n}.post_attention_norm"),
    ("decoder.{n}.ffn.norm", "blk.{n}.ffn_norm"),
    ("decoder.{n}.ffn.out", "blk.{n}.ffn_down"),
    ("decoder.{n}.ffn.out_norm", "blk.{n}.post_ffw_norm"),
    ("tgt.embed", "token_embd"),
    ("tgt.positions", "position_embd"),
    ("decoder.out", "output_norm"),
    ("logits", "output"),
    ("head.logits", "output"),
];

/// Constants in GGUF files.
const BUFFERS: &[&str] = &["rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"];

/// llama.cpp's names where the feed-forward has two wide maps of their own.
pub(super) const LLAMA: NameScheme = NameScheme {
    id: "llama.cpp",
    tables: &[
        &[("decoder.{n}.ffn.hidden", "blk.{n}.ffn_gate"), ("decoder.{n}.ffn.gate", "blk.{n}.ffn_up")],
        SHARED,
    ],
    buffers: BUFFERS,
    pairs: None,
};

/// llama.cpp's names where one tensor holds both wide maps.
pub(super) const PHI3: NameScheme = NameScheme {
    id: "llama.cpp Phi-3",
    tables: &[
        &[
            ("decoder.{n}.ffn.hidden.weight", "blk.{n}.ffn_up.weight[0/2]"),
            ("decoder.{n}.ffn.gate.weight", "blk.{n}.ffn_up.weight[1/2]"),
        ],
        SHARED,
    ],
    buffers: BUFFERS,
    pairs: None,
};

/// llama.cpp's names where the feed-forward is not gated: GPT-NeoX and GPT-2, whose matrices its converter transposes.
pub(super) const GPT_NEOX: NameScheme = NameScheme {
    id: "llama.cpp GPT-NeoX",
    tables: &[&[("decoder.{n}.ffn.hidden", "blk.{n}.ffn_up")], SHARED],
    buffers: BUFFERS,
    pairs: None,
};

/// llama.cpp's names for Falcon: of its larger models, `attn_norm` is the feed-forward's norm; the smaller ones have one norm for
/// both sublayers.
pub(super) const FALCON: NameScheme = NameScheme {
    id: "llama.cpp Falcon",
    tables: &[
        &[
            ("decoder.{n}.ffn.hidden", "blk.{n}.ffn_up"),
            ("decoder.{n}.self_attn.norm", "blk.{n}.attn_norm_2"),
            ("decoder.{n}.ffn.norm", "blk.{n}.attn_norm"),
        ],
        SHARED,
    ],
    buffers: BUFFERS,
    pairs: None,
};

/// llama.cpp's names for BERT, RoBERTa and DistilBERT, without their heads: it keeps what embeds a text.
pub(super) const BERT: NameScheme = NameScheme {
    id: "llama.cpp BERT",
    tables: &[&[
        ("encoder.{n}.self_attn.q", "blk.{n}.attn_q"),
        ("encoder.{n}.self_attn.k", "blk.{n}.attn_k"),
        ("encoder.{n}.self_attn.v", "blk.{n}.attn_v"),
        ("encoder.{n}.self_attn.out", "blk.{n}.attn_output"),
        ("encoder.{n}.self_attn.norm", "blk.{n}.attn_output_norm"),
        ("encoder.{n}.ffn.hidden", "blk.{n}.ffn_up"),
        ("encoder.{n}.ffn.out", "blk.{n}.ffn_down"),
        ("encoder.{n}.ffn.norm", "blk.{n}.layer_output_norm"),
        ("src.embed", "token_embd"),
        ("src.positions", "position_embd"),
        ("src.types", "token_types"),
        ("src.embed_pos", "token_embd_norm"),
    ]],
    buffers: &[],
    pairs: None,
};

/// llama.cpp's names for ModernBERT, which packs q, k and v, and both wide maps.
pub(super) const MODERNBERT: NameScheme = NameScheme {
    id: "llama.cpp ModernBERT",
    tables: &[&[
        ("encoder.{n}.self_attn.norm", "blk.{n}.attn_norm"),
        ("encoder.{n}.self_attn.q.weight", "blk.{n}.attn_qkv.weight[0/3]"),
        ("encoder.{n}.self_attn.k.weight", "blk.{n}.attn_qkv.weight[1/3]"),
        ("encoder.{n}.self_attn.v.weight", "blk.{n}.attn_qkv.weight[2/3]"),
        ("encoder.{n}.self_attn.out", "blk.{n}.attn_output"),
        ("encoder.{n}.ffn.norm", "blk.{n}.ffn_norm"),
        ("encoder.{n}.ffn.hidden.weight", "blk.{n}.ffn_up.weight[0/2]"),
        ("encoder.{n}.ffn.gate.weight", "blk.{n}.ffn_up.weight[1/2]"),
        ("encoder.{n}.ffn.out", "blk.{n}.ffn_down"),
        ("src.embed", "token_embd"),
        ("src.embed_pos", "token_embd_norm"),
        ("encoder.out", "output_norm"),
    ]],
    buffers: &[],
    pairs: None,
};
