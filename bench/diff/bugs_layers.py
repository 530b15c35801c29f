"""Bugs in norms, activations, residual sums and in what a sublayer reads."""

import torch
from torch import nn
from torch.nn import functional as F

import names
from plant import Bug, Function, nodes, only

# Bugs of a residual sum of the stream x and the sublayer's output y: how they are named, and the sum.
SUMS = {
    "sublayer added twice": (("other_residual_gain",), lambda x, y: x + y + y),
    "residual added twice": (("residual_scale",), lambda x, y: x + x + y),
    "residual missing": (("residual_scale",), lambda _x, y: y),
}


def activation(function):
    return lambda place: place.replace(Function(function))


def eps(value):
    def plant(place):
        norm = place.module()
        setattr(norm, "variance_epsilon" if hasattr(norm, "variance_epsilon") else "eps", value)

    return plant


def unbiased(place):
    norm = place.module()

    def forward(x):
        return (x - x.mean(-1, keepdim=True)) / (
            x.var(-1, unbiased=True, keepdim=True) + norm.eps
        ).sqrt() * norm.weight + norm.bias

    place.replace(Function(forward))


def other_norm(place):
    norm = place.module()
    rms = lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + getattr(norm, "eps", 1e-6))
    if place.subject.name.startswith("T5"):
        place.replace(Function(lambda x: norm.weight * F.layer_norm(x, x.shape[-1:], eps=norm.variance_epsilon)))
    else:
        place.replace(Function(lambda x: norm.weight * rms(x) + norm.bias))


def no_bias(place):
    with torch.no_grad():
        place.module().bias.zero_()


def identity(place):
    place.replace(nn.Identity())


def changed_sum(change):
    def plant(place):
        kind = place.subject.name
        stack, layer, sublayer = place.site.split(".")
        if kind.startswith("Whisper"):
            block = place.model.get_submodule(f"{stack}.blocks.{layer}")
            block.residual[{"self_attn": "attn", "cross_attn": "cross_attn", "ffn": "mlp"}[sublayer]] = change
        elif kind.startswith("T5"):
            sum_at_t5_layer(place, change)
        else:
            sum_before_norm(place, change)

    return plant


def watched(module):
    """The module's last input and output, kept while it runs."""
    seen = {}
    module.register_forward_pre_hook(
        lambda _m, args, kwargs: seen.update(x=args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    module.register_forward_hook(lambda _m, _i, out: seen.update(y=out[0] if isinstance(out, tuple) else out))
    return seen


def sum_at_t5_layer(place, change):
    """T5 has a module for each sublayer with its sum, which reads the stream."""
    path = names.module_of(place.subject.scheme, f"{place.site}.residual")
    outer, inner = place.model.get_submodule(path), watched(place.module())
    stream = watched(outer)

    def hook(_m, _i, out):
        total = change(stream["x"], inner["y"])
        return (total, *out[1:]) if isinstance(out, tuple) else total

    outer.register_forward_hook(hook)


def sum_before_norm(place, change):
    """BART and Marian add and norm: the norm's input is the sum."""
    first = "ffn.hidden" if place.site.endswith("ffn") else None
    scheme, site = place.subject.scheme, place.site
    get = lambda node: place.model.get_submodule(names.module_of(scheme, node))
    if first:
        reads, gives = watched(get(f"{site}.hidden")), watched(get(f"{site}.out"))
    else:
        reads = gives = watched(get(site))
    get(f"{site}.norm").register_forward_pre_hook(lambda _m, _args: (change(reads["x"], gives["y"]),))


def unnormed(place):
    """The sublayer reads the stream, not its norm."""
    norm = watched(place.module("norm"))
    reader = place.module("hidden") if place.site.endswith("ffn") else place.module()

    def hook(_m, args, kwargs):
        if args:
            return (norm["x"], *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": norm["x"]}

    reader.register_forward_pre_hook(hook, with_kwargs=True)


def dropout(place):
    place.after(lambda y: F.dropout(y, 0.1))


def in_half(place):
    """A feed-forward in fp16, its output back in f32."""
    half = lambda x: x.half().float()
    for part in ("hidden", "act", "out"):
        place.module(part).register_forward_pre_hook(lambda _m, args: tuple(map(half, args)))
        place.module(part).register_forward_hook(lambda _m, _i, y: half(y))


ACT = nodes("ffn.act")
NORMS = nodes("self_attn.norm", "cross_attn.norm", "ffn.norm")
SUBLAYERS = nodes("self_attn", "cross_attn", "ffn")
LAYER_NORM = ("Whisper", "BART", "marian")

BUGS = [
    Bug(
        "tanh GELU for erf GELU",
        ("other_activation",),
        only("Whisper", "BART", sites=ACT),
        activation(lambda x: F.gelu(x, approximate="tanh")),
    ),
    Bug(
        "quick GELU for GELU",
        ("other_activation",),
        only("Whisper", "BART", sites=ACT),
        activation(lambda x: x * torch.sigmoid(1.702 * x)),
    ),
    Bug("ReLU for GELU", ("other_activation",), only("Whisper", "BART", sites=ACT), activation(F.relu)),
    Bug("GELU for ReLU", ("other_activation",), only("T5", sites=ACT), activation(F.gelu)),
    Bug(
        "tanh GELU for ReLU",
        ("other_activation",),
        only("T5", sites=ACT),
        activation(lambda x: F.gelu(x, approximate="tanh")),
    ),
    Bug("GELU for SiLU", ("other_activation",), only("marian", sites=ACT), activation(F.gelu)),
    Bug(
        "final norm missing",
        ("not_applied",),
        only("Whisper", "T5", sites=lambda _s: ["encoder.out", "decoder.out"]),
        identity,
    ),
    Bug(
        "embedding norm missing",
        ("not_applied",),
        only("BART", sites=lambda _s: ["src.embed_pos", "tgt.embed_pos"]),
        identity,
    ),
    Bug("unbiased std in a norm", ("unbiased_std",), only(*LAYER_NORM, sites=NORMS), unbiased),
    Bug("norm of the other kind", ("other_norm",), NORMS, other_norm),
    Bug("eps 1e-3", ("other_eps",), NORMS, eps(1e-3)),
    Bug("eps 1e-6 for 1e-5", ("other_eps",), only(*LAYER_NORM, sites=NORMS), eps(1e-6)),
    Bug("eps 1e-12", ("other_eps",), NORMS, eps(1e-12)),
    Bug(
        "bias missing",
        ("missing_bias",),
        only(*LAYER_NORM, sites=nodes("self_attn.q", "cross_attn.v", "ffn.hidden", "ffn.out", "self_attn.norm")),
        no_bias,
    ),
    *(Bug(kind, named, SUBLAYERS, changed_sum(change)) for kind, (named, change) in SUMS.items()),
    Bug(
        "unnormed input",
        ("other_input",),
        only("Whisper", "T5", sites=SUBLAYERS),
        unnormed,
    ),
    Bug("dropout left on", ("dropout",), nodes("ffn.act", "self_attn.out", "cross_attn.out"), dropout),
    Bug(
        "fp16 feed-forward only",
        ("lower_precision", "precision"),
        nodes("ffn"),
        in_half,
    ),
]
