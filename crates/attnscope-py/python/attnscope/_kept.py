"""The tensors that hooks keep: copies of their elements, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from attnscope import _torch

if TYPE_CHECKING:
    from attnscope._calls import Call
    from attnscope._torch import Held

DEPTH = 20
"""Containers of containers of outputs are looked into so far."""


@dataclass(frozen=True)
class Place:
    """Where a value was seen."""

    name: str
    """Its name within its step."""
    step: int
    """From 1; 0 is no step in particular."""
    top: str


class Kept:
    """Values by name, at most so many bytes of them; and what could not be kept, with the reason.

    Values with the same bytes are kept once: mostly, what a module returns is what the next one reads. They are found by their bytes
    and not by their memory, because not everything that writes into a tensor tells torch so.
    """

    def __init__(self, max_bytes: int) -> None:
        self.arrays: dict[str, Held] = {}
        self.not_kept: dict[str, str] = {}
        self.lost: set[str] = set()
        """Those of `not_kept` that are tensors, or modules that have some."""
        self.places: dict[str, Place] = {}
        self._left = max_bytes
        self._copies: dict[bytes, bytes] = {}
        self._sizes: set[int] = set()

    def bytes(self) -> int:
        return sum(map(len, {id(data): data for *_, data in self.arrays.values()}.values()))

    def keep(self, call: Call, port: str, value: Any) -> None:
        """Keeps what a call reads or returns. Whatever cannot be copied must not stop the model that is captured."""
        self._keep(call, port, value, 0)

    def refuse(self, name: str, why: str, place: Place, *, is_lost: bool) -> None:
        name = self._free(name)
        self.not_kept[name], self.places[name] = why, place
        if is_lost:
            self.lost.add(name)

    def step(self, number: int, tops: list[set[str]]) -> Kept:
        """What belongs to a step: its own calls; and of modules called from outside that it does not call, the latest call before,
        as the one of an encoder that runs once."""
        latest = {top: step for step, called in enumerate(tops[:number], 1) for top in called}
        one = Kept(0)
        for name, place in self.places.items():
            if place.step and latest.get(place.top) != place.step:
                continue
            # Names that are taken were made free within the whole capture, as well as here.
            local = one._free(place.name)
            one.places[local] = place
            if name in self.arrays:
                one.arrays[local] = (local, *self.arrays[name][1:])
            else:
                one.not_kept[local] = self.not_kept[name]
                if name in self.lost:
                    one.lost.add(local)
        return one

    def _free(self, name: str) -> str:
        """The name, or with `~2` where it is taken: {"a": {"b": x}, "a.b": y} has two values of one name."""
        free, count = name, 1
        while free in self.places:
            count += 1
            free = f"{name}~{count}"
        return free

    def _keep(self, call: Call, port: str, value: Any, depth: int) -> None:
        try:
            if isinstance(value, _torch.import_torch().Tensor):
                self._copy(call, port, value)
            elif depth < DEPTH and isinstance(value, (Mapping, tuple, list)):
                several = cast("Any", value)
                for key, item in several.items() if isinstance(value, Mapping) else enumerate(several):
                    self._keep(call, f"{port}.{key}", item, depth + 1)
            elif not isinstance(value, (type(None), bool, int, float, str)):
                self._refuse(call, port, f"a {type(value).__name__}, which is no tensor", is_lost=False)
        except Exception as error:
            words = str(error).strip().split("\n")[0][:200]
            self._refuse(call, port, f"it could not be copied: {type(error).__name__}: {words}", is_lost=True)

    def _copy(self, call: Call, port: str, tensor: Any) -> None:
        why, dtype = _torch.unreadable(tensor), _torch.dtype(tensor)
        if why is not None or dtype is None:
            self._refuse(call, port, why or f"a tensor of {tensor.dtype}", is_lost=True)
            return
        size = tensor.numel() * tensor.element_size()
        too_large = f"{size:,} bytes, more than what is left of max_bytes"
        if size > self._left and size not in self._sizes:
            self._refuse(call, port, too_large, is_lost=True)
            return
        data = _torch.contents(tensor)
        known = self._copies.get(data)
        if known is None:
            if size > self._left:
                self._refuse(call, port, too_large, is_lost=True)
                return
            self._left -= size
            self._sizes.add(size)
            self._copies[data] = known = data
        name = self._free(f"{call.name}.{port}")
        self.arrays[name] = (name, dtype, list(tensor.shape), known)
        self.places[name] = _place(call, port)

    def _refuse(self, call: Call, port: str, why: str, *, is_lost: bool) -> None:
        self.refuse(f"{call.name}.{port}", why, _place(call, port), is_lost=is_lost)


def _place(call: Call, port: str) -> Place:
    return Place(f"{call.name_in_step}.{port}", call.step, call.top)
