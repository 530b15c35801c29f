"""Batches that are padded on the left. A trace moves their rows to the left, so that its positions are others."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from attnscope._errors import Error

if TYPE_CHECKING:
    import torch

    from attnscope import _core

    Rows = list[list[int]]

SIDES = (
    ("attention_mask", "input_ids", ("src.ids", "tgt.ids")),
    ("decoder_attention_mask", "decoder_input_ids", ("tgt.ids",)),
)
"""A mask as transformers names it, the ids that it belongs to, and the nodes that may have them."""


class Padded(NamedTuple):
    """An input with padding before its tokens."""

    mask: str
    ids: Rows | None
    nodes: tuple[str, ...]


def of_call(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> list[Padded]:
    """The inputs of a call that are padded on the left."""
    try:
        given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        given = {**given, **given.get("kwargs", {})}
        found: list[Padded] = []
        for mask, ids, nodes in SIDES:
            rows = _rows(given.get(mask))
            if rows is not None and any(row and not row[0] and any(row) for row in rows):
                found.append(Padded(mask, _rows(given.get(ids)), nodes))
        return found
    except Exception:  # A mask that cannot be read; the model goes on.
        return []


def check(captured: list[Padded], trace: _core.Trace) -> None:
    """Raises where positions of a capture are not those of a trace."""
    for padded in captured:
        node = next((node for node in padded.nodes if node in trace), None)
        if node is not None and padded.ids is not None and trace[node].tolist() == padded.ids:
            continue  # It was traced with its padding, as it stands.
        raise Error(
            f"the captured batch is padded on the left ({padded.mask} begins with 0), and a trace moves its rows to the left, so "
            "that position 0 is the first token: positions of the two are not the same tokens",
            "run both on a batch that is padded on the right (tokenizer.padding_side = 'right'), or on one row at a time without "
            "padding",
        )


def _rows(value: Any) -> Rows | None:
    """A tensor of two dimensions as rows."""
    if value is None or not hasattr(value, "tolist") or len(value.shape) != 2:
        return None
    rows: Rows = value.tolist()
    return rows
