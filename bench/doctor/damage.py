"""Damaged copies of a model's folder: mistakes of converters, noise, and configs that are wrong about one thing."""

import json
import shutil

import numpy as np
from safetensors.numpy import load_file, save_file

ENCODER, DECODER = "model.encoder.layers.%d.", "model.decoder.layers.%d."


def transposed(name):
    return lambda t: t.update({name: np.ascontiguousarray(t[name].T)})


def scaled(name, factor):
    return lambda t: t.update({name: t[name] * np.float16(factor)})


def exchanged(a, b):
    def apply(t):
        for leaf in (".weight", ".bias"):
            t[a + leaf], t[b + leaf] = t[b + leaf], t[a + leaf]

    return apply


def rolled(name, rows):
    return lambda t: t.update({name: np.roll(t[name], rows, axis=0)})


def noisy(prefix, share):
    def apply(t):
        random = np.random.default_rng(0)
        for name in [n for n in t if n.startswith(prefix) and t[n].ndim == 2]:
            noise = random.standard_normal(t[name].shape) * t[name].astype(np.float32).std() * share
            t[name] = (t[name] + noise).astype(t[name].dtype)

    return apply


def without(suffix):
    return lambda t: t.update({n: np.zeros_like(t[n]) for n in t if n.endswith(suffix)})


def layers(stack, copy):
    def apply(t):
        for name in [n for n in t if f".{stack}.layers.0." in n]:
            other = name.replace("layers.0", "layers.1")
            t[name], t[other] = (t[name], t[name]) if copy else (t[other], t[name])

    return apply


# Of a model with Marian's or BART's names and two layers.
WEIGHTS = {
    "encoder 0 q transposed": transposed(ENCODER % 0 + "self_attn.q_proj.weight"),
    "encoder 1 k transposed": transposed(ENCODER % 1 + "self_attn.k_proj.weight"),
    "decoder 0 v transposed": transposed(DECODER % 0 + "self_attn.v_proj.weight"),
    "decoder 1 cross out transposed": transposed(DECODER % 1 + "encoder_attn.out_proj.weight"),
    "decoder 0 cross k and v": exchanged(DECODER % 0 + "encoder_attn.k_proj", DECODER % 0 + "encoder_attn.v_proj"),
    "decoder 1 cross k and v": exchanged(DECODER % 1 + "encoder_attn.k_proj", DECODER % 1 + "encoder_attn.v_proj"),
    "encoder 1 q and k": exchanged(ENCODER % 1 + "self_attn.q_proj", ENCODER % 1 + "self_attn.k_proj"),
    "decoder 1 q and k": exchanged(DECODER % 1 + "self_attn.q_proj", DECODER % 1 + "self_attn.k_proj"),
    "decoder 1 cross q × 4": scaled(DECODER % 1 + "encoder_attn.q_proj.weight", 4),
    "encoder 1 q × 4": scaled(ENCODER % 1 + "self_attn.q_proj.weight", 4),
    "encoder 0 v negated": scaled(ENCODER % 0 + "self_attn.v_proj.weight", -1),
    "encoder 0 fc2 × 0.5": scaled(ENCODER % 0 + "fc2.weight", 0.5),
    "embeddings rolled": rolled("model.shared.weight", 1),
    "decoder 1 cross q heads": rolled(DECODER % 1 + "encoder_attn.q_proj.weight", 32),
    "encoder layers exchanged": layers("encoder", False),
    "decoder layers exchanged": layers("decoder", False),
    "encoder layer copied": layers("encoder", True),
    "decoder layer copied": layers("decoder", True),
    "ffn biases dropped": without("fc1.bias"),
    "attention biases dropped": without("out_proj.bias"),
    "norms exchanged": exchanged(DECODER % 0 + "self_attn_layer_norm", DECODER % 0 + "encoder_attn_layer_norm"),
    "noise of 10 %": noisy("model.", 0.1),
    "noise of 20 %": noisy("model.", 0.2),
    "noise of 40 %": noisy("model.", 0.4),
    "noise in the encoder": noisy("model.encoder", 0.5),
    "noise in the decoder": noisy("model.decoder", 0.5),
}

