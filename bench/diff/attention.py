"""The attention of one module, replaced by one with a planted bug.

A core takes what every implementation here has after the projections, and gives `(context [b, t, h, k], weights)`.
Hugging Face's models call theirs through the name `eager_attention_forward` of their file; `redirect` puts a function
there that looks at the module first.
"""

import torch


def planted(module, otherwise):
    return getattr(module, "planted_core", None) or otherwise


def redirect(modeling):
    """Lets `planted_core` of a module replace Hugging Face's own attention."""
    original = modeling.eager_attention_forward
    if getattr(original, "redirected", False):
        return

    def forward(module, *args, **kwargs):
        return planted(module, original)(module, *args, **kwargs)

    forward.redirected = True
    modeling.eager_attention_forward = forward


def core(scores=None, mask=None, weights=None, values=None):
    """An attention that is right but for the steps given:

    scores(q, k, scaling), mask(scores, mask), weights(masked scores, mask), values(weights, v).
    """
    scores = scores or (lambda q, k, scaling: q @ k.transpose(-1, -2) * scaling)
    mask_step = mask or (lambda s, m: s if m is None else s + m)
    weights = weights or (lambda s, _m: s.softmax(-1))
    values = values or (lambda w, v: w @ v)

    def forward(_module, q, k, v, attention_mask, scaling=None, position_bias=None, **_):
        s = scores(q, k, scaling)
        if position_bias is not None:
            s = s + position_bias
        w = weights(mask_step(s, attention_mask), attention_mask)
        return values(w, v).transpose(1, 2).contiguous(), w

    return forward


def around(change):
    """A right attention of changed inputs: `change(q, k, v)` gives them."""
    right = core()

    def forward(module, q, k, v, attention_mask, **kwargs):
        return right(module, *change(q, k, v), attention_mask, **kwargs)

    return forward


def after(change):
    """A right attention whose context [b, t, h, k] is changed afterwards."""
    right = core()

    def forward(*args, **kwargs):
        context, weights = right(*args, **kwargs)
        return change(context), weights

    return forward


def visible(mask):
    """1 where a key is visible, for a mask that is added to scores."""
    return (mask > -1e4).to(mask.dtype)


def later_by_one(mask):
    """A causal mask that lets each query see one key too many."""
    length = mask.shape[-1]
    moved = torch.cat([mask[..., 1:, :], torch.zeros_like(mask[..., :1, :])], -2)
    assert mask.shape[-2] == length, "a causal mask is square"
    return moved
