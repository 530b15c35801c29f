//! The tables of names that several families share.

use crate::names::{NameScheme, Row};
use crate::rotary::RotaryPairs;

/// fairseq's layer names, which Hugging Face kept for BART and everything after it.
pub(super) const FAIRSEQ_LAYERS: &[Row] = &[
    ("{s}.{n}.self_attn.q", "{s}.layers.{n}.self_attn.q_proj"),
    ("{s}.{n}.self_attn.k", "{s}.layers.{n}.self_attn.k_proj"),
    ("{s}.{n}.self_attn.v", "{s}.layers.{n}.self_attn.v_proj"),
    ("{s}.{n}.self_attn.out", "{s}.layers.{n}.self_attn.out_proj"),
    ("{s}.{n}.self_attn.norm", "{s}.layers.{n}.self_attn_layer_norm"),
    ("decoder.{n}.cross_attn.q", "decoder.layers.{n}.encoder_attn.q_proj"),
    ("decoder.{n}.cross_attn.k", "decoder.layers.{n}.encoder_attn.k_proj"),
    ("decoder.{n}.cross_attn.v", "decoder.layers.{n}.encoder_attn.v_proj"),
    ("decoder.{n}.cross_attn.out", "decoder.layers.{n}.encoder_attn.out_proj"),
    ("decoder.{n}.cross_attn.norm", "decoder.layers.{n}.encoder_attn_layer_norm"),
    // .apr files may say cross_attn for encoder_attn.
    ("decoder.{n}.cross_attn.q", "decoder.layers.{n}.cross_attn.q_proj"),
    ("decoder.{n}.cross_attn.k", "decoder.layers.{n}.cross_attn.k_proj"),
    ("decoder.{n}.cross_attn.v", "decoder.layers.{n}.cross_attn.v_proj"),
    ("decoder.{n}.cross_attn.out", "decoder.layers.{n}.cross_attn.out_proj"),
    ("decoder.{n}.cross_attn.norm", "decoder.layers.{n}.cross_attn_layer_norm"),
    ("{s}.{n}.ffn.hidden", "{s}.layers.{n}.fc1"),
    ("{s}.{n}.ffn.out", "{s}.layers.{n}.fc2"),
    ("{s}.{n}.ffn.norm", "{s}.layers.{n}.final_layer_norm"),
];

/// fairseq's names outside of layers, kept by Hugging Face.
pub(super) const FAIRSEQ_EMBEDDINGS: &[Row] = &[
    ("src.embed", "encoder.embed_tokens"),
    ("src.embed", "shared"),
    ("src.embed", "decoder.embed_tokens"),
    ("tgt.embed", "decoder.embed_tokens"),
    ("tgt.embed", "shared"),
    ("src.positions", "encoder.embed_positions"),
    ("tgt.positions", "decoder.embed_positions"),
    ("src.embed_pos", "encoder.layernorm_embedding"),
    ("tgt.embed_pos", "decoder.layernorm_embedding"),
    ("src.embed_norm", "encoder.layernorm_embedding"),
    ("tgt.embed_norm", "decoder.layernorm_embedding"),
    ("encoder.out", "encoder.layer_norm"),
    ("decoder.out", "decoder.layer_norm"),
];

/// Hugging Face's names for BART, Marian, Pegasus, M2M-100, Blenderbot and Whisper.
pub(super) const HUGGING_FACE: NameScheme = NameScheme {
    id: "Hugging Face",
    tables: &[
        FAIRSEQ_LAYERS,
        FAIRSEQ_EMBEDDINGS,
        &[
            ("logits", "lm_head"),
            ("logits", "proj_out"),
            ("logits", "classification_head.out_proj"),
            ("logits", "qa_outputs"),
            ("classifier.1.linear", "classification_head.dense"),
            ("logits.bias", "final_logits_bias"),
            ("audio.conv1", "encoder.conv1"),
            ("audio.conv2", "encoder.conv2"),
        ],
    ],
    buffers: &["final_logits_bias"],
    pairs: None,
};

/// Hugging Face's names for T5 and mT5.
pub(super) const T5: NameScheme =
    NameScheme { id: "Hugging Face T5", tables: &[T5_TABLE], buffers: &[], pairs: None };

