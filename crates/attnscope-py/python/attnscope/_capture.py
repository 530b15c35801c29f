"""What the modules of somebody's own torch model read and return, while it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from html import escape
from typing import TYPE_CHECKING, Any, cast

from attnscope import _padding, _torch
from attnscope._calls import COMPILED, Calls
from attnscope._errors import Error
from attnscope._kept import Kept, Place

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from attnscope._padding import Padded
    from attnscope._torch import Held


def capture(
    model: torch.nn.Module, *, select: str | None = None, inputs: bool = True, max_bytes: int = 4 << 30
) -> Capture:
    """Keeps what every module of a torch model reads and returns, while a ``with`` block runs it.

    ``select`` keeps the modules whose path fits a glob, as ``*.self_attn``, or has it as a part, as ``decoder``. ``inputs=False`` keeps
    outputs alone. At most ``max_bytes`` are kept; what came later is listed in ``not_kept``.

    >>> import attnscope as at, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(inplace=True))
    >>> _ = torch.nn.init.constant_(model[0].weight, -1.0)  # So that the ReLU has something to change.
    >>> with at.capture(model, inputs=False) as theirs:
    ...     _ = model(torch.ones(1, 2))
    >>> {name: array.shape for name, array in theirs.items()}
    {'0.outputs': (1, 3), '1.outputs': (1, 3), 'Sequential.outputs': (1, 3)}
    >>> bool((theirs["0.outputs"] == theirs["1.outputs"]).all())  # Copied before the ReLU changed it in place.
    False
    """
    return Capture(model, select, inputs, max_bytes)


class Capture(Mapping[str, "NDArray[np.generic]"]):
    """Arrays by the names of modules, in the order in which they were made.

    A name is the module's path, and what it is of the call: ``encoder.layers.0.fc1.outputs``, ``….inputs.args.0``,
    ``….inputs.kwargs.attention_mask``; tuples and dictionaries add the index or the key. The model itself goes by the name of its class.
    The second call of a module is ``fc1#2``, and so on; of two values that would have one name the second has ``~2`` at its end.
    A module that several others share goes by the path of the one that called it. One that its caller holds in several places
    (``self.a = self.b``, twice in a ModuleList) goes by these places in their order: torch does not tell which of them was called.
    What torch.compile has compiled runs as it is written for as long as the block runs (with torch 2.6 and newer).
    Every array is a copy on the host, in its own type (bfloat16, which numpy lacks, as float32).

    Where the model is called again, another step begins: ``steps`` counts them, and ``step(n)`` is one of them.
    """

    def __init__(self, model: torch.nn.Module, select: str | None, inputs: bool, max_bytes: int) -> None:
        _check(model, select, max_bytes)
        # What torch.compile gives has no name of its own.
        model = cast("torch.nn.Module", getattr(model, COMPILED, model))
        self.model_name = type(model).__name__
        self._model, self._select, self._inputs = model, select, inputs
        self._calls = Calls(model, self.model_name)
        if select is not None and not any(map(self._wants, self._calls.paths())):
            paths = list(self._calls.paths())
            raise Error(
                f"select={select!r} picks none of the {len(paths)} modules",
                f"their paths are {', '.join(paths[:6])}{', …' if len(paths) > 6 else ''}; `*` stands for anything",
                place=self.model_name,
            )
        self._kept = Kept(max_bytes)
        self._padded: dict[int, list[Padded]] = {}
        self._open: ExitStack | None = None

    @property
    def not_kept(self) -> dict[str, str]:
        """The names of what could not be kept, and why."""
        return self._kept.not_kept

    @property
    def lost(self) -> list[str]:
        """Those of ``not_kept`` that are tensors, or modules whose tensors could not be seen."""
        return [name for name in self._kept.not_kept if name in self._kept.lost]

    @property
    def steps(self) -> int:
        """How often the model was called: more than once in a generation loop."""
        return len(self._calls.tops)

    def step(self, number: int) -> Capture:
        """One call of the model as a capture of its own, by its number from 1; -1 is the last. Calls of modules within it are numbered
        anew. What was called from outside the model before, as an encoder that runs once, belongs to it, too."""
        known = range(1, self.steps + 1)
        at = number + self.steps + 1 if number < 0 else number
        if at not in known:
            raise Error(f"step {number}: there are {self.steps}", "steps are counted from 1; -1 is the last")
        one = Capture.__new__(Capture)
        one.model_name, one._model, one._select, one._inputs = self.model_name, self._model, self._select, self._inputs
        one._calls = Calls(self._model, self.model_name)
        one._calls.tops = [self._calls.tops[at - 1]]
        one._kept = self._kept.step(at, self._calls.tops)
        one._padded = {1: self._padded.get(at, [])}
        one._open = None
        return one

    def __enter__(self) -> Capture:
        if self._open is not None:
            raise Error("this capture is open already", "leave its `with` block first, or make another capture")
        with ExitStack() as undo:
            stance = _uncompiled()
            if stance is not None:
                undo.callback(stance.__exit__, None, None, None)
            self._hook(undo)
            self._open = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        self._calls.forget_running()
        if kind is not None:
            return
        if not self.steps:
            scripted = any("ScriptModule" in why for why in self.not_kept.values())
            raise Error(
                f"{self.model_name}: no module was called",
                "capture the model that torch.jit.script or torch.jit.trace was given"
                if scripted
                else "call the model in the `with` block (model(x), as model.forward(x) calls no hooks); before torch 2.6, "
                "what torch.compile has compiled calls none, too",
            )
        if self._select is not None and not self._kept.places:
            raise Error(
                f"{self.model_name}: no module that select={self._select!r} picks was called",
                "select one that runs: at.capture without select= lists them",
            )

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return _torch.array(self._kept.arrays[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept.arrays)

    def __len__(self) -> int:
        return len(self._kept.arrays)

    def __repr__(self) -> str:
        lost = f", {len(self.not_kept)} not kept" if self.not_kept else ""
        steps = f", {self.steps} steps" if self.steps > 1 else ""
        return f"<attnscope.Capture of {self.model_name}: {len(self)} tensors, {self._kept.bytes():,} bytes{steps}{lost}>"

    def _repr_html_(self) -> str:
        rows = [(name, f"{dtype} {shape}") for name, dtype, shape, _ in self._kept.arrays.values()]
        rows += [(name, f"not kept: {why}") for name, why in self.not_kept.items()]
        cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(what)}</td></tr>" for name, what in rows[:1000])
        more = f"<p>and {len(rows) - 1000:,} more</p>" if len(rows) > 1000 else ""
        return f"<details><summary>{escape(repr(self))}</summary><table>{cells}</table>{more}</details>"

    def arrays(self) -> tuple[str, list[Held]]:
        """What a comparison reads."""
        return f"{self.model_name} (captured)", list(self._kept.arrays.values())

    def padded_on_the_left(self) -> list[Padded]:
        """The inputs of the model that have padding before their tokens."""
        return [padded for several in self._padded.values() for padded in several]

    def _hook(self, undo: ExitStack) -> None:
        scripted = _torch.import_torch().jit.ScriptModule
        inner: set[int] = set()
        for path, module in cast("Iterator[tuple[str, torch.nn.Module]]", self._model.named_modules()):
            if hasattr(module, COMPILED):
                continue  # The module that was compiled is the next.
            if isinstance(module, scripted):
                inner |= {id(part) for part in module.modules() if part is not module}
            if id(module) not in inner:
                try:
                    undo.callback(module.register_forward_pre_hook(self._called, with_kwargs=True).remove)
                    hook = module.register_forward_hook(self._returned, with_kwargs=True, always_call=True)
                    undo.callback(hook.remove)
                    continue
                except RuntimeError:
                    if not isinstance(module, scripted):
                        raise
            name = path or self.model_name
            if self._wants(name) and name not in self.not_kept:
                why = "a ScriptModule, or a part of one: torch calls no hooks in it"
                self._kept.refuse(name, why, Place(name, 0, name), is_lost=True)

    def _called(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        call = self._calls.begin(module)
        if call.path == call.top:
            self._padded.setdefault(call.step, []).extend(_padding.of_call(module, args, kwargs))
        if self._inputs and self._wants(call.path):
            self._kept.keep(call, "inputs.args", args)
            self._kept.keep(call, "inputs.kwargs", kwargs)

    def _returned(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call = self._calls.end(module)
        if call is not None and self._wants(call.path):
            self._kept.keep(call, "outputs", output)

    def _wants(self, path: str) -> bool:
        select = self._select
        return select is None or fnmatchcase(path, select) or f".{select}." in f".{path}."


def _check(model: Any, select: Any, max_bytes: Any) -> None:
    if not isinstance(model, _torch.import_torch().nn.Module):
        raise Error(
            f"expected a torch.nn.Module, found {type(model).__name__}",
            "give the model itself, as capture(model)",
        )
    if select is not None and not isinstance(select, str):
        raise Error(
            f"select={select!r}: expected a text, found {type(select).__name__}",
            "give a part of a module's path, as select='decoder', or a glob, as select='*.self_attn'",
        )
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:
        raise Error(f"max_bytes={max_bytes!r}: expected a number of bytes, 0 or more", "for 1 GiB, give max_bytes=1 << 30")
    is_compiled = any(hasattr(part, COMPILED) or getattr(part, "_compiled_call_impl", None) for part in model.modules())
    if is_compiled and not _can_run_uncompiled():
        raise Error(
            "the model is compiled, and before torch 2.6 a compiled model does not call the hooks of its modules",
            "capture the model that was compiled, and call that; or install torch 2.6 or newer",
        )


def _uncompiled() -> Any:
    """From now on, what was compiled runs as it is written, with its hooks: torch 2.6 and newer can be told so. None where nothing
    was compiled."""
    if not _can_run_uncompiled() or "torch._dynamo" not in sys.modules:
        return None
    return _torch.import_torch().compiler.set_stance("force_eager")


def _can_run_uncompiled() -> bool:
    return hasattr(_torch.import_torch().compiler, "set_stance")
