"""The checkpoint of make.py as llama.cpp reads it: bf16, no vocabulary, q and k rows permuted as its converter does.

    gguf_of.py FOLDER FILE
"""

import json
import os
import sys

import gguf
import numpy as np

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}


def read(folder):
    """Every tensor with its bf16 bits."""
    with open(os.path.join(folder, "model.safetensors.index.json")) as file:
        files = sorted(set(json.load(file)["weight_map"].values()))
    for name in files:
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        for tensor, info in header.items():
            if tensor != "__metadata__":
                begin, end = info["data_offsets"]
                yield tensor, np.memmap(path, np.uint16, "r", 8 + length + begin, (end - begin) // 2).reshape(info["shape"])


def pairs_side_by_side(bits, heads):
    rows, columns = bits.shape
    return bits.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main(folder, out):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for name, bits in read(folder):
        if name in WHOLE:
            new = WHOLE[name]
        else:
            _, _, layer, part = name.split(".", 3)
            part = part.removesuffix(".weight")
            new = f"blk.{layer}.{NAMES[part]}.weight"
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                bits = pairs_side_by_side(bits, heads if "q_proj" in part else kv_heads)
        if bits.ndim == 1:
            writer.add_tensor(new, (bits.astype(np.uint32) << 16).view(np.float32))
        else:
            data = np.ascontiguousarray(bits).view(np.uint8)
            writer.add_tensor(new, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