/// The same as a table.
pub(super) const T5_TABLE: &[Row] = &[
    ("{s}.{n}.self_attn.q", "{s}.block.{n}.layer.0.SelfAttention.q"),
    ("{s}.{n}.self_attn.k", "{s}.block.{n}.layer.0.SelfAttention.k"),
    ("{s}.{n}.self_attn.v", "{s}.block.{n}.layer.0.SelfAttention.v"),
    ("{s}.{n}.self_attn.out", "{s}.block.{n}.layer.0.SelfAttention.o"),
    ("{s}.{n}.self_attn.norm", "{s}.block.{n}.layer.0.layer_norm"),
    ("{s}.{n}.self_attn.bias", "{s}.block.{n}.layer.0.SelfAttention.relative_attention_bias"),
    ("decoder.{n}.cross_attn.q", "decoder.block.{n}.layer.1.EncDecAttention.q"),
    ("decoder.{n}.cross_attn.k", "decoder.block.{n}.layer.1.EncDecAttention.k"),
    ("decoder.{n}.cross_attn.v", "decoder.block.{n}.layer.1.EncDecAttention.v"),
    ("decoder.{n}.cross_attn.out", "decoder.block.{n}.layer.1.EncDecAttention.o"),
    ("decoder.{n}.cross_attn.norm", "decoder.block.{n}.layer.1.layer_norm"),
    ("encoder.{n}.ffn.hidden", "encoder.block.{n}.layer.1.DenseReluDense.wi"),
    ("encoder.{n}.ffn.hidden", "encoder.block.{n}.layer.1.DenseReluDense.wi_0"),
    ("encoder.{n}.ffn.gate", "encoder.block.{n}.layer.1.DenseReluDense.wi_1"),
    ("encoder.{n}.ffn.out", "encoder.block.{n}.layer.1.DenseReluDense.wo"),
    ("encoder.{n}.ffn.norm", "encoder.block.{n}.layer.1.layer_norm"),
    ("decoder.{n}.ffn.hidden", "decoder.block.{n}.layer.2.DenseReluDense.wi"),
    ("decoder.{n}.ffn.hidden", "decoder.block.{n}.layer.2.DenseReluDense.wi_0"),
    ("decoder.{n}.ffn.gate", "decoder.block.{n}.layer.2.DenseReluDense.wi_1"),
    ("decoder.{n}.ffn.out", "decoder.block.{n}.layer.2.DenseReluDense.wo"),
    ("decoder.{n}.ffn.norm", "decoder.block.{n}.layer.2.layer_norm"),
    ("src.embed", "encoder.embed_tokens"),
    ("src.embed", "shared"),
    ("src.embed", "decoder.embed_tokens"),
    ("tgt.embed", "decoder.embed_tokens"),
    ("tgt.embed", "shared"),
    ("encoder.out", "encoder.final_layer_norm"),
    ("decoder.out", "decoder.final_layer_norm"),
    ("logits", "lm_head"),
];

/// GPT-2's names. Its maps are stored as [input, output], and q, k and v in one.
pub(super) const GPT2: NameScheme = NameScheme {
    id: "GPT-2",
    tables: &[&[
        ("decoder.{n}.self_attn.norm", "h.{n}.ln_1"),
        ("decoder.{n}.self_attn.q.weight", "h.{n}.attn.c_attn.weight[0/3]^T"),
        ("decoder.{n}.self_attn.k.weight", "h.{n}.attn.c_attn.weight[1/3]^T"),
        ("decoder.{n}.self_attn.v.weight", "h.{n}.attn.c_attn.weight[2/3]^T"),
        ("decoder.{n}.self_attn.q.bias", "h.{n}.attn.c_attn.bias[0/3]"),
        ("decoder.{n}.self_attn.k.bias", "h.{n}.attn.c_attn.bias[1/3]"),
        ("decoder.{n}.self_attn.v.bias", "h.{n}.attn.c_attn.bias[2/3]"),
        ("decoder.{n}.self_attn.out", "h.{n}.attn.c_proj^T"),
        ("decoder.{n}.ffn.norm", "h.{n}.ln_2"),
        ("decoder.{n}.ffn.hidden", "h.{n}.mlp.c_fc^T"),
        ("decoder.{n}.ffn.out", "h.{n}.mlp.c_proj^T"),
        ("tgt.embed", "wte"),
        ("tgt.positions", "wpe"),
        ("decoder.out", "ln_f"),
        ("logits", "lm_head"),
    ]],
    buffers: &[],
    pairs: None,
};

