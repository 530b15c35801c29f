"""Bugs between the projections of an attention."""

from torch.nn import functional as F

import attention
from attention import after, around, core
from plant import Bug, attentions, causal, cross, only, self_attentions

SCALED = ("Whisper", "BART", "marian")


def scaled(change):
    return lambda place: place.core(core(scores=lambda q, k, scaling: q @ k.transpose(-1, -2) * change(q, scaling)))


def planted(made):
    return lambda place: place.core(made)


def width(q):
    return q.shape[1] * q.shape[3]


def split_by_feature(x):
    """Heads taken as every h-th feature instead of consecutive ones."""
    flat = x.transpose(1, 2).flatten(2)  # [b, t, h·k]
    return flat.unflatten(-1, (x.shape[3], x.shape[1])).permute(0, 3, 1, 2)


def joined_without_transpose(context):
    """[b, t, h, k] whose heads were put together without moving them behind the positions first."""
    b, t, h, k = context.shape
    return context.transpose(1, 2).contiguous().view(b, t, h, k)


def roll_heads(context):
    return context.roll(1, 2)


def in_half(x):
    return x.half().float()


def half_core(_module, q, k, v, mask, scaling=None, position_bias=None, **_):
    scores = in_half(in_half(q) @ in_half(k).transpose(-1, -2) * scaling)
    if position_bias is not None:
        scores = in_half(scores + position_bias)
    weights = in_half((scores if mask is None else scores + mask).softmax(-1))
    return in_half(weights @ in_half(v)).transpose(1, 2).contiguous(), weights


def masked_after(scores, mask):
    return scores.softmax(-1) * attention.visible(mask)


def without_bias(*args, position_bias=None, **kwargs):
    return core()(*args, **kwargs)


BUGS = [
    Bug(
        "score scale √d_model",
        ("scale",),
        only(*SCALED, sites=attentions),
        scaled(lambda q, _s: width(q) ** -0.5),
    ),
    Bug(
        "score scale applied twice",
        ("scale",),
        only(*SCALED, sites=attentions),
        scaled(lambda _q, s: s * s),
    ),
    Bug(
        "no score scale",
        ("scale",),
        only(*SCALED, sites=attentions),
        scaled(lambda _q, _s: 1.0),
    ),
    Bug(
        "score scale where there is none",
        ("scale",),
        only("T5", sites=attentions),
        scaled(lambda q, _s: q.shape[-1] ** -0.5),
    ),
    Bug("no causal mask", ("mask_not_applied",), causal, planted(core(mask=lambda s, _m: s))),
    Bug(
        "causal mask off by one",
        ("causal_offset",),
        causal,
        planted(core(mask=lambda s, m: s + attention.later_by_one(m))),
    ),
    Bug(
        "mask after the softmax",
        ("mask_after_softmax",),
        causal,
        planted(core(mask=lambda s, _m: s, weights=masked_after)),
    ),
    Bug(
        "mask multiplied before the softmax",
        ("mask_multiplied",),
        causal,
        planted(core(mask=lambda s, m: s * attention.visible(m))),
    ),
    Bug(
        "padding mask forgotten",
        ("mask_not_applied",),
        only("T5", "BART", "marian", sites=lambda s: attentions(s, ("encoder.self_attn", "decoder.cross_attn"))),
        planted(core(mask=lambda s, _m: s)),
    ),
    Bug(
        "K and V swapped after projection",
        ("swapped_inputs",),
        attentions,
        planted(around(lambda q, k, v: (q, v, k))),
    ),
    Bug(
        "Q and K swapped after projection",
        ("swapped_inputs",),
        self_attentions,
        planted(around(lambda q, k, v: (k, q, v))),
    ),
    Bug("heads permuted", ("permuted_heads",), attentions, planted(after(roll_heads))),
    Bug(
        "heads interleaved",
        ("interleaved_heads",),
        attentions,
        planted(around(lambda *qkv: map(split_by_feature, qkv))),
    ),
    Bug(
        "heads joined without transpose",
        ("heads_not_transposed",),
        attentions,
        planted(after(joined_without_transpose)),
    ),
    Bug(
        "softmax over queries",
        ("softmax_axis",),
        attentions,
        planted(core(weights=lambda s, _m: s.softmax(-2).nan_to_num())),
    ),
    Bug(
        "softmax over heads",
        ("softmax_axis",),
        cross,
        planted(core(weights=lambda s, _m: s.softmax(1))),
    ),
    Bug(
        "fp16 attention only",
        ("lower_precision",),
        attentions,
        planted(half_core),
    ),
    Bug(
        "dropout left on in attention",
        ("dropout",),
        attentions,
        planted(core(weights=lambda s, _m: F.dropout(s.softmax(-1), 0.1))),
    ),
    Bug("relative bias not added", ("bias_not_added",), only("T5", sites=self_attentions), planted(without_bias)),
]
