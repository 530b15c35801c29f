//! TinyTransformer: the encoder-decoder of a course, in which students step through it in a debugger.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Start};
use crate::names::NameScheme;
use crate::wiring::{EmbeddingScale, Wiring};

/// The decoder's two attentions go by several names in copies of the exercise.
const NAMES: NameScheme = NameScheme {
    id: "TinyTransformer",
    tables: &[&[
        ("encoder.{n}.self_attn.q", "enc_layers.{n}.mha.W_q"),
        ("encoder.{n}.self_attn.k", "enc_layers.{n}.mha.W_k"),
        ("encoder.{n}.self_attn.v", "enc_layers.{n}.mha.W_v"),
        ("encoder.{n}.self_attn.out", "enc_layers.{n}.mha.W_o"),
        ("encoder.{n}.self_attn.norm", "enc_layers.{n}.ln1"),
        ("encoder.{n}.ffn.hidden", "enc_layers.{n}.ffn.fc1"),
        ("encoder.{n}.ffn.out", "enc_layers.{n}.ffn.fc2"),
        ("encoder.{n}.ffn.norm", "enc_layers.{n}.ln2"),
        ("decoder.{n}.self_attn.q", "dec_layers.{n}.self_mha.W_q"),
        ("decoder.{n}.self_attn.k", "dec_layers.{n}.self_mha.W_k"),
        ("decoder.{n}.self_attn.v", "dec_layers.{n}.self_mha.W_v"),
        ("decoder.{n}.self_attn.out", "dec_layers.{n}.self_mha.W_o"),
        ("decoder.{n}.self_attn.norm", "dec_layers.{n}.ln1"),
        ("decoder.{n}.cross_attn.q", "dec_layers.{n}.cross_mha.W_q"),
        ("decoder.{n}.cross_attn.k", "dec_layers.{n}.cross_mha.W_k"),
        ("decoder.{n}.cross_attn.v", "dec_layers.{n}.cross_mha.W_v"),
        ("decoder.{n}.cross_attn.out", "dec_layers.{n}.cross_mha.W_o"),
        ("decoder.{n}.cross_attn.norm", "dec_layers.{n}.ln2"),
        ("decoder.{n}.ffn.hidden", "dec_layers.{n}.ffn.fc1"),
        ("decoder.{n}.ffn.out", "dec_layers.{n}.ffn.fc2"),
        ("decoder.{n}.ffn.norm", "dec_layers.{n}.ln3"),
        ("src.embed", "src_emb"),
        ("tgt.embed", "tgt_emb"),
        ("src.positions.weight", "pos.pe"),
        ("tgt.positions.weight", "pos.pe"),
        ("logits", "proj"),
    ]],
    buffers: &["pos.pe"],
    pairs: None,
};

/// The paper's wiring, but embeddings are not scaled and the two vocabularies are separate.
pub(super) const FAMILY: Family = Family {
    id: "tiny-transformer",
    title: "TinyTransformer",
    model_types: &["tiny-transformer"],
    schemes: &[&NAMES],
    evidence: &[Evidence::HasName("mha.W_q.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        embedding_scale: EmbeddingScale::None,
        tied_output: false,
        shared_embeddings: false,
        ..Wiring::VASWANI
    },
    settings: &[],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: true,
    task_heads: &[],
};
