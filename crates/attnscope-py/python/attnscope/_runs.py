"""What can be compared: a trace, a capture, arrays by name, or what lies on disk."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from attnscope import _core, _padding, _torch
from attnscope._capture import Capture
from attnscope._errors import Error

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    from attnscope._torch import Held

    Run: TypeAlias = _core.Trace | Capture | Mapping[str, Any] | str | PathLike[str]
    GivenRun: TypeAlias = _core.Trace | tuple[str, list[Held]] | str | PathLike[str]


def given(run: Run, other: Run) -> GivenRun:
    """A run as the library reads it."""
    if isinstance(run, (str, PathLike, _core.Trace)):
        return run
    if isinstance(run, Capture):
        _check_one_step(run)
        if isinstance(other, _core.Trace):
            _padding.check(run.padded_on_the_left(), other)
        return run.arrays()
    # Who checks no types may give anything.
    if isinstance(cast("Any", run), Mapping):
        return "arrays", _arrays(run)
    raise Error(
        f"expected a run, found {type(run).__name__}",
        "give a trace (model.trace), a capture (at.capture), a dictionary of arrays, or the path of a saved trace or of another "
        "program's dump",
    )


def _check_one_step(run: Capture) -> None:
    if run.steps > 1:
        raise Error(
            f"the capture of {run.model_name} holds {run.steps} calls of the model, as a generation loop makes them, and a comparison "
            "is of one: calls #2 and later would not be compared",
            "capture one forward pass over the whole target (the ids that were generated, but the last), or choose a step: "
            f"theirs.step(1) to theirs.step({run.steps}), -1 for the last. Without a cache a step reads all tokens before it, and "
            "equals a trace of them; with a cache it reads one, and no trace equals it",
        )


def _arrays(run: Mapping[Any, Any]) -> list[Held]:
    if not run:
        raise Error("there are no arrays in the dictionary", "give at least one, by its name: {'logits': array}")
    for name in run:
        if not isinstance(name, str):
            raise Error(f"{name!r}: expected a name, found {type(name).__name__}", "give texts as names: {'logits': array}")
    return [_held(name, value) for name, value in run.items()]


def _held(name: str, value: Any) -> Held:
    import numpy as np

    if hasattr(value, "detach"):
        dtype, why = _torch.dtype(value), _torch.unreadable(value)
        if why is not None or dtype is None:
            raise Error(f"{name}: expected an array of numbers, found {why}", "leave it out, or convert it")
        return name, dtype, list(value.shape), _torch.contents(value)
    try:
        array: NDArray[np.generic] = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype in (np.dtype(np.uint16), np.dtype(np.uint32)):
        array = array.astype(np.int64)
    for dtype, numpy in _torch.NUMPY.items():
        if array.dtype.newbyteorder("=") == np.dtype(numpy).newbyteorder("="):
            return name, dtype, list(array.shape), array.astype(numpy).tobytes()
    kind = type(value).__name__ if array.dtype == object else f"an array of {array.dtype}"
    raise Error(
        f"{name}: expected an array of numbers, found {kind}",
        "give numpy arrays or torch tensors of floating-point or whole numbers, or of booleans",
    )
