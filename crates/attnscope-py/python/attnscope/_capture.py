"""What the modules of somebody's own torch model read and return, while it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from attnscope import _torch
from attnscope._errors import Error

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from attnscope._torch import Held

COMPILED = "_orig_mod"
"""Where what torch.compile gives for a module holds the module."""

DEPTH = 20
"""Containers of containers of outputs are looked into so far."""


def capture(
    model: torch.nn.Module, *, select: str | None = None, inputs: bool = True, max_bytes: int = 4 << 30
) -> Capture:
    """Keeps what every module of a torch model reads and returns, while a ``with`` block runs it.

    ``select`` keeps the modules whose path fits a glob, as ``*.self_attn``, or has it as a part, as ``decoder``. ``inputs=False`` keeps
    outputs alone. At most ``max_bytes`` are kept; what came later is listed in ``not_kept``.

    >>> import attnscope as at, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(inplace=True))
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
    The second call of a module is ``fc1#2``, and so on. A module that several others share goes by the path of the one that called it.
    What torch.compile has compiled runs as it is written for as long as the block runs (with torch 2.6 and newer).
    Every array is a copy on the host, in its own type (bfloat16, which numpy lacks, as float32).
    """

    def __init__(self, model: torch.nn.Module, select: str | None, inputs: bool, max_bytes: int) -> None:
        torch_module = _torch.import_torch().nn.Module
        if not isinstance(model, torch_module):
            raise Error(
                f"expected a torch.nn.Module, found {type(model).__name__}",
                "give the model itself, as capture(model)",
            )
        is_compiled = any(
            hasattr(module, COMPILED) or getattr(module, "_compiled_call_impl", None) for module in model.modules()
        )
        if is_compiled and not _can_run_uncompiled():
            raise Error(
                "the model is compiled, and before torch 2.6 a compiled model does not call the hooks of its modules",
                "capture the model that was compiled, and call that; or install torch 2.6 or newer",
            )
        # What torch.compile gives has no name of its own.
        model = cast("torch.nn.Module", getattr(model, COMPILED, model))
        self.model_name = type(model).__name__
        self.not_kept: dict[str, str] = {}
        """The names of what could not be kept, and why."""
        self._model, self._select, self._inputs, self._left = model, select, inputs, max_bytes
        self._arrays: dict[str, Held] = {}
        named = cast("Iterator[tuple[str, torch.nn.Module]]", model.named_modules())
        self._paths = {id(module): _plain(path) for path, module in named}
        self._calls: dict[str, int] = {}
        self._running: list[tuple[torch.nn.Module, str, str]] = []
        self._hooks: list[Any] = []
        self._stance: Any = None

    def __enter__(self) -> Capture:
        if self._hooks:
            raise Error("this capture is open already", "leave its `with` block first, or make another capture")
        self._stance = _uncompiled()
        for module in self._model.modules():
            if hasattr(module, COMPILED):
                continue  # The module that was compiled is the next.
            self._hooks.append(module.register_forward_pre_hook(self._called, with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._returned, with_kwargs=True, always_call=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
        self._running.clear()
        if kind is None and not self._calls:
            raise Error(
                f"{self.model_name}: no module was called",
                "call the model in the `with` block; before torch 2.6, what torch.compile has compiled calls no hooks",
            )

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        import numpy as np

        _, dtype, shape, data = self._arrays[name]
        if dtype == "bf16":
            wide = np.frombuffer(data, "<u2").astype("<u4") << 16
            return wide.view("<f4").reshape(shape)
        if dtype in NUMPY:
            return np.frombuffer(data, NUMPY[dtype]).reshape(shape)
        # The types of 8 bits that numpy lacks.
        torch = _torch.import_torch()
        kind = next(name for name, short in _torch.DTYPES.items() if short == dtype)
        plain = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(getattr(torch, kind))
        array: NDArray[np.generic] = plain.float().reshape(shape).numpy()
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        size = sum(len(data) for *_, data in self._arrays.values())
        lost = f", {len(self.not_kept)} not kept" if self.not_kept else ""
        return f"<attnscope.Capture of {self.model_name}: {len(self)} tensors, {size:,} bytes{lost}>"

    def arrays(self) -> tuple[str, list[Held]]:
        """What a comparison reads."""
        return f"{self.model_name} (captured)", list(self._arrays.values())

    def _called(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        path = self._path(module)
        count = self._calls[path] = self._calls.get(path, 0) + 1
        name = path if count == 1 else f"{path}#{count}"
        self._running.append((module, path, name))
        if self._inputs and self._wants(path):
            self._keep(f"{name}.inputs.args", args)
            self._keep(f"{name}.inputs.kwargs", kwargs)

    def _returned(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        # Modules that an exception left behind come before it.
        while self._running:
            running, path, name = self._running.pop()
            if running is module:
                if self._wants(path):
                    self._keep(f"{name}.outputs", output)
                return

    def _path(self, module: torch.nn.Module) -> str:
        """Its path by way of the module that calls it, where that holds it directly; else the first that the model lists."""
        if self._running:
            caller, path, _ = self._running[-1]
            prefix = "" if caller is self._model else f"{path}."
            for name, child in caller.named_children():
                if child is module or getattr(child, COMPILED, None) is module:
                    return f"{prefix}{name}"
        return self._paths.get(id(module)) or self.model_name

    def _wants(self, path: str) -> bool:
        select = self._select
        return select is None or fnmatchcase(path, select) or f".{select}." in f".{path}."

    def _keep(self, name: str, value: Any, depth: int = 0) -> None:
        torch = _torch.import_torch()
        if isinstance(value, torch.Tensor):
            self._copy(name, value)
        elif depth < DEPTH and isinstance(value, (Mapping, tuple, list)):
            several = cast("Any", value)
            for key, item in several.items() if isinstance(value, Mapping) else enumerate(several):
                self._keep(f"{name}.{key}", item, depth + 1)
        elif not isinstance(value, (type(None), bool, int, float, str)):
            self.not_kept[name] = f"a {type(value).__name__}, which is no tensor"

    def _copy(self, name: str, tensor: torch.Tensor) -> None:
        dtype = _torch.dtype(tensor)
        size = tensor.numel() * tensor.element_size()
        if tensor.device.type == "meta":
            self.not_kept[name] = "a meta tensor, which has no values"
        elif dtype is None or tensor.is_sparse or tensor.is_quantized:
            self.not_kept[name] = f"a tensor of {tensor.dtype}, {tensor.layout}"
        elif size > self._left:
            self.not_kept[name] = f"{size:,} bytes, more than what is left of max_bytes"
        else:
            self._left -= size
            self._arrays[name] = (name, dtype, list(tensor.shape), _torch.contents(tensor))


def _plain(path: str) -> str:
    """A path without the names of what torch.compile puts between."""
    return ".".join(part for part in path.split(".") if part != COMPILED)


def _uncompiled() -> Any:
    """From now on, what was compiled runs as it is written, with its hooks: torch 2.6 and newer can be told so. None where nothing
    was compiled."""
    if not _can_run_uncompiled() or "torch._dynamo" not in sys.modules:
        return None
    return _torch.import_torch().compiler.set_stance("force_eager")


def _can_run_uncompiled() -> bool:
    return hasattr(_torch.import_torch().compiler, "set_stance")


NUMPY = {
    "f64": "<f8",
    "f32": "<f4",
    "f16": "<f2",
    "i64": "<i8",
    "i32": "<i4",
    "i16": "<i2",
    "i8": "i1",
    "u8": "u1",
    "bool": "?",
}
"""The types that numpy has."""
