from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from os import PathLike
from typing import Any, Literal, Protocol, TypedDict, final

from typing_extensions import Unpack, disjoint_base

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Answer",
    "Model",
    "Table",
    "Tensor",
    "Trace",
    "audit",
    "audit_stream",
    "audited_schema_stream",
    "check",
    "command",
    "compare_audits",
    "diff_runs",
    "merge_audits",
    "open",
    "open_held",
    "read_audit",
    "topics",
    "train",
    "with_swaps_stream",
]

_Held = tuple[str, str, Sequence[int], bytes]
_GivenRun = Trace | tuple[str, Sequence[_Held]] | str | PathLike[str]

_Path = str | PathLike[str]
_Array = NDArray[np.float32] | NDArray[np.float64]
_Pairs = _Path | Sequence[tuple[str, str]]

class _Listed(Protocol):
    def tolist(self) -> Any: ...

_Ids = Sequence[int] | Sequence[Sequence[int]] | _Listed

class _Input(TypedDict, total=False):
    target: str | Sequence[str] | None
    ids: _Ids | None
    mask: _Ids | None
    target_ids: _Ids | None
    target_mask: _Ids | None
    audio: _Path | None
    features: _Path | None
    source_language: str | None
    target_language: str | None

@disjoint_base
class Answer:
    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool | None: ...
    def to_json(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def text(self, *, width: int = 100, color: bool = False) -> str: ...
    def _repr_html_(self) -> str: ...
    def __reduce__(self) -> tuple[Any, Any]: ...
    @staticmethod
    def _restored(name: str, json: str, text: str, html: str, ok: bool | None) -> Answer: ...

@final
class Table(Answer):
    def rows(self) -> list[dict[str, Any]]: ...
    def to_arrow(self) -> Any: ...  # pyarrow.Table
    def to_pandas(self) -> Any: ...  # pandas.DataFrame
    @staticmethod
    def _restored_table(key: str, forms: tuple[str, str, str, str, bool | None]) -> Table: ...

@final
class Tensor:
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class Trace(Answer, Mapping[str, _Array]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, path: object, /) -> bool: ...
    def __getitem__(self, path: str, /) -> _Array: ...
    def get(self, path: str, default: Any = None) -> Any: ...
    def keys(self) -> KeysView[str]: ...
    def values(self) -> ValuesView[_Array]: ...
    def items(self) -> ItemsView[str, _Array]: ...
    def nodes(self, select: str = "*") -> list[str]: ...
    def dims(self, path: str) -> list[str]: ...
    @property
    def tokens(self) -> dict[str, list[list[str]]]: ...
    def explain(self, path: str, at: Sequence[int], *, every_term: bool = False) -> Answer: ...
    def stats(self) -> Table: ...
    def heads(self) -> Table: ...
    def save(self, folder: _Path) -> None: ...

@final
class Model:
    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    def nodes(self, select: str = "*") -> list[str]: ...
    def inspect(self, *, tensors: bool = False, values: bool = False) -> Answer: ...
    def summary(
        self, *, batch: int | None = None, source_length: int | None = None, target_length: int = 64
    ) -> Table: ...
    def flow(
        self,
        component: Literal["full", "encoder", "decoder", "self_attn", "cross_attn", "ffn"] = "full",
        *,
        layer: str | None = None,
        symbolic: bool = False,
    ) -> Answer: ...
    def trace(
        self,
        text: str | Sequence[str] | None = None,
        *,
        select: str | None = None,
        layer_index: int = 0,
        row: int = 0,
        head: int | Literal["all"] | None = None,
        gradients: bool = False,
        classes: Sequence[int | str] | None = None,
        **input: Unpack[_Input],
    ) -> Trace: ...
    def generate(
        self,
        text: str | Sequence[str] | None = None,
        *,
        beams: int | None = None,
        max_length: int | None = None,
        start_ids: Sequence[int] | None = None,
        timestamps: bool = False,
        align: bool = False,
        align_heads: Sequence[tuple[int, int]] = ...,
        **input: Unpack[_Input],
    ) -> Answer: ...
    def masks(
        self,
        text: str | Sequence[str] | None = None,
        *,
        pad: Literal["left", "right"] = "right",
        wrong: Sequence[str] = ...,
        layer_index: int = 0,
        head: int = 0,
        row: int = 0,
        **input: Unpack[_Input],
    ) -> Answer: ...
    def explain(
        self,
        topic: str | None = None,
        *,
        at: Sequence[int] | None = None,
        every_term: bool = False,
        layer_index: int = 0,
        text: str | Sequence[str] | None = None,
        **input: Unpack[_Input],
    ) -> Answer: ...
    def doctor(
        self,
        pairs: _Pairs | None = None,
        *,
        rules: Sequence[str] = ...,
        repair_time: float = 60.0,
        text: str | Sequence[str] | None = None,
        **input: Unpack[_Input],
    ) -> Answer: ...
    def report(
        self,
        file: _Path,
        text: str | Sequence[str] | None = None,
        *,
        pairs: _Pairs | None = None,
        repair_time: float = 20.0,
        row: int = 0,
        **input: Unpack[_Input],
    ) -> None: ...

def open(
    model: _Path = ...,
    *,
    heads: int | None = None,
    wiring: Mapping[str, Any] | None = None,
    device: Literal["cpu", "reference"] = "cpu",
    threads: int | None = None,
    memory: int | None = None,
) -> Model: ...
def open_held(
    name: str,
    tensors: Sequence[_Held],
    documents: Sequence[tuple[str, bytes]],
    *,
    heads: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
) -> Model: ...
def diff_runs(
    a: _GivenRun,
    b: _GivenRun,
    *,
    model: str | None = None,
    heads: int | None = None,
    names: str = ...,
    tolerance: float | None = None,
    their_precision: Literal["f32", "tf32", "bf16", "fp16"] | None = None,
) -> Answer: ...
def audit(
    model: Model | _Path,
    out: _Path,
    *,
    pairs: _Path | None = None,
    text: _Path | None = None,
    audio: _Path | None = None,
    columns: Mapping[Literal["source", "target", "text"], str] = ...,
    keep: Sequence[str] = ...,
    by: str | None = None,
    measures: bool = True,
    alignments: bool = False,
    max_tokens: int | None = None,
    part_rows: int | None = None,
    shard: tuple[int, int] = ...,
    resume: bool = False,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Answer: ...
def merge_audits(shards: Sequence[_Path], out: _Path, *, by: str | None = None) -> Answer: ...
def read_audit(folder: _Path, *, by: str | None = None) -> Answer: ...
def compare_audits(a: _Path, b: _Path) -> Answer: ...
def check(
    *examples: _Path, text: str | None = None, trace: _Path | None = None, model: Model | _Path | None = None
) -> Answer: ...
def train(
    recipe: _Path,
    data: _Path | None = None,
    out: _Path | None = None,
    *,
    resume: bool = False,
    init: _Path | None = None,
    skip_bad: bool = False,
    seed: int | None = None,
    steps: int | None = None,
    dry_run: bool = False,
) -> Answer: ...
def topics() -> Answer: ...
def command(arguments: Sequence[str]) -> int: ...
def audit_stream(
    model: Model,
    batches: bytes,
    *,
    measures: bool,
    alignments: bool,
    max_tokens: int | None,
    source_language: str | None,
    target_language: str | None,
    folder: _Path,
) -> bytes: ...
def with_swaps_stream(batch: bytes, *, audio: bool) -> bytes: ...
def audited_schema_stream(schema: bytes, *, alignments: bool) -> bytes: ...
