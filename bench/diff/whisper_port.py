"""Whisper in torch, with the module names of OpenAI's code, as somebody would port it.

The published checkpoint loads into it by name. The attention multiplies queries and keys by d_head^-0.25 each, as the
original does without SDPA; `sdpa=True` is what the original does otherwise.
"""

import torch
from torch import nn
from torch.nn import functional as F

import attention


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads, sdpa):
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, memory=None, mask=None):
        source = x if memory is None else memory
        q, k, v = (self.split(y) for y in (self.query(x), self.key(source), self.value(source)))  # [b, h, t, k]
        core = attention.planted(self, sdpa_core if self.sdpa else quarter_root_core)
        context, _ = core(self, q, k, v, mask, scaling=q.shape[-1] ** -0.5)
        return self.out(context.flatten(2))

    def split(self, y):
        return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def quarter_root_core(_module, q, k, v, mask, scaling):
    scores = (q * scaling**0.5) @ (k * scaling**0.5).transpose(-1, -2)
    if mask is not None:
        scores = scores + mask
    weights = scores.float().softmax(-1).to(q.dtype)
    return (weights @ v).transpose(1, 2), weights


def sdpa_core(_module, q, k, v, mask, scaling):
    return F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None, scale=scaling).transpose(1, 2), None


class ResidualAttentionBlock(nn.Module):
    def __init__(self, width, heads, cross, sdpa):
        super().__init__()
        self.attn = MultiHeadAttention(width, heads, sdpa)
        self.attn_ln = nn.LayerNorm(width)
        self.cross_attn = MultiHeadAttention(width, heads, sdpa) if cross else None
        self.cross_attn_ln = nn.LayerNorm(width) if cross else None
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.mlp_ln = nn.LayerNorm(width)
        # A planted bug of the residual sums: {"attn" | "cross_attn" | "mlp": (stream, sublayer) -> sum}.
        self.residual = {}

    def add(self, name, stream, sublayer):
        return self.residual.get(name, torch.add)(stream, sublayer)

    def forward(self, x, memory=None, mask=None):
        x = self.add("attn", x, self.attn(self.attn_ln(x), mask=mask))
        if self.cross_attn is not None:
            x = self.add("cross_attn", x, self.cross_attn(self.cross_attn_ln(x), memory))
        return self.add("mlp", x, self.mlp(self.mlp_ln(x)))


class AudioEncoder(nn.Module):
    def __init__(self, mels, frames, width, heads, layers, sdpa):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("positional_embedding", torch.empty(frames, width))
        self.blocks = nn.ModuleList(ResidualAttentionBlock(width, heads, False, sdpa) for _ in range(layers))
        self.ln_post = nn.LayerNorm(width)

    def forward(self, mel):
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        x = x + self.positional_embedding.to(x.dtype)
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


class TextDecoder(nn.Module):
    def __init__(self, vocabulary, length, width, heads, layers, sdpa):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.positional_embedding = nn.Parameter(torch.empty(length, width))
        self.blocks = nn.ModuleList(ResidualAttentionBlock(width, heads, True, sdpa) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.first_position = 0

    def forward(self, tokens, memory):
        start, length = self.first_position, tokens.shape[1]
        x = self.token_embedding(tokens) + self.positional_embedding[start : start + length]
        x = x.to(memory.dtype)
        mask = torch.full((length, length), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
        for block in self.blocks:
            x = block(x, memory, mask)
        x = self.ln(x)
        return x @ self.token_embedding.weight.T.to(x.dtype)


class Whisper(nn.Module):
    def __init__(self, dims, sdpa=False):
        super().__init__()
        audio = (dims["n_audio_state"], dims["n_audio_head"], dims["n_audio_layer"], sdpa)
        text = (dims["n_text_state"], dims["n_text_head"], dims["n_text_layer"], sdpa)
        self.encoder = AudioEncoder(dims["n_mels"], dims["n_audio_ctx"], *audio)
        self.decoder = TextDecoder(dims["n_vocab"], dims["n_text_ctx"], *text)

    def forward(self, mel, tokens):
        return self.decoder(tokens, self.encoder(mel))


def load(file, sdpa=False):
    saved = torch.load(file, map_location="cpu", weights_only=True)
    model = Whisper(saved["dims"], sdpa)
    model.load_state_dict(saved["model_state_dict"])
    return model.float().eval()