/// Hugging Face's names for Llama. There, gate is the input of the activation, and up is what the activation multiplies.
pub(super) const LLAMA: NameScheme = NameScheme {
    id: "Hugging Face Llama",
    tables: &[&[
        ("decoder.{n}.self_attn.norm", "layers.{n}.input_layernorm"),
        ("decoder.{n}.self_attn.q", "layers.{n}.self_attn.q_proj"),
        ("decoder.{n}.self_attn.k", "layers.{n}.self_attn.k_proj"),
        ("decoder.{n}.self_attn.v", "layers.{n}.self_attn.v_proj"),
        (
            "decoder.{n}.self_attn.q.weight",
            "layers.{n}.self_attn.qkv_proj.weight[q|layers.{n}.self_attn.o_proj.weight]",
        ),
        (
            "decoder.{n}.self_attn.k.weight",
            "layers.{n}.self_attn.qkv_proj.weight[k|layers.{n}.self_attn.o_proj.weight]",
        ),
        (
            "decoder.{n}.self_attn.v.weight",
            "layers.{n}.self_attn.qkv_proj.weight[v|layers.{n}.self_attn.o_proj.weight]",
        ),
        ("decoder.{n}.self_attn.q_norm", "layers.{n}.self_attn.q_norm"),
        ("decoder.{n}.self_attn.k_norm", "layers.{n}.self_attn.k_norm"),
        ("decoder.{n}.self_attn.out", "layers.{n}.self_attn.o_proj"),
        ("decoder.{n}.ffn.norm", "layers.{n}.post_attention_layernorm"),
        ("decoder.{n}.ffn.hidden", "layers.{n}.mlp.gate_proj"),
        ("decoder.{n}.ffn.gate", "layers.{n}.mlp.up_proj"),
        ("decoder.{n}.ffn.hidden.weight", "layers.{n}.mlp.gate_up_proj.weight[0/2]"),
        ("decoder.{n}.ffn.gate.weight", "layers.{n}.mlp.gate_up_proj.weight[1/2]"),
        ("decoder.{n}.ffn.out", "layers.{n}.mlp.down_proj"),
        ("tgt.embed", "embed_tokens"),
        ("decoder.out", "norm"),
        ("logits", "lm_head"),
    ]],
    buffers: &[],
    pairs: None,
};

/// Hugging Face's names for Gemma 2 and 3, where each sublayer has a norm before it and one of its output. Of Llama's names,
/// one means another norm here.
pub(super) const GEMMA2: NameScheme = NameScheme {
    id: "Hugging Face Gemma 2",
    tables: &[&[
        ("decoder.{n}.self_attn.norm", "layers.{n}.input_layernorm"),
        ("decoder.{n}.self_attn.q", "layers.{n}.self_attn.q_proj"),
        ("decoder.{n}.self_attn.k", "layers.{n}.self_attn.k_proj"),
        ("decoder.{n}.self_attn.v", "layers.{n}.self_attn.v_proj"),
        ("decoder.{n}.self_attn.q_norm", "layers.{n}.self_attn.q_norm"),
        ("decoder.{n}.self_attn.k_norm", "layers.{n}.self_attn.k_norm"),
        ("decoder.{n}.self_attn.out", "layers.{n}.self_attn.o_proj"),
        ("decoder.{n}.self_attn.out_norm", "layers.{n}.post_attention_layernorm"),
        ("decoder.{n}.ffn.norm", "layers.{n}.pre_feedforward_layernorm"),
        ("decoder.{n}.ffn.hidden", "layers.{n}.mlp.gate_proj"),
        ("decoder.{n}.ffn.gate", "layers.{n}.mlp.up_proj"),
        ("decoder.{n}.ffn.out", "layers.{n}.mlp.down_proj"),
        ("decoder.{n}.ffn.out_norm", "layers.{n}.post_feedforward_layernorm"),
        ("tgt.embed", "embed_tokens"),
        ("decoder.out", "norm"),
        ("logits", "lm_head"),
        ("head.logits", "lm_head"),
    ]],
    buffers: &[],
    pairs: None,
};

