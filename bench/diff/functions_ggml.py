"""ggml's own functions, called through the libraries that the wheel of pywhispercpp carries."""

import ctypes
import importlib.util
from pathlib import Path

import numpy as np


class Params(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def library():
    """Base and CPU library, or None where the wheel is not installed."""
    spec = importlib.util.find_spec("_pywhispercpp")
    if spec is None:
        return None
    folder = Path(spec.origin).parent / "pywhispercpp.libs"
    found = [next(folder.glob(f"libggml-{part}-*.so*"), None) for part in ("base", "cpu")]
    if None in found:
        return None
    base, cpu = (ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL) for file in found)
    base.ggml_init.argtypes = [Params]
    base.ggml_new_tensor_2d.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    base.ggml_build_forward_expand.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    base.ggml_free.argtypes = [ctypes.c_void_p]
    cpu.ggml_graph_compute_with_ctx.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    for name in ("ggml_init", "ggml_new_tensor_2d", "ggml_new_graph", "ggml_get_data"):
        getattr(base, name).restype = ctypes.c_void_p
    for name in ("ggml_new_graph", "ggml_get_data"):
        getattr(base, name).argtypes = [ctypes.c_void_p]
    cpu.ggml_cpu_init()
    return base, cpu


def function(libraries, operation):
    """`operation` as a function of an array of one or two dimensions; None where this ggml has none of that name."""
    base, cpu = libraries
    step = getattr(base, operation, None)
    if step is None:
        return None
    step.restype, step.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]

    def run(x):
        rows = x.reshape(-1, x.shape[-1])
        context = base.ggml_init(Params(3 * x.nbytes + (64 << 20), None, False))
        into = base.ggml_new_tensor_2d(context, 0, rows.shape[1], rows.shape[0])
        ctypes.memmove(base.ggml_get_data(into), np.ascontiguousarray(rows).ctypes.data, x.nbytes)
        out, graph = step(context, into), base.ggml_new_graph(context)
        base.ggml_build_forward_expand(graph, out)
        cpu.ggml_graph_compute_with_ctx(context, graph, 1)
        found = np.empty_like(rows)
        ctypes.memmove(found.ctypes.data, base.ggml_get_data(out), x.nbytes)
        base.ggml_free(context)
        return found.reshape(x.shape)

    return run


NAMES = {
    "exp": "ggml_exp",
    "tanh": "ggml_tanh",
    "sigmoid": "ggml_sigmoid",
    "gelu": "ggml_gelu_erf",
    "gelu_tanh": "ggml_gelu",
    "quick_gelu": "ggml_gelu_quick",
    "silu": "ggml_silu",
    "sin": "ggml_sin",
    "cos": "ggml_cos",
    "softmax": "ggml_soft_max",
}


def functions():
    libraries = library()
    if libraries is None:
        return {}
    made = {name: function(libraries, operation) for name, operation in NAMES.items()}
    return {name: run for name, run in made.items() if run}
