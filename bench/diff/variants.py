"""Runs without a bug: the same weights and input in other arithmetic, which `diff` must not accuse."""

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

import attention


@dataclass(frozen=True)
class Variant:
    name: str
    implementation: str = "eager"
    change: object = lambda model: model
    context: object = nullcontext
    arguments: tuple = ()  # for `attnscope diff`
    attention_weights: bool = False
    short_inputs: bool = False  # too slow for 1,500 positions


def blocks(size, count, seed):
    """Features in `count` blocks of permuted order, as split-K sums them."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return order.chunk(count)


def split_k(model):
    """Each Linear sums permuted blocks of features, and adds the blocks in turn."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            parts = blocks(module.in_features, 8, module.in_features)

            def forward(x, module=module, parts=parts):
                y = sum(x[..., part] @ module.weight[:, part].T for part in reversed(parts))
                return y if module.bias is None else y + module.bias

            module.forward = forward
    return model


def one_by_one(model):
    """Each Linear adds its products in order, one feature after another: the slowest growing of all sums."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.in_features <= 1024:

            def forward(x, module=module):
                y = torch.zeros(*x.shape[:-1], module.out_features)
                for feature in range(module.in_features):
                    y = torch.addcmul(y, x[..., feature, None], module.weight[:, feature])
                return y if module.bias is None else y + module.bias

            module.forward = forward
    return model


def ten_bits(x):
    """Rounded to the ten bits of mantissa that TF32 keeps of a product's inputs."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def tf32_core(_module, q, k, v, mask, scaling=None, position_bias=None, **_):
    scores = ten_bits(q) @ ten_bits(k).transpose(-1, -2) * scaling
    for added in (position_bias, mask):
        scores = scores if added is None else scores + added
    weights = scores.softmax(-1)
    return (ten_bits(weights) @ ten_bits(v)).transpose(1, 2).contiguous(), weights


def tf32(model):
    """Products of matrices, and convolutions, as a GPU computes them with allow_tf32."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.forward = lambda x, m=module: F.linear(ten_bits(x), ten_bits(m.weight), m.bias)
        elif isinstance(module, nn.Conv1d):
            module.forward = lambda x, m=module: F.conv1d(ten_bits(x), ten_bits(m.weight), m.bias, m.stride, m.padding)
        elif type(module).__name__.endswith("Attention"):
            module.planted_core = tf32_core
    return model


def half_of(dtype):
    return lambda model: model.to(dtype)


def autocast(dtype, device="cpu"):
    return lambda: torch.autocast(device, dtype=dtype)


@contextmanager
def real_tf32():
    """What `torch.backends.cuda.matmul.allow_tf32` does; convolutions do it unless told not to."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def fused(model):
    """The attention written with the scale in the queries, as fused kernels have it."""
    core = attention.core(scores=lambda q, k, scaling: (q * scaling) @ k.transpose(-1, -2))
    for module in model.modules():
        if type(module).__name__.endswith("Attention"):
            module.planted_core = core
    return model


VARIANTS = [
    Variant("f32, eager"),
    Variant("f32, eager, with attention weights", attention_weights=True),
    Variant("f32, SDPA", "sdpa"),
    Variant("f32, scale in the queries", change=fused),
    Variant("f32, split-K in permuted blocks", change=split_k),
    Variant("f32, products added one by one", change=one_by_one, short_inputs=True),
    Variant("f64, stored as f32", change=half_of(torch.float64)),
    Variant("bf16, stored as f32", change=half_of(torch.bfloat16)),
    Variant("fp16, stored as f32", change=half_of(torch.float16)),
    Variant("bf16, SDPA", "sdpa", change=half_of(torch.bfloat16)),
    Variant("autocast bf16", context=autocast(torch.bfloat16)),
    Variant("autocast fp16", context=autocast(torch.float16)),
    Variant("TF32 products", change=tf32, arguments=("--their-precision", "tf32")),
]

# The same on a GPU, where nothing needs to be simulated.
ON_CUDA = [
    Variant("CUDA f32, eager"),
    Variant("CUDA f32, SDPA", "sdpa"),
    Variant("CUDA f64, stored as f32", change=half_of(torch.float64)),
    Variant("CUDA bf16, stored as f32", change=half_of(torch.bfloat16)),
    Variant("CUDA fp16, stored as f32", change=half_of(torch.float16)),
    Variant("CUDA bf16, SDPA", "sdpa", change=half_of(torch.bfloat16)),
    Variant("CUDA fp16, SDPA", "sdpa", change=half_of(torch.float16)),
    Variant("CUDA autocast bf16", context=autocast(torch.bfloat16, "cuda")),
    Variant("CUDA autocast fp16", context=autocast(torch.float16, "cuda")),
    Variant("CUDA TF32, eager", context=real_tf32, arguments=("--their-precision", "tf32")),
    Variant("CUDA TF32, SDPA", "sdpa", context=real_tf32, arguments=("--their-precision", "tf32")),
]
