"""How far the functions of torch, numpy, onnxruntime and ggml are from the truth, in f32.

    python functions.py [--whole | --check]

Each error is given in units of u = 2^-24 of the result, of the input, and of 1, largest over the range: a GELU far below
zero has no correct digit left and is still within a few u of its input. The truth is computed in f64 from the same f32
inputs; `--check` holds the f64 functions themselves against mpmath. For softmax the second column is in u of the result
times 1 + (largest score - this score), since exp's argument is rounded when the maximum is subtracted.

ggml's GELU and quick GELU are tables of 65,536 halves, indexed by the input rounded to half. Inputs below 2^-14, where a
half has fewer digits, are left out for them.
"""

import argparse
import itertools
import math
import re

import numpy as np
import scipy.special
import torch

import functions_ggml
import functions_onnx

U = 2.0**-24
f32, f64 = np.float32, np.float64
ROOT = math.sqrt(2 / math.pi)


def gelu_tanh(x):
    """Written so that nothing cancels far below zero: 1 + tanh(y) = 2 / (1 + exp(-2 y))."""
    return x / (1 + np.exp(np.clip(-2 * ROOT * (x + 0.044715 * x**3), None, 700)))


def sigmoid(x):
    return scipy.special.expit(x)


TRUTH = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "erf": scipy.special.erf,
    "gelu": lambda x: x * scipy.special.ndtr(x),
    "gelu_tanh": gelu_tanh,
    "quick_gelu": lambda x: x * sigmoid(f64(1.702) * x),
    "silu": lambda x: x * sigmoid(x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
}

RANGES = {"exp": (-87.0, 88.0), "rsqrt": (1e-6, 1e4), "sin": (0.0, 4096.0), "cos": (0.0, 4096.0)}

TORCH = {
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": torch.nn.functional.silu,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
}

# What people write where a library has no such function: plain formulas, every step rounded to f32.
NUMPY = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: f32(0.5) * x * (1 + scipy.special.erf(x * f32(math.sqrt(0.5)))),
    "gelu_tanh": lambda x: f32(0.5) * x * (1 + np.tanh(f32(ROOT) * (x + f32(0.044715) * x * x * x))),
    "quick_gelu": lambda x: x * (1 / (1 + np.exp(f32(-1.702) * x))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
}