# The repair that each of them asks for, and where; what has none here is explained by none.
REPAIRS = {
    "encoder 0 q transposed": ("transpose", ["encoder.0.self_attn.q"]),
    "encoder 1 k transposed": ("transpose", ["encoder.1.self_attn.k"]),
    "decoder 0 v transposed": ("transpose", ["decoder.0.self_attn.v"]),
    "decoder 1 cross out transposed": ("transpose", ["decoder.1.cross_attn.out"]),
    "decoder 0 cross k and v": ("exchange", ["decoder.0.cross_attn.k", "decoder.0.cross_attn.v"]),
    "decoder 1 cross k and v": ("exchange", ["decoder.1.cross_attn.k", "decoder.1.cross_attn.v"]),
    "encoder 1 q and k": ("exchange", ["encoder.1.self_attn.q", "encoder.1.self_attn.k"]),
    "decoder 1 q and k": ("exchange", ["decoder.1.self_attn.q", "decoder.1.self_attn.k"]),
    "decoder 1 cross q × 4": ("scale", ["decoder.1.cross_attn.q", "decoder.1.cross_attn.k"]),
    "encoder 1 q × 4": ("scale", ["encoder.1.self_attn.q", "encoder.1.self_attn.k"]),
    "encoder 0 v negated": ("negate", ["encoder.0.self_attn.v", "encoder.0.self_attn.out"]),
    "encoder 0 fc2 × 0.5": ("scale", ["encoder.0.ffn."]),
    "embeddings rolled": ("roll", ["src.embed"]),
    "decoder 1 cross q heads": ("permute_heads", ["decoder.1.cross_attn.q", "decoder.1.cross_attn.k"]),
    "encoder layers exchanged": ("swap_layers", ["encoder."]),
    "decoder layers exchanged": ("swap_layers", ["decoder."]),
    "encoder layer copied": ("copied_layer", ["encoder."]),
    "decoder layer copied": ("copied_layer", ["decoder."]),
    "ffn biases dropped": ("zero_biases", ["encoder.", "decoder."]),
    "attention biases dropped": ("zero_biases", ["encoder.", "decoder."]),
    "norms exchanged": ("exchange", ["decoder.0.self_attn.norm", "decoder.0.cross_attn.norm"]),
}

MARIAN = "marian-tiny-en-de"
# Model, config keys, and the field and value that the weights were trained with.
CONFIGS = [
    (MARIAN, {"activation_function": "relu"}, {"activation": "swish"}),
    (MARIAN, {"activation_function": "gelu"}, {"activation": "swish"}),
    (MARIAN, {"scale_embedding": False}, {"embedding_scale": "sqrt_d_model"}),
    (MARIAN, {"encoder_attention_heads": 8}, {"encoder_heads": 4}),
    (MARIAN, {"decoder_attention_heads": 2}, {"decoder_heads": 4}),
    (MARIAN, {"encoder_attention_heads": 8, "decoder_attention_heads": 8}, {"heads": 4}),
    (MARIAN, {"decoder_start_token_id": 1}, {"start_token": 0}),
    (MARIAN, {"activation_function": "relu", "scale_embedding": False},
     {"activation": "swish", "embedding_scale": "sqrt_d_model"}),
    ("marian-base-en-de", {"activation_function": "relu"}, {"activation": "swish"}),
    ("marian-base-en-de", {"scale_embedding": False}, {"embedding_scale": "sqrt_d_model"}),
    ("bart-tiny-en-de", {"activation_function": "relu"}, {"activation": "gelu"}),
    ("bart-tiny-en-de", {"activation_function": "swish"}, {"activation": "gelu"}),
    ("bart-tiny-en-de", {"scale_embedding": True}, {"embedding_scale": "none"}),
    ("bart-tiny-en-de", {"encoder_attention_heads": 2}, {"encoder_heads": 4}),
    ("t5-tiny-en-de", {"feed_forward_proj": "gated-gelu"}, None),
    ("t5-tiny-en-de", {"relative_attention_max_distance": 16}, None),
    ("t5-tiny-en-de", {"decoder_start_token_id": 1}, {"start_token": 0}),
]


def copy(source, folder, weights=None, config=None):
    """A copy of a model's folder with its tensors or its config changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.name not in ("model.safetensors", "config.json"):
            shutil.copyfile(file, folder / file.name)
    settings = json.loads((source / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps(settings))
    if weights is None:
        shutil.copyfile(source / "model.safetensors", folder / "model.safetensors")
        return
    tensors = load_file(source / "model.safetensors")
    weights(tensors)
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "model.safetensors")