/// Hugging Face's names for GPT-NeoX, which packs q, k and v head by head.
pub(super) const GPT_NEOX: NameScheme = NameScheme {
    id: "Hugging Face GPT-NeoX",
    tables: &[&[
        ("decoder.{n}.self_attn.norm", "layers.{n}.input_layernorm"),
        ("decoder.{n}.self_attn.q.weight", "layers.{n}.attention.query_key_value.weight[0/3 by head]"),
        ("decoder.{n}.self_attn.k.weight", "layers.{n}.attention.query_key_value.weight[1/3 by head]"),
        ("decoder.{n}.self_attn.v.weight", "layers.{n}.attention.query_key_value.weight[2/3 by head]"),
        ("decoder.{n}.self_attn.q.bias", "layers.{n}.attention.query_key_value.bias[0/3 by head]"),
        ("decoder.{n}.self_attn.k.bias", "layers.{n}.attention.query_key_value.bias[1/3 by head]"),
        ("decoder.{n}.self_attn.v.bias", "layers.{n}.attention.query_key_value.bias[2/3 by head]"),
        ("decoder.{n}.self_attn.out", "layers.{n}.attention.dense"),
        ("decoder.{n}.ffn.norm", "layers.{n}.post_attention_layernorm"),
        ("decoder.{n}.ffn.hidden", "layers.{n}.mlp.dense_h_to_4h"),
        ("decoder.{n}.ffn.out", "layers.{n}.mlp.dense_4h_to_h"),
        ("tgt.embed", "embed_in"),
        ("decoder.out", "final_layer_norm"),
        ("logits", "embed_out"),
        ("logits", "lm_head"),
    ]],
    buffers: &[],
    pairs: None,
};

/// Hugging Face's names for RoBERTa: BERT's, with another head.
pub(super) const ROBERTA: NameScheme = NameScheme {
    id: "Hugging Face RoBERTa",
    tables: &[
        BERT_ENCODER,
        &[
            ("head.dense", "lm_head.dense"),
            ("head.norm", "lm_head.layer_norm"),
            ("logits", "lm_head.decoder"),
            ("logits.bias", "lm_head.bias"),
            ("logits", "classifier.out_proj"),
            ("classifier.1.linear", "classifier.dense"),
            ("logits", "classifier"),
            ("logits", "qa_outputs"),
        ],
    ],
    buffers: &[],
    pairs: None,
};

/// Hugging Face's names for ModernBERT, which packs q, k and v, and both wide maps.
pub(super) const MODERNBERT: NameScheme = NameScheme {
    id: "Hugging Face ModernBERT",
    tables: &[&[
        ("encoder.{n}.self_attn.norm", "layers.{n}.attn_norm"),
        ("encoder.{n}.self_attn.q.weight", "layers.{n}.attn.Wqkv.weight[0/3]"),
        ("encoder.{n}.self_attn.k.weight", "layers.{n}.attn.Wqkv.weight[1/3]"),
        ("encoder.{n}.self_attn.v.weight", "layers.{n}.attn.Wqkv.weight[2/3]"),
        ("encoder.{n}.self_attn.q.bias", "layers.{n}.attn.Wqkv.bias[0/3]"),
        ("encoder.{n}.self_attn.k.bias", "layers.{n}.attn.Wqkv.bias[1/3]"),
        ("encoder.{n}.self_attn.v.bias", "layers.{n}.attn.Wqkv.bias[2/3]"),
        ("encoder.{n}.self_attn.out", "layers.{n}.attn.Wo"),
        ("encoder.{n}.ffn.norm", "layers.{n}.mlp_norm"),
        ("encoder.{n}.ffn.hidden.weight", "layers.{n}.mlp.Wi.weight[0/2]"),
        ("encoder.{n}.ffn.gate.weight", "layers.{n}.mlp.Wi.weight[1/2]"),
        ("encoder.{n}.ffn.hidden.bias", "layers.{n}.mlp.Wi.bias[0/2]"),
        ("encoder.{n}.ffn.gate.bias", "layers.{n}.mlp.Wi.bias[1/2]"),
        ("encoder.{n}.ffn.out", "layers.{n}.mlp.Wo"),
        ("src.embed", "embeddings.tok_embeddings"),
        ("src.embed_pos", "embeddings.norm"),
        ("encoder.out", "final_norm"),
        ("head.dense", "head.dense"),
        ("head.norm", "head.norm"),
        ("logits", "decoder"),
        ("logits", "classifier"),
        // The same two, before or behind a pool.
        ("classifier.0.linear", "head.dense"),
        ("classifier.1.linear", "head.dense"),
        ("classifier.2.norm", "head.norm"),
        ("classifier.3.norm", "head.norm"),
    ]],
    buffers: &[],
    pairs: None,
};

