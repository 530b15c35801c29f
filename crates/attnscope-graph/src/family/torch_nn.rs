//! PyTorch's own `nn.Transformer`, with the wrappers that tutorials put around it.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start};
use crate::names::NameScheme;
use crate::wiring::Wiring;

/// `nn.Transformer` packs q, k and v into one matrix; the layers around it have many names.
const NAMES: NameScheme = NameScheme {
    id: "torch.nn.Transformer",
    tables: &[&[
        ("{s}.{n}.self_attn.q.weight", "{s}.layers.{n}.self_attn.in_proj_weight[0/3]"),
        ("{s}.{n}.self_attn.k.weight", "{s}.layers.{n}.self_attn.in_proj_weight[1/3]"),
        ("{s}.{n}.self_attn.v.weight", "{s}.layers.{n}.self_attn.in_proj_weight[2/3]"),
        ("{s}.{n}.self_attn.q.bias", "{s}.layers.{n}.self_attn.in_proj_bias[0/3]"),
        ("{s}.{n}.self_attn.k.bias", "{s}.layers.{n}.self_attn.in_proj_bias[1/3]"),
        ("{s}.{n}.self_attn.v.bias", "{s}.layers.{n}.self_attn.in_proj_bias[2/3]"),
        ("{s}.{n}.self_attn.out", "{s}.layers.{n}.self_attn.out_proj"),
        ("{s}.{n}.self_attn.norm", "{s}.layers.{n}.norm1"),
        ("decoder.{n}.cross_attn.q.weight", "decoder.layers.{n}.multihead_attn.in_proj_weight[0/3]"),
        ("decoder.{n}.cross_attn.k.weight", "decoder.layers.{n}.multihead_attn.in_proj_weight[1/3]"),
        ("decoder.{n}.cross_attn.v.weight", "decoder.layers.{n}.multihead_attn.in_proj_weight[2/3]"),
        ("decoder.{n}.cross_attn.q.bias", "decoder.layers.{n}.multihead_attn.in_proj_bias[0/3]"),
        ("decoder.{n}.cross_attn.k.bias", "decoder.layers.{n}.multihead_attn.in_proj_bias[1/3]"),
        ("decoder.{n}.cross_attn.v.bias", "decoder.layers.{n}.multihead_attn.in_proj_bias[2/3]"),
        ("decoder.{n}.cross_attn.out", "decoder.layers.{n}.multihead_attn.out_proj"),
        ("decoder.{n}.cross_attn.norm", "decoder.layers.{n}.norm2"),
        ("{s}.{n}.ffn.hidden", "{s}.layers.{n}.linear1"),
        ("{s}.{n}.ffn.out", "{s}.layers.{n}.linear2"),
        ("encoder.{n}.ffn.norm", "encoder.layers.{n}.norm2"),
        ("decoder.{n}.ffn.norm", "decoder.layers.{n}.norm3"),
        ("encoder.out", "encoder.norm"),
        ("decoder.out", "decoder.norm"),
        ("src.embed", "src_tok_emb.embedding"),
        ("src.embed", "src_tok_emb"),
        ("src.embed", "src_embedding"),
        ("src.embed", "src_embed"),
        ("src.embed", "src_emb"),
        ("src.embed", "encoder_embedding"),
        ("src.embed", "embedding"),
        ("tgt.embed", "tgt_tok_emb.embedding"),
        ("tgt.embed", "tgt_tok_emb"),
        ("tgt.embed", "tgt_embedding"),
        ("tgt.embed", "trg_embedding"),
        ("tgt.embed", "tgt_embed"),
        ("tgt.embed", "tgt_emb"),
        ("tgt.embed", "decoder_embedding"),
        ("src.positions.weight", "positional_encoding.pos_embedding"),
        ("src.positions.weight", "positional_encoding.pe"),
        ("src.positions.weight", "pos_encoder.pe"),
        ("tgt.positions.weight", "positional_encoding.pos_embedding"),
        ("tgt.positions.weight", "positional_encoding.pe"),
        ("tgt.positions.weight", "pos_encoder.pe"),
        ("logits", "generator"),
        ("logits", "fc_out"),
        ("logits", "out"),
        ("logits", "output_layer"),
        ("logits", "linear"),
    ]],
    buffers: &["positional_encoding.pos_embedding", ".pe"],
    pairs: None,
};

/// Post-norm and ReLU, unless the author chose otherwise; the file does not say.
pub(super) const FAMILY: Family = Family {
    id: "torch-nn",
    title: "torch.nn.Transformer",
    model_types: &["torch-nn", "nn.Transformer"],
    schemes: &[&NAMES],
    evidence: &[Evidence::HasName("linear1.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        encoder_final_norm: true,
        decoder_final_norm: true,
        tied_output: false,
        shared_embeddings: false,
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["activation"], sets: Sets::Activation, absent: None },
        Setting { keys: &["norm_first"], sets: Sets::NormBefore, absent: None },
        Setting { keys: &["layer_norm_eps"], sets: Sets::NormEps, absent: None },
    ],
    start: Start::Token { key: "bos_token_id", usual: None },
    end: None,
    absent_sizes: &[],
    unsaid: &["activation", "norm_place", "norm_eps", "embedding_scale"],
    flexible: true,
    task_heads: &[],
};
