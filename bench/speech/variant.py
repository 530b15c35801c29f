"""variant.py TINY_EN.pt FOLDER [--positions N] [--set KEY=VALUE]...: the checkpoint under Hugging Face's names with a config."""
import argparse, json, re
from pathlib import Path
import torch
from safetensors.torch import save_file

p = argparse.ArgumentParser()
p.add_argument("checkpoint"); p.add_argument("folder", type=Path)
p.add_argument("--positions", type=int); p.add_argument("--set", action="append", default=[])
a = p.parse_args()
loaded = torch.load(a.checkpoint, map_location="cpu", weights_only=True)
dims = loaded["dims"]
renames = [
    (r"^encoder\.positional_embedding$", "encoder.embed_positions.weight"),
    (r"^decoder\.positional_embedding$", "decoder.embed_positions.weight"),
    (r"^decoder\.token_embedding", "decoder.embed_tokens"),
    (r"^encoder\.ln_post", "encoder.layer_norm"), (r"^decoder\.ln\.", "decoder.layer_norm."),
    (r"\.blocks\.", ".layers."), (r"\.attn_ln\.", ".self_attn_layer_norm."), (r"\.attn\.", ".self_attn."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."), (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.query\.", ".q_proj."), (r"\.key\.", ".k_proj."), (r"\.value\.", ".v_proj."),
    (r"attn\.out\.", "attn.out_proj."), (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.mlp\.0\.", ".fc1."), (r"\.mlp\.2\.", ".fc2."),
]
def renamed(name):
    for pattern, new in renames:
        name = re.sub(pattern, new, name)
    return "model." + name
tensors = {renamed(k): v.float().contiguous() for k, v in loaded["model_state_dict"].items() if k != "decoder.mask"}
positions = a.positions or dims["n_audio_ctx"]
key = "model.encoder.embed_positions.weight"
tensors[key] = tensors[key][:positions].contiguous()
config = {
    "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "activation_function": "gelu",
    "d_model": dims["n_audio_state"], "encoder_layers": dims["n_audio_layer"], "decoder_layers": dims["n_text_layer"],
    "encoder_attention_heads": dims["n_audio_head"], "decoder_attention_heads": dims["n_text_head"],
    "num_mel_bins": dims["n_mels"], "vocab_size": dims["n_vocab"], "max_source_positions": positions,
    "max_target_positions": dims["n_text_ctx"], "scale_embedding": False, "tie_word_embeddings": True,
    "decoder_start_token_id": 50257, "eos_token_id": 50256, "pad_token_id": 50256, "bos_token_id": 50256,
    "encoder_ffn_dim": 4 * dims["n_audio_state"], "decoder_ffn_dim": 4 * dims["n_text_state"],
}
for item in a.set:
    k, v = item.split("=", 1)
    config[k] = json.loads(v)
a.folder.mkdir(parents=True, exist_ok=True)
save_file(tensors, a.folder / "model.safetensors", metadata={"format": "pt"})
(a.folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
