"""Which call of which module it is that runs: its path, its number, the step of a loop that it belongs to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

COMPILED = "_orig_mod"
"""Where what torch.compile gives for a module holds the module."""

MOST_PATHS = 100_000
"""Modules that share modules that share modules have more paths than anybody can read."""


@dataclass
class Call:
    """One call of a module."""

    module: torch.nn.Module
    path: str
    name: str
    """The path and, from the second call on, `#2`."""
    name_in_step: str
    """The same, counted from the beginning of the step."""
    step: int
    top: str
    """The module that was called from outside, within which this call runs."""
    inner: Counter[int] = field(default_factory=Counter[int])
    """How often it has called each module, so far."""


class Calls:
    """The calls of a model's modules while they run."""

    def __init__(self, model: torch.nn.Module, model_name: str) -> None:
        self._model, self._model_name = model, model_name
        self._paths: dict[int, list[str]] = {}
        for path, module in _walk(model):
            self._paths.setdefault(id(module), []).append(path or model_name)
        self._counts: Counter[str] = Counter()
        self._counts_in_step: Counter[str] = Counter()
        # Each thread has its own stack: the backward pass of a checkpointed module runs in another.
        self._running: dict[int, list[Call]] = {}
        self.tops: list[set[str]] = []
        """For each step, the modules that were called from outside."""

    def paths(self) -> Iterator[str]:
        for paths in self._paths.values():
            yield from paths

    def begin(self, module: torch.nn.Module) -> Call:
        running = self._running.setdefault(threading.get_ident(), [])
        path = self._path(module, running)
        if not running:
            self._called_from_outside(path)
        self._counts[path] += 1
        self._counts_in_step[path] += 1
        call = Call(
            module,
            path,
            _numbered(path, self._counts[path]),
            _numbered(path, self._counts_in_step[path]),
            len(self.tops),
            running[0].path if running else path,
        )
        running.append(call)
        return call

    def end(self, module: torch.nn.Module) -> Call | None:
        """The call that ends. Those that an exception left behind come before it."""
        running = self._running.get(threading.get_ident(), [])
        while running:
            call = running.pop()
            if call.module is module:
                return call
        return None

    def forget_running(self) -> None:
        self._running.clear()

    def _called_from_outside(self, path: str) -> None:
        """A step ends where a module is called from outside for the second time."""
        if not self.tops or path in self.tops[-1]:
            self.tops.append(set())
            self._counts_in_step.clear()
        self.tops[-1].add(path)

    def _path(self, module: torch.nn.Module, running: list[Call]) -> str:
        """Its path by way of the module that calls it, or of the nearest around that; else the first. Where the caller holds it in
        several places, its calls go by these places in their order."""
        paths = self._paths.get(id(module), [self._model_name])
        if len(paths) == 1:
            return paths[0]
        for caller in reversed(running):
            prefix = "" if caller.module is self._model else f"{caller.path}."
            below = [path for path in paths if path.startswith(prefix)]
            if below:
                depth = min(path.count(".") for path in below)
                nearest = [path for path in below if path.count(".") == depth]
                count = caller.inner[id(module)]
                caller.inner[id(module)] += 1
                return nearest[count % len(nearest)]
        return paths[0]


def _numbered(path: str, count: int) -> str:
    return path if count == 1 else f"{path}#{count}"


def _children(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Its children by name; `named_children` leaves out the second name of one."""
    return [(name, child) for name, child in module._modules.items() if child is not None]  # pyright: ignore[reportPrivateUsage]


def _walk(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every path to every module, without the names of what torch.compile puts between."""
    found: list[tuple[torch.nn.Module, str, tuple[int, ...]]] = [(model, "", ())]
    for _ in range(MOST_PATHS):
        if not found:
            return
        module, path, above = found.pop()
        inner = getattr(module, COMPILED, None)
        if inner is None:
            yield path, module
            children = [(child, f"{path}.{name}" if path else name) for name, child in _children(module)]
        else:
            children = [(inner, path)]
        within = (*above, id(module))
        found += [(child, name, within) for child, name in reversed(children) if id(child) not in within]
