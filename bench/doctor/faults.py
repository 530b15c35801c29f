"""Mistakes of converters, planted into a copy of a Hugging Face model folder.

`faults(checkpoint)` yields every fault at every place where it applies. A fault edits a dict of arrays under the paths of
attnscope's graph (`decoder.1.cross_attn.k.weight`); `Checkpoint` maps them to the names in the file. This file shares no code
with what looks for the faults.
"""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
from safetensors.numpy import load_file, save_file

HUGGING_FACE = {
    "self_attn.q": "self_attn.q_proj",
    "self_attn.k": "self_attn.k_proj",
    "self_attn.v": "self_attn.v_proj",
    "self_attn.out": "self_attn.out_proj",
    "self_attn.norm": "self_attn_layer_norm",
    "cross_attn.q": "encoder_attn.q_proj",
    "cross_attn.k": "encoder_attn.k_proj",
    "cross_attn.v": "encoder_attn.v_proj",
    "cross_attn.out": "encoder_attn.out_proj",
    "cross_attn.norm": "encoder_attn_layer_norm",
    "ffn.hidden": "fc1",
    "ffn.out": "fc2",
    "ffn.norm": "final_layer_norm",
}
T5 = {
    "self_attn.q": "layer.0.SelfAttention.q",
    "self_attn.k": "layer.0.SelfAttention.k",
    "self_attn.v": "layer.0.SelfAttention.v",
    "self_attn.out": "layer.0.SelfAttention.o",
    "self_attn.norm": "layer.0.layer_norm",
    "self_attn.bias": "layer.0.SelfAttention.relative_attention_bias",
    "cross_attn.q": "layer.1.EncDecAttention.q",
    "cross_attn.k": "layer.1.EncDecAttention.k",
    "cross_attn.v": "layer.1.EncDecAttention.v",
    "cross_attn.out": "layer.1.EncDecAttention.o",
    "cross_attn.norm": "layer.1.layer_norm",
    "ffn.hidden": "layer.{f}.DenseReluDense.{hidden}",
    "ffn.gate": "layer.{f}.DenseReluDense.wi_1",
    "ffn.out": "layer.{f}.DenseReluDense.wo",
    "ffn.norm": "layer.{f}.layer_norm",
}
TABLES = {
    "src.embed.weight": ["model.shared.weight", "shared.weight"],
    "tgt.embed.weight": ["model.decoder.embed_tokens.weight"],  # Whisper's, whose encoder reads no tokens.
    "src.positions.weight": ["model.encoder.embed_positions.weight"],
    "tgt.positions.weight": ["model.decoder.embed_positions.weight"],
    "logits.bias": ["final_logits_bias"],
}


