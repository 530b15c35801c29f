"""What attnscope needs to know of torch: the types of its tensors, and their bytes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attnscope._errors import Error

if TYPE_CHECKING:
    from typing import TypeAlias

    import torch

    # A tensor as attnscope reads it: its name, the name of its type, its shape, its bytes.
    Held: TypeAlias = tuple[str, str, list[int], bytes]

DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}
"""The names of torch's types, and attnscope's."""


def import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise Error("torch is not installed", 'pip install "attnscope[torch]"') from None


def dtype(tensor: torch.Tensor) -> str | None:
    """The name of its type, where it is one that is read."""
    return DTYPES.get(str(tensor.dtype).removeprefix("torch."))


def contents(tensor: torch.Tensor) -> bytes:
    """A copy of its elements, row-major, from whichever device it is on."""
    torch = import_torch()
    plain = tensor.detach().to("cpu").contiguous()
    return bytes(plain.reshape(-1).view(torch.uint8).numpy().data)
