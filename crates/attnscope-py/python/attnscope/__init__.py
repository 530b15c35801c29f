"""A debugger for Transformers: what a model computes, what is wrong with it, where two implementations part.

>>> import attnscope as at
>>> m = at.open("demo")
>>> t = m.trace("Two dogs play in the snow.")
>>> t["decoder.1.cross_attn.weights"].shape
(1, 4, 7, 8)
"""

from collections import abc as _abc

from attnscope import arrow
from attnscope._capture import Capture, capture
from attnscope._core import (
    Answer,
    Model,
    Table,
    Trace,
    audit,
    check,
    compare_audits,
    merge_audits,
    open,
    read_audit,
    topics,
    train,
)
from attnscope._diff import assert_matches, diff
from attnscope._errors import Defect, Error, OutOfMemory
from attnscope._transformers import from_transformers

getattr(_abc.Mapping, "register")(Trace)  # noqa: B009 - type checkers know no metaclass of Mapping

__all__ = [
    "Answer",
    "Capture",
    "Defect",
    "Error",
    "Model",
    "OutOfMemory",
    "Table",
    "Trace",
    "arrow",
    "assert_matches",
    "audit",
    "capture",
    "check",
    "compare_audits",
    "diff",
    "from_transformers",
    "merge_audits",
    "open",
    "read_audit",
    "topics",
    "train",
]