class Checkpoint:
    """A model folder whose tensors are read and written under the graph's paths."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.config = json.loads((self.folder / "config.json").read_text())
        self.tensors = {k: v.astype(np.float32) for k, v in load_file(self.folder / "model.safetensors").items()}
        self.is_t5 = any(".block." in name for name in self.tensors)
        self.is_gated = any("wi_1" in name for name in self.tensors)
        self.heads = self.config.get("num_heads") or self.config["encoder_attention_heads"]
        self.layers = {s: self._count(s) for s in ("encoder", "decoder")}
        self.names = dict(self._names())

    def _count(self, stack: str) -> int:
        inner = f"{stack}.block." if self.is_t5 else f"{stack}.layers."
        return 1 + max(int(n.split(inner)[1].split(".")[0]) for n in self.tensors if inner in n)

    def _names(self) -> Iterator[tuple[str, str]]:
        for path, names in TABLES.items():
            for name in names:
                if name in self.tensors:
                    yield path, name
        for stack, count in self.layers.items():
            for n in range(count):
                table = T5 if self.is_t5 else HUGGING_FACE
                start = f"{stack}.block.{n}." if self.is_t5 else f"model.{stack}.layers.{n}."
                for module, name in table.items():
                    if stack == "encoder" and module.startswith("cross_attn"):
                        continue
                    name = name.format(f=1 if stack == "encoder" else 2, hidden="wi_0" if self.is_gated else "wi")
                    for leaf in ("weight", "bias"):
                        if f"{start}{name}.{leaf}" in self.tensors:
                            yield f"{stack}.{n}.{module}.{leaf}", f"{start}{name}.{leaf}"

    def __contains__(self, path: str) -> bool:
        return path in self.names

    def __getitem__(self, path: str) -> np.ndarray:
        return self.tensors[self.names[path]]

    def __setitem__(self, path: str, values: np.ndarray) -> None:
        name = self.names[path]
        self.tensors[name] = np.ascontiguousarray(values).reshape(self.tensors[name].shape)

    def under(self, module: str) -> list[str]:
        return [path for path in self.names if path.startswith(module + ".")]

    def attentions(self) -> Iterator[str]:
        for stack, count in self.layers.items():
            for n in range(count):
                yield f"{stack}.{n}.self_attn"
                if stack == "decoder":
                    yield f"{stack}.{n}.cross_attn"

    def feed_forwards(self) -> Iterator[str]:
        for stack, count in self.layers.items():
            yield from (f"{stack}.{n}.ffn" for n in range(count))

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.folder.iterdir():
            if file.suffix == ".json" and file.name != "config.json":
                shutil.copy(file, folder / file.name)
        (folder / "config.json").write_text(json.dumps(self.config))
        save_file(self.tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder


@dataclass
class Fault:
    """One mistake at one place."""

    name: str
    place: str
    plant: Callable[[Checkpoint], None]
    # What a right finding says: its kinds, and weights of which it names at least one and none besides `allowed`.
    kinds: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    # Weights that an equivalent repair names.
    equivalent: tuple[str, ...] = ()
    # Provably without effect: nothing may be said.
    is_invisible: bool = False
    factor: float | None = None
    notes: dict = field(default_factory=dict)


def swap(c: Checkpoint, a: str, b: str) -> None:
    """Two modules change places, or two weights."""
    for leaf in ("", ".weight", ".bias"):
        if a + leaf in c and b + leaf in c:
            c[a + leaf], c[b + leaf] = c[b + leaf].copy(), c[a + leaf].copy()


def swap_layers(c: Checkpoint, stack: str, a: int, b: int) -> None:
    for path in c.under(f"{stack}.{a}"):
        other = path.replace(f"{stack}.{a}.", f"{stack}.{b}.", 1)
        if other in c:
            swap(c, path, other)


def rows(c: Checkpoint, module: str, order: list[int]) -> None:
    """The rows of a projection, and of its bias, in another order."""
    for leaf in (".weight", ".bias"):
        if module + leaf in c:
            c[module + leaf] = c[module + leaf][order]


def head_rows(c: Checkpoint, heads: list[int], width: int) -> list[int]:
    size = width // c.heads
    return [head * size + row for head in heads for row in range(size)]


def scale(c: Checkpoint, module: str, factor: float) -> None:
    for leaf in (".weight", ".bias"):
        if module + leaf in c:
            c[module + leaf] = c[module + leaf] * factor


def transpose(c: Checkpoint, path: str) -> None:
    c[path] = c[path].T


def both(*modules: str) -> tuple[str, ...]:
    return tuple(f"{module}.{leaf}" for module in modules for leaf in ("weight", "bias"))


def faults(c: Checkpoint) -> Iterator[Fault]:
    """Every fault at every place where it applies."""
    for stack, count in c.layers.items():
        for a in range(count):
            for b in range(a + 1, count):
                weights = tuple(c.under(f"{stack}.{a}") + c.under(f"{stack}.{b}"))
                yield Fault("two layers swapped", f"{stack} {a}, {b}",
                            lambda m, s=stack, a=a, b=b: swap_layers(m, s, a, b), ("swap_layers",), weights)
                yield Fault("a copy of a layer", f"{stack} {a} over {b}",
                            lambda m, s=stack, a=a, b=b: copy_layer(m, s, a, b), ("copied_layer",), weights)
                for part in ("self_attn", "cross_attn", "ffn"):
                    yield from moved_sublayer(c, f"{stack}.{a}.{part}", f"{stack}.{b}.{part}")
    for at in c.attentions():
        yield from attention_faults(c, at)
    for at in c.feed_forwards():
        for module in ("hidden", "out"):
            yield negated(f"{at}.{module}")
            yield scaled(f"{at}.{module}", 4.0, (f"{at}.hidden", f"{at}.out"))
        if f"{at}.gate.weight" in c:
            yield Fault("gate and up exchanged", at, lambda m, at=at: swap(m, f"{at}.hidden", f"{at}.gate"),
                        ("exchange",), both(f"{at}.hidden", f"{at}.gate"))
        if f"{at}.hidden.bias" in c:
            for module in ("hidden", "out"):
                yield dropped(f"{at}.{module}.bias")
    for stack, count in c.layers.items():
        parts = ["self_attn", "cross_attn", "ffn"] if stack == "decoder" else ["self_attn", "ffn"]
        for n in range(count):
            for i, a in enumerate(parts):
                for b in parts[i + 1:]:
                    a_norm, b_norm = f"{stack}.{n}.{a}.norm", f"{stack}.{n}.{b}.norm"
                    yield Fault("norms exchanged", f"{stack}.{n} {a}, {b}",
                                lambda m, a=a_norm, b=b_norm: swap(m, a, b), ("exchange",), both(a_norm, b_norm))
        yield missing_layer(c, stack)
    yield from table_faults(c)


def moved_sublayer(c: Checkpoint, a: str, b: str) -> Iterator[Fault]:
    """One sublayer, with its norm, in the other's place. T5's bias table stays: only the first layer has one."""
    paths = [path for path in c.under(a) if path.replace(a, b, 1) in c]
    if paths:
        weights = tuple(paths + [path.replace(a, b, 1) for path in paths])
        yield Fault("a sublayer exchanged between two layers", f"{a}, {b}",
                    lambda m: [swap(m, path, path.replace(a, b, 1)) for path in paths], ("exchange",), weights)


def attention_faults(c: Checkpoint, at: str) -> Iterator[Fault]:
    width = c[f"{at}.q.weight"].shape[0]
    for name in ("q", "k", "v", "out"):
        path = f"{at}.{name}.weight"
        if c[path].shape[0] == c[path].shape[1]:
            yield Fault("square matrix transposed", path, lambda m, p=path: transpose(m, p), ("transpose",), (path,))
    for a, b in (("q", "k"), ("q", "v"), ("k", "v")):
        yield Fault(f"{a} and {b} exchanged", at, lambda m, a=a, b=b: swap(m, f"{at}.{a}", f"{at}.{b}"),
                    ("exchange",), both(f"{at}.{a}", f"{at}.{b}"))
    rng = np.random.default_rng(sum(map(ord, at)))
    orders = {"turned by one": list(np.roll(range(c.heads), 1)), "at random": other_order(rng, c.heads)}
    for how, order in orders.items():
        order = [int(head) for head in order]
        yield Fault("heads permuted in q, not in k", f"{at} {how}",
                    lambda m, o=order: rows(m, f"{at}.q", head_rows(m, o, width)), ("permute_heads",), both(f"{at}.q"))
    size = width // c.heads
    pairs = [h * size + i for h in range(c.heads) for i in [*range(0, size, 2), *range(1, size, 2)]]
    yield Fault("q interleaved against halved", at, lambda m: rows(m, f"{at}.q", pairs), ("interleave",), both(f"{at}.q"))
    yield Fault("q and k interleaved alike", at,
                lambda m: (rows(m, f"{at}.q", pairs), rows(m, f"{at}.k", pairs)), is_invisible=True)
    everywhere = [row * c.heads + head for head in range(c.heads) for row in range(size)]
    yield Fault("q, k, v with rows of all heads interleaved", at,
                lambda m: [rows(m, f"{at}.{p}", everywhere) for p in "qkv"], ("interleave", "permute_heads"),
                both(f"{at}.q", f"{at}.k", f"{at}.v"), both(f"{at}.out"))
    score = (f"{at}.q", f"{at}.k")
    value = (f"{at}.v", f"{at}.out")
    for name in ("q", "k", "v", "out"):
        peers = score if name in "qk" else value
        yield negated(f"{at}.{name}", peers)
        yield scaled(f"{at}.{name}", 4.0, peers)
    yield scaled(f"{at}.q", 0.25, score)
    if f"{at}.q.bias" in c:
        for name in ("q", "v", "out"):
            yield dropped(f"{at}.{name}.bias")
    if f"{at}.k.bias" in c:
        fault = dropped(f"{at}.k.bias")
        fault.name, fault.notes = "k's bias dropped", {"no_effect": True}
        yield fault


def table_faults(c: Checkpoint) -> Iterator[Fault]:
    for by in (1, -1):
        embed = "src.embed.weight" if "src.embed.weight" in c else "tgt.embed.weight"
        yield Fault("embeddings rolled by one row", f"{embed.removesuffix('.weight')} {by:+d}",
                    lambda m, p=embed, by=by: m.__setitem__(p, np.roll(m[p], by, 0)), ("roll",), (embed,))
        for path in ("src.positions.weight", "tgt.positions.weight"):
            if path in c:
                yield Fault("positions rolled by one row", f"{path} {by:+d}",
                            lambda m, p=path, by=by: m.__setitem__(p, np.roll(m[p], by, 0)), ("roll",), (path,))
    for a, b in (("src.positions.weight", "tgt.positions.weight"),
                 ("encoder.0.self_attn.bias.weight", "decoder.0.self_attn.bias.weight")):
        if a in c and b in c:
            yield Fault("encoder and decoder tables exchanged", a.split(".")[-2],
                        lambda m, a=a, b=b: swap(m, a, b), ("exchange",), (a, b))


def other_order(rng: np.random.Generator, heads: int) -> list[int]:
    while True:
        order = list(rng.permutation(heads))
        rolled = list(np.roll(range(heads), 1))
        if order != list(range(heads)) and order != rolled:
            return order


def copy_layer(c: Checkpoint, stack: str, source: int, target: int) -> None:
    for path in c.under(f"{stack}.{source}"):
        other = path.replace(f"{stack}.{source}.", f"{stack}.{target}.", 1)
        if other in c:
            c[other] = c[path].copy()


def missing_layer(c: Checkpoint, stack: str) -> Fault:
    last = c.layers[stack] - 1

    def plant(m: Checkpoint) -> None:
        for path in m.under(f"{stack}.{last}"):
            del m.tensors[m.names[path]]

    return Fault("a layer missing", f"{stack} {last}", plant, ("missing_layer",), (f"{stack}.{last}",))


def negated(module: str, peers: tuple[str, ...] = ()) -> Fault:
    return Fault("a projection negated", module, lambda m: scale(m, module, -1.0), ("negate",), both(module), both(*peers))


def scaled(module: str, factor: float, peers: tuple[str, ...]) -> Fault:
    return Fault(f"a projection × {factor:g}", module, lambda m: scale(m, module, factor), ("scale",), both(module),
                 both(*peers), factor=1 / factor)


def dropped(path: str) -> Fault:
    return Fault("a bias dropped", path, lambda m: m.__setitem__(path, np.zeros_like(m[path])), ("dropped_bias",), (path,))