/// Meta's own names for Llama, beside params.json.
pub(super) const LLAMA_META: NameScheme = NameScheme {
    id: "Meta Llama",
    tables: &[&[
        ("decoder.{n}.self_attn.norm", "layers.{n}.attention_norm"),
        ("decoder.{n}.self_attn.q", "layers.{n}.attention.wq"),
        ("decoder.{n}.self_attn.k", "layers.{n}.attention.wk"),
        ("decoder.{n}.self_attn.v", "layers.{n}.attention.wv"),
        ("decoder.{n}.self_attn.out", "layers.{n}.attention.wo"),
        ("decoder.{n}.ffn.norm", "layers.{n}.ffn_norm"),
        ("decoder.{n}.ffn.hidden", "layers.{n}.feed_forward.w1"),
        ("decoder.{n}.ffn.gate", "layers.{n}.feed_forward.w3"),
        ("decoder.{n}.ffn.out", "layers.{n}.feed_forward.w2"),
        ("tgt.embed", "tok_embeddings"),
        ("decoder.out", "norm"),
        ("logits", "output"),
    ]],
    buffers: &[],
    pairs: Some(RotaryPairs::Neighbours),
};

/// Hugging Face's names for BERT's encoder. In its first files, norms have gamma and beta.
pub(super) const BERT_ENCODER: &[Row] = &[
    ("encoder.{n}.self_attn.q", "encoder.layer.{n}.attention.self.query"),
    ("encoder.{n}.self_attn.k", "encoder.layer.{n}.attention.self.key"),
    ("encoder.{n}.self_attn.v", "encoder.layer.{n}.attention.self.value"),
    ("encoder.{n}.self_attn.out", "encoder.layer.{n}.attention.output.dense"),
    ("encoder.{n}.self_attn.norm", "encoder.layer.{n}.attention.output.LayerNorm"),
    ("encoder.{n}.self_attn.norm.weight", "encoder.layer.{n}.attention.output.LayerNorm.gamma"),
    ("encoder.{n}.self_attn.norm.bias", "encoder.layer.{n}.attention.output.LayerNorm.beta"),
    ("encoder.{n}.ffn.hidden", "encoder.layer.{n}.intermediate.dense"),
    ("encoder.{n}.ffn.out", "encoder.layer.{n}.output.dense"),
    ("encoder.{n}.ffn.norm", "encoder.layer.{n}.output.LayerNorm"),
    ("encoder.{n}.ffn.norm.weight", "encoder.layer.{n}.output.LayerNorm.gamma"),
    ("encoder.{n}.ffn.norm.bias", "encoder.layer.{n}.output.LayerNorm.beta"),
    ("src.embed", "embeddings.word_embeddings"),
    ("src.positions", "embeddings.position_embeddings"),
    ("src.types", "embeddings.token_type_embeddings"),
    ("src.embed_pos", "embeddings.LayerNorm"),
    ("src.embed_pos.weight", "embeddings.LayerNorm.gamma"),
    ("src.embed_pos.bias", "embeddings.LayerNorm.beta"),
];

/// Hugging Face's names for BERT.
pub(super) const BERT: NameScheme = NameScheme {
    id: "Hugging Face BERT",
    tables: &[
        BERT_ENCODER,
        &[
            ("head.dense", "cls.predictions.transform.dense"),
            ("head.norm", "cls.predictions.transform.LayerNorm"),
            ("head.norm.weight", "cls.predictions.transform.LayerNorm.gamma"),
            ("head.norm.bias", "cls.predictions.transform.LayerNorm.beta"),
            ("logits", "cls.predictions.decoder"),
            ("logits", "classifier"),
            ("logits", "qa_outputs"),
            ("classifier.1.linear", "pooler.dense"),
            ("logits.bias", "cls.predictions.bias"),
        ],
    ],
    buffers: &[],
    pairs: None,
};

