"""What attnscope needs to know of torch: the types of its tensors, and their bytes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attnscope._errors import Error

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import torch
    from numpy.typing import NDArray

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


def import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise Error("torch is not installed", 'pip install "attnscope[torch]"') from None


def dtype(tensor: torch.Tensor) -> str | None:
    """The name of its type, where it is one that is read."""
    return DTYPES.get(str(tensor.dtype).removeprefix("torch."))


def unreadable(tensor: torch.Tensor) -> str | None:
    """Why the elements of a tensor cannot be copied."""
    torch = import_torch()
    is_wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
    if is_wrapped is not None and is_wrapped(tensor):
        return "a tensor within torch.func (vmap, grad), which stands for others"
    if any(kind.__name__ == "FakeTensor" for kind in type(tensor).__mro__):
        return "a FakeTensor, which has no values"
    if tensor.is_nested:
        return "a nested tensor, whose rows have lengths of their own"
    if tensor.device.type == "meta":
        return "a meta tensor, which has no values"
    if hasattr(tensor, "to_local"):
        return "a tensor that is spread over several devices or processes"
    if tensor.layout is not torch.strided or tensor.is_quantized or dtype(tensor) is None:
        return f"a tensor of {tensor.dtype}, {tensor.layout}"
    return None


def contents(tensor: torch.Tensor) -> bytes:
    """A copy of its elements, row-major, from whichever device it is on."""
    torch = import_torch()
    # A view that only notes that its elements are to be negated has no bytes of its own.
    plain = tensor.detach().resolve_neg().to("cpu").contiguous()
    return bytes(plain.reshape(-1).view(torch.uint8).numpy().data)


def array(held: Held) -> NDArray[np.generic]:
    """The elements as a numpy array; those of a type that numpy lacks, as float32."""
    import numpy as np

    _, dtype, shape, data = held
    if dtype == "bf16":
        wide = np.frombuffer(data, "<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(shape)
    if dtype in NUMPY:
        return np.frombuffer(data, NUMPY[dtype]).reshape(shape)
    # The types of 8 bits that numpy lacks.
    torch = import_torch()
    kind = next(name for name, short in DTYPES.items() if short == dtype)
    plain = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(getattr(torch, kind))
    floats: NDArray[np.generic] = plain.float().reshape(shape).numpy()
    return floats
