//! The names of EncoderDecoder: two stacks of BERT or RoBERTa, each under a name of its own.

use crate::names::{NameScheme, Row};

/// The encoder has no head, and the same names in both.
const ENCODER: &[Row] = &[
    ("encoder.{n}.self_attn.q", "encoder.encoder.layer.{n}.attention.self.query"),
    ("encoder.{n}.self_attn.k", "encoder.encoder.layer.{n}.attention.self.key"),
    ("encoder.{n}.self_attn.v", "encoder.encoder.layer.{n}.attention.self.value"),
    ("encoder.{n}.self_attn.out", "encoder.encoder.layer.{n}.attention.output.dense"),
    ("encoder.{n}.self_attn.norm", "encoder.encoder.layer.{n}.attention.output.LayerNorm"),
    ("encoder.{n}.ffn.hidden", "encoder.encoder.layer.{n}.intermediate.dense"),
    ("encoder.{n}.ffn.out", "encoder.encoder.layer.{n}.output.dense"),
    ("encoder.{n}.ffn.norm", "encoder.encoder.layer.{n}.output.LayerNorm"),
    ("src.embed", "encoder.embeddings.word_embeddings"),
    ("src.positions", "encoder.embeddings.position_embeddings"),
    ("src.types", "encoder.embeddings.token_type_embeddings"),
    ("src.embed_pos", "encoder.embeddings.LayerNorm"),
];

/// Hugging Face's names for two BERTs, of which one reads the other.
pub(super) const TWO_BERTS: NameScheme = NameScheme {
    id: "Hugging Face EncoderDecoder of BERT",
    tables: &[
        ENCODER,
        &[
            ("decoder.{n}.self_attn.q", "decoder.bert.encoder.layer.{n}.attention.self.query"),
            ("decoder.{n}.self_attn.k", "decoder.bert.encoder.layer.{n}.attention.self.key"),
            ("decoder.{n}.self_attn.v", "decoder.bert.encoder.layer.{n}.attention.self.value"),
            ("decoder.{n}.self_attn.out", "decoder.bert.encoder.layer.{n}.attention.output.dense"),
            ("decoder.{n}.self_attn.norm", "decoder.bert.encoder.layer.{n}.attention.output.LayerNorm"),
            ("decoder.{n}.cross_attn.q", "decoder.bert.encoder.layer.{n}.crossattention.self.query"),
            ("decoder.{n}.cross_attn.k", "decoder.bert.encoder.layer.{n}.crossattention.self.key"),
            ("decoder.{n}.cross_attn.v", "decoder.bert.encoder.layer.{n}.crossattention.self.value"),
            ("decoder.{n}.cross_attn.out", "decoder.bert.encoder.layer.{n}.crossattention.output.dense"),
            ("decoder.{n}.cross_attn.norm", "decoder.bert.encoder.layer.{n}.crossattention.output.LayerNorm"),
            ("decoder.{n}.ffn.hidden", "decoder.bert.encoder.layer.{n}.intermediate.dense"),
            ("decoder.{n}.ffn.out", "decoder.bert.encoder.layer.{n}.output.dense"),
            ("decoder.{n}.ffn.norm", "decoder.bert.encoder.layer.{n}.output.LayerNorm"),
            ("tgt.embed", "decoder.bert.embeddings.word_embeddings"),
            ("tgt.positions", "decoder.bert.embeddings.position_embeddings"),
            ("tgt.types", "decoder.bert.embeddings.token_type_embeddings"),
            ("tgt.embed_pos", "decoder.bert.embeddings.LayerNorm"),
            ("head.dense", "decoder.cls.predictions.transform.dense"),
            ("head.norm", "decoder.cls.predictions.transform.LayerNorm"),
            ("logits", "decoder.cls.predictions.decoder"),
            ("logits.bias", "decoder.cls.predictions.bias"),
        ],
    ],
    buffers: &[],
    pairs: None,
};

/// Hugging Face's names for two RoBERTas, of which one reads the other.
pub(super) const TWO_ROBERTAS: NameScheme = NameScheme {
    id: "Hugging Face EncoderDecoder of RoBERTa",
    tables: &[
        ENCODER,
        &[
            ("decoder.{n}.self_attn.q", "decoder.roberta.encoder.layer.{n}.attention.self.query"),
            ("decoder.{n}.self_attn.k", "decoder.roberta.encoder.layer.{n}.attention.self.key"),
            ("decoder.{n}.self_attn.v", "decoder.roberta.encoder.layer.{n}.attention.self.value"),
            ("decoder.{n}.self_attn.out", "decoder.roberta.encoder.layer.{n}.attention.output.dense"),
            ("decoder.{n}.self_attn.norm", "decoder.roberta.encoder.layer.{n}.attention.output.LayerNorm"),
            ("decoder.{n}.cross_attn.q", "decoder.roberta.encoder.layer.{n}.crossattention.self.query"),
            ("decoder.{n}.cross_attn.k", "decoder.roberta.encoder.layer.{n}.crossattention.self.key"),
            ("decoder.{n}.cross_attn.v", "decoder.roberta.encoder.layer.{n}.crossattention.self.value"),
            ("decoder.{n}.cross_attn.out", "decoder.roberta.encoder.layer.{n}.crossattention.output.dense"),
            (
                "decoder.{n}.cross_attn.norm",
                "decoder.roberta.encoder.layer.{n}.crossattention.output.LayerNorm",
            ),
            ("decoder.{n}.ffn.hidden", "decoder.roberta.encoder.layer.{n}.intermediate.dense"),
            ("decoder.{n}.ffn.out", "decoder.roberta.encoder.layer.{n}.output.dense"),
            ("decoder.{n}.ffn.norm", "decoder.roberta.encoder.layer.{n}.output.LayerNorm"),
            ("tgt.embed", "decoder.roberta.embeddings.word_embeddings"),
            ("tgt.positions", "decoder.roberta.embeddings.position_embeddings"),
            ("tgt.types", "decoder.roberta.embeddings.token_type_embeddings"),
            ("tgt.embed_pos", "decoder.roberta.embeddings.LayerNorm"),
            ("head.dense", "decoder.lm_head.dense"),
            ("head.norm", "decoder.lm_head.layer_norm"),
            ("logits", "decoder.lm_head.decoder"),
            ("logits.bias", "decoder.lm_head.bias"),
        ],
    ],
    buffers: &[],
    pairs: None,
};