def inputs(name, count):
    """Even over the range, and even over the magnitudes, of both signs where the range has both."""
    low, high = RANGES.get(name, (-30.0, 30.0))
    even = np.linspace(low, high, count)
    magnitudes = np.geomspace(1e-6, max(abs(low), high), count // 2)
    both = [m for m in (magnitudes, -magnitudes) if low <= m.min() and m.max() <= high]
    return np.unique(np.concatenate([even, *both]).astype(f32))


def in_sevens(function, x):
    """Seven values a call, too few for a vector: the scalar path."""
    x = x[: len(x) // 7 * 7]
    x = x[:: max(1, len(x) // 140_000)]
    x = x[: len(x) // 7 * 7]
    parts = [function(part) for part in torch.from_numpy(x.reshape(-1, 7).copy())]
    return x, torch.stack(parts).numpy().reshape(-1)


def units(x, found, truth):
    """The largest error in u of the result, of the input and of 1; results below f32's normal range are left out."""
    error = np.abs(found.astype(f64) - truth)[np.abs(truth) > 1.2e-38] / U
    x, truth = (np.abs(v.astype(f64))[np.abs(truth) > 1.2e-38] for v in (x, truth))
    return (error / truth).max(), (error / np.maximum(x, 1e-300)).max(), error.max()


def elementwise(count):
    onnx, ggml = functions_onnx.sessions(), functions_ggml.functions()
    for name, truth in TRUTH.items():
        x = inputs(name, count)
        right = truth(x.astype(f64))
        yield name, "torch", units(x, TORCH[name](torch.from_numpy(x)).numpy(), right)
        few, found = in_sevens(TORCH[name], x)
        yield name, "torch, 7 a call", units(few, found, truth(few.astype(f64)))
        for library, functions in (("numpy", NUMPY), ("onnxruntime", onnx)):
            if name in functions:
                with np.errstate(over="ignore"):
                    yield name, library, units(x, functions[name](x), right)
        if name in ggml:
            large = x[np.abs(x) >= (2.0**-14 if name in ("gelu_tanh", "quick_gelu") else 0)]
            yield name, "ggml", units(large, ggml[name](large), truth(large.astype(f64)))


def softmax_rows(length, spread, rows, random):
    scores = (random.standard_normal((rows, length)) * spread).astype(f32)
    wide = scores.astype(f64)
    right = np.exp(wide - wide.max(-1, keepdims=True))
    return scores, right / right.sum(-1, keepdims=True)


def numpy_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmaxes():
    random = np.random.default_rng(0)
    onnx, ggml = functions_onnx.softmax(), functions_ggml.functions()
    libraries = {
        "torch": lambda x: torch.softmax(torch.from_numpy(x), -1).numpy(),
        "numpy": numpy_softmax,
        "onnxruntime": onnx,
    }
    if "softmax" in ggml:
        libraries["ggml"] = ggml["softmax"]
    for length in (7, 64, 512, 1500, 8192):
        for spread in (1.0, 8.0):
            scores, right = softmax_rows(length, spread, 400, random)
            reach = (scores.max(-1, keepdims=True) - scores).astype(f64) + 1
            for library, function in libraries.items():
                normal = right > 1.2e-38
                error = np.abs(function(scores).astype(f64) - right)[normal] / U
                by_result = error / right[normal]
                worst = (by_result.max(), (by_result / reach[normal]).max(), error.max())
                yield f"softmax of {length}, scores ± {3 * spread:.0f}", library, worst


def sinusoids():
    """A table computed in f32 throughout, against f64: the angle's rounding, position · u, outweighs the function's."""
    for width in (256, 512, 1024):
        positions = torch.arange(4096, dtype=torch.float32)[:, None]
        step = torch.exp(torch.arange(width // 2) * -(math.log(10000) / (width // 2)))
        exact = np.exp(np.arange(width // 2) * -(math.log(10000) / (width // 2)))
        found = torch.sin(positions * step).numpy()
        right = np.sin(np.arange(4096)[:, None] * exact)
        error = np.abs(found - right) / U
        by_position = (error[1:] / np.arange(1, 4096)[:, None]).max()
        yield f"sinusoids of width {width}, by position", "torch", (math.inf, by_position, error.max())


def check():
    import mpmath

    mpmath.mp.dps = 40
    exact = {"gelu": lambda x: x * mpmath.ncdf(x), "exp": mpmath.exp, "tanh": mpmath.tanh, "erf": mpmath.erf}
    exact["gelu_tanh"] = lambda x: x / (
        1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))
    )
    for name, function in exact.items():
        x = inputs(name, 300).astype(f64)
        found = TRUTH[name](x)
        worst = max(
            abs((mpmath.mpf(y) - function(mpmath.mpf(v))) / function(mpmath.mpf(v)))
            for v, y in zip(x, found)
            if v and abs(y) > 1e-280
        )
        print(f"{name}: f64 within {float(worst):.1e} of mpmath, relatively")


# What a function's error is a multiple of: a sigmoid or a cosine near 0 has only an absolute accuracy in some libraries.
UNITS = ("the result", "the input", "1")
UNIT_OF = {
    "sigmoid": 2,
    "sin": 2,
    "cos": 2,
    "gelu": 1,
    "gelu_tanh": 1,
    "quick_gelu": 1,
    "silu": 1,
    "softmax": 1,
    "sinusoids": 1,
}
LIBRARIES = ("torch", "torch, 7 a call", "numpy", "onnxruntime", "ggml")


def summary(rows):
    """A line for each function, in the unit that bounds it, and a column for each library."""
    print(f"| function | u of | {' | '.join(LIBRARIES)} |\n|---|---|{'--:|' * len(LIBRARIES)}")
    table = {}
    for name, library, worst in rows:
        table.setdefault(name, {})[library] = worst[UNIT_OF.get(re.split("[ ,]", name)[0], 0)]
    for name, found in table.items():
        unit = UNITS[UNIT_OF.get(re.split("[ ,]", name)[0], 0)]
        unit = "the result × (1 + distance from the largest score)" if name.startswith("softmax") else unit
        cells = [f"{found[library]:.3g}" if library in found else "–" for library in LIBRARIES]
        print(f"| {name} | {unit} | {' | '.join(cells)} |")


def whole(rows):
    print("| function | library | u of the result | u of the input | u |\n|---|---|--:|--:|--:|")
    for name, library, worst in rows:
        # An error that is so many times the result or the input has nothing to do with it.
        cells = ["–" if v > 1e5 else f"{v:.3g}" for v in worst]
        print(f"| {name} | {library} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1 << 21, help="inputs a function")
    parser.add_argument("--check", action="store_true", help="hold the f64 functions against mpmath and end")
    parser.add_argument("--whole", action="store_true", help="every error in every unit")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        return check()
    rows = itertools.chain(elementwise(args.count), softmaxes(), sinusoids())
    whole(rows) if args.whole else summary(rows)


if __name__ == "__main__":
    main()
