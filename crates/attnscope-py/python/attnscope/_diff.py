"""Where two runs part."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, cast

from attnscope import _core, _runs
from attnscope._capture import Capture
from attnscope._errors import Error

if TYPE_CHECKING:
    from attnscope._runs import Run


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

    A run is a trace, a capture of your own model, a dictionary of arrays in the order in which they were computed, or what lies on disk:
    a saved trace, or another program's dump. Of a capture with several calls of the model one is chosen, as ``theirs.step(2)``.
    ``names`` says which names belong together: one of the first and one of the second, or a node's path; ``{n}`` stands for the same on
    both sides. ``model`` (and ``heads``) is the model that was traced, where no trace in memory and no saved trace names it.

    >>> import attnscope as at
    >>> right, wrong = at.open("demo"), at.open("demo", wiring={"score_scale": "d_model"})
    >>> text = dict(text="Two dogs play.", target="Zwei Hunde spielen.")
    >>> difference = at.diff(right.trace(**text), wrong.trace(**text))
    >>> difference.ok, difference["first_divergence"]["node"]
    (False, 'encoder.0.self_attn.scores')
    """
    answer = _core.diff_runs(
        _runs.given(ours, theirs),
        _runs.given(theirs, ours),
        model=None if model is None else fspath(model),
        heads=heads,
        names=_lines(names),
        tolerance=tolerance,
        their_precision=their_precision,
    )
    _check_names_are_used(answer)
    return answer


def assert_matches(
    theirs: Run,
    ours: Run,
    *,
    names: Mapping[str, str] | None = None,
    tolerance: float | None = None,
    their_precision: Literal["f32", "tf32", "bf16", "fp16"] | None = None,
    partial: bool = False,
) -> None:
    """For a test: an AssertionError that says where two runs part, if they do.

    It is one, too, where tensors of a capture could not be kept, so that nobody knows; ``partial=True`` is content with the others.

    >>> import attnscope as at
    >>> run = at.open("demo").trace("Two dogs play.")
    >>> at.assert_matches(run, run)
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    found = diff(ours, theirs, names=names, tolerance=tolerance, their_precision=their_precision)
    if not found.ok:
        raise AssertionError(f"the two runs part\n\n{found.text(width=100)}")
    lost = [name for run in (theirs, ours) if isinstance(run, Capture) for name in run.lost]
    if lost and not partial:
        kept = sum(len(run) for run in (theirs, ours) if isinstance(run, Capture))
        reasons = {**_reasons(ours), **_reasons(theirs)}
        first = "".join(f"\n  {name}: {reasons[name]}" for name in lost[:5])
        more = f"\n  and {len(lost) - 5} more: theirs.not_kept" if len(lost) > 5 else ""
        raise AssertionError(
            f"{len(found['nodes'])} nodes agree, and {len(lost)} of {len(lost) + kept} tensors of the capture were not kept, so that "
            f"they were not compared:{first}{more}\n"
            "help: capture with more max_bytes=, or with select= or inputs=False, which choose what is compared; or pass partial=True"
        )


def _reasons(run: Run) -> dict[str, str]:
    return run.not_kept if isinstance(run, Capture) else {}


def _lines(names: Any) -> str:
    """The map of names as a file has it."""
    if names is None:
        return ""
    given = cast("Mapping[Any, Any]", names)
    if not isinstance(names, Mapping) or not all(isinstance(part, str) for pair in given.items() for part in pair):
        raise Error(
            f"names: expected a dictionary of texts, found {names!r:.80}",
            "give names={'one of theirs': 'one of ours, or a node'}",
        )
    return "".join(f"{_written(one)} = {_written(other)}\n" for one, other in given.items())


def _written(name: str) -> str:
    """A name as a map has it."""
    return '"' + name.replace('"', "") + '"'


def _check_names_are_used(answer: _core.Answer) -> None:
    unused = answer["map"]["unused"]
    if unused:
        first = unused[0]
        one, other = first["names"]
        raise Error(
            f"names={{{one!r}: {other!r}}} matches nothing: {first['why']}"
            + (f"; nor do {len(unused) - 1} others" if len(unused) > 1 else ""),
            "check both names: list(theirs) has those of a capture, trace.nodes() the nodes",
        )
