"""A Llama of random bf16 weights, in shards with an index, as Hugging Face keeps it: without torch, and without holding it.

    make.py FOLDER [3b|1b]

3b: 6.1 GB, the shape of OpenLLaMA 3B with 23 of its 26 layers; 1b: 2.2 GB, TinyLlama's.
"""

import json
import os
import sys

import numpy as np

SHAPES = {
    "3b": dict(hidden=3200, ffn=8640, heads=32, kv_heads=32, layers=23, vocabulary=32000),
    "1b": dict(hidden=2048, ffn=5632, heads=32, kv_heads=4, layers=22, vocabulary=32000),
}
SHARD = 1 << 30


def config(hidden, ffn, heads, kv_heads, layers, vocabulary):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "num_hidden_layers": layers,
        "vocab_size": vocabulary, "rms_norm_eps": 1e-6, "max_position_embeddings": 2048, "hidden_act": "silu",
        "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1,
        "eos_token_id": 2,
    }


def tensors(hidden, ffn, heads, kv_heads, layers, vocabulary):
    """Names and shapes, in the order in which they are used."""
    kv = hidden // heads * kv_heads
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for layer in range(layers):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", (hidden,)
        for part, rows in [("q", hidden), ("k", kv), ("v", kv), ("o", hidden)]:
            yield f"{name}self_attn.{part}_proj.weight", (rows, hidden)
        yield name + "post_attention_layernorm.weight", (hidden,)
        yield name + "mlp.gate_proj.weight", (ffn, hidden)
        yield name + "mlp.up_proj.weight", (ffn, hidden)
        yield name + "mlp.down_proj.weight", (hidden, ffn)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)


def shards(listed):
    """As many tensors together as fit in a shard."""
    shard, size = [], 0
    for name, shape in listed:
        bytes_ = 2 * int(np.prod(shape))
        if shard and size + bytes_ > SHARD:
            yield shard
            shard, size = [], 0
        shard.append((name, shape, bytes_))
        size += bytes_
    yield shard


def as_bf16(values):
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def main(folder, shape):
    shape = SHAPES[shape]
    os.makedirs(folder, exist_ok=True)
    random = np.random.default_rng(0)
    # Every matrix is a piece of this, from a place of its own.
    pool = as_bf16(0.02 * random.standard_normal((1 << 24) + 12345, dtype=np.float32))
    parts = list(shards(tensors(**shape)))
    index = {}
    for number, shard in enumerate(parts, 1):
        file = f"model-{number:05}-of-{len(parts):05}.safetensors"
        header, end = {"__metadata__": {"format": "pt"}}, 0
        for name, dims, size in shard:
            header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [end, end + size]}
            index[name] = file
            end += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, file), "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for name, dims, size in shard:
                left = size // 2
                if len(dims) == 1:
                    out.write(as_bf16(np.ones(left, np.float32)).tobytes())
                    continue
                while left:
                    start = int(random.integers(0, len(pool) // 2))
                    piece = pool[start : start + left]
                    out.write(piece.tobytes())
                    left -= len(piece)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as out:
        json.dump({"metadata": {"total_size": sum(size for shard in parts for *_, size in shard)}, "weight_map": index}, out)
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config(**shape), out, indent=1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "3b")