/// OpenAI's names for Whisper, kept by whisper.cpp.
pub(super) const OPENAI_WHISPER: NameScheme = NameScheme {
    id: "OpenAI Whisper",
    tables: &[&[
        ("{s}.{n}.self_attn.q", "{s}.blocks.{n}.attn.query"),
        ("{s}.{n}.self_attn.k", "{s}.blocks.{n}.attn.key"),
        ("{s}.{n}.self_attn.v", "{s}.blocks.{n}.attn.value"),
        ("{s}.{n}.self_attn.out", "{s}.blocks.{n}.attn.out"),
        ("{s}.{n}.self_attn.norm", "{s}.blocks.{n}.attn_ln"),
        ("decoder.{n}.cross_attn.q", "decoder.blocks.{n}.cross_attn.query"),
        ("decoder.{n}.cross_attn.k", "decoder.blocks.{n}.cross_attn.key"),
        ("decoder.{n}.cross_attn.v", "decoder.blocks.{n}.cross_attn.value"),
        ("decoder.{n}.cross_attn.out", "decoder.blocks.{n}.cross_attn.out"),
        ("decoder.{n}.cross_attn.norm", "decoder.blocks.{n}.cross_attn_ln"),
        ("{s}.{n}.ffn.hidden", "{s}.blocks.{n}.mlp.0"),
        ("{s}.{n}.ffn.out", "{s}.blocks.{n}.mlp.2"),
        ("{s}.{n}.ffn.norm", "{s}.blocks.{n}.mlp_ln"),
        ("audio.conv1", "encoder.conv1"),
        ("audio.conv2", "encoder.conv2"),
        ("src.positions.weight", "encoder.positional_embedding"),
        ("tgt.positions.weight", "decoder.positional_embedding"),
        ("tgt.embed", "decoder.token_embedding"),
        ("encoder.out", "encoder.ln_post"),
        ("decoder.out", "decoder.ln"),
    ]],
    buffers: &["encoder.positional_embedding"],
    pairs: None,
};

/// fairseq's own files: the output projection has another name, and old ones pack q, k and v.
pub(super) const FAIRSEQ: NameScheme = NameScheme {
    id: "fairseq",
    tables: &[
        FAIRSEQ_LAYERS,
        FAIRSEQ_EMBEDDINGS,
        &[
            ("logits", "decoder.output_projection"),
            ("logits.weight", "decoder.embed_out"),
            ("{s}.{n}.self_attn.q.weight", "{s}.layers.{n}.self_attn.in_proj_weight[0/3]"),
            ("{s}.{n}.self_attn.k.weight", "{s}.layers.{n}.self_attn.in_proj_weight[1/3]"),
            ("{s}.{n}.self_attn.v.weight", "{s}.layers.{n}.self_attn.in_proj_weight[2/3]"),
            ("{s}.{n}.self_attn.q.bias", "{s}.layers.{n}.self_attn.in_proj_bias[0/3]"),
            ("{s}.{n}.self_attn.k.bias", "{s}.layers.{n}.self_attn.in_proj_bias[1/3]"),
            ("{s}.{n}.self_attn.v.bias", "{s}.layers.{n}.self_attn.in_proj_bias[2/3]"),
            ("decoder.{n}.cross_attn.q.weight", "decoder.layers.{n}.encoder_attn.in_proj_weight[0/3]"),
            ("decoder.{n}.cross_attn.k.weight", "decoder.layers.{n}.encoder_attn.in_proj_weight[1/3]"),
            ("decoder.{n}.cross_attn.v.weight", "decoder.layers.{n}.encoder_attn.in_proj_weight[2/3]"),
            ("decoder.{n}.cross_attn.q.bias", "decoder.layers.{n}.encoder_attn.in_proj_bias[0/3]"),
            ("decoder.{n}.cross_attn.k.bias", "decoder.layers.{n}.encoder_attn.in_proj_bias[1/3]"),
            ("decoder.{n}.cross_attn.v.bias", "decoder.layers.{n}.encoder_attn.in_proj_bias[2/3]"),
        ],
    ],
    buffers: &[],
    pairs: None,
};
