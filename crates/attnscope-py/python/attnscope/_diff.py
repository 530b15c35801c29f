"""Where two runs part."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal

from attnscope import _core

if TYPE_CHECKING:
    from typing import TypeAlias

    from attnscope._capture import Capture

    from attnscope._torch import Held

    Run: TypeAlias = _core.Trace | Capture | str | PathLike[str]


def diff(
    ours: Run,
    theirs: Run,
    *,
    model: str | PathLike[str] | None = None,
    heads: int | None = None,
    names: Mapping[str, str] | None = None,
    tolerance: float | None = None,
    their_precision: Literal["f32", "tf32", "bf16", "fp16"] | None = None,
) -> _core.Answer:
    """Where two runs part: the first tensor that does not follow from its inputs, and the mistake, if it is a usual one.

    A run is a trace, a capture of your own model, or what lies on disk: a saved trace, or another program's dump. ``names`` says which
    names belong together: one of the first and one of the second, or a node's path; ``{n}`` stands for the same on both sides. ``model``
    (and ``heads``) is the model that was traced, where no trace in memory and no saved trace names it.

    >>> import attnscope as at
    >>> right, wrong = at.open("demo"), at.open("demo", wiring={"score_scale": "d_model"})
    >>> text = dict(text="Two dogs play.", target="Zwei Hunde spielen.")
    >>> difference = at.diff(right.trace(**text), wrong.trace(**text))
    >>> difference.ok, difference["first_divergence"]["node"]
    (False, 'encoder.0.self_attn.scores')
    """
    lines = "".join(f"{_written(one)} = {_written(other)}\n" for one, other in (names or {}).items())
    return _core.diff_runs(
        _given(ours),
        _given(theirs),
        model=None if model is None else fspath(model),
        heads=heads,
        names=lines,
        tolerance=tolerance,
        their_precision=their_precision,
    )


def assert_matches(
    theirs: Run,
    ours: Run,
    *,
    names: Mapping[str, str] | None = None,
    tolerance: float | None = None,
    their_precision: Literal["f32", "tf32", "bf16", "fp16"] | None = None,
) -> None:
    """For a test: an AssertionError that says where two runs part, if they do.

    >>> import attnscope as at
    >>> run = at.open("demo").trace("Two dogs play.")
    >>> at.assert_matches(run, run)
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    found = diff(ours, theirs, names=names, tolerance=tolerance, their_precision=their_precision)
    if not found.ok:
        raise AssertionError(f"the two runs part\n\n{found.text(width=100)}")


def _given(run: Run) -> _core.Trace | tuple[str, list[Held]] | str | PathLike[str]:
    return run if isinstance(run, (str, PathLike, _core.Trace)) else run.arrays()


def _written(name: str) -> str:
    """A name as a map has it."""
    return '"' + name.replace('"', "") + '"'
