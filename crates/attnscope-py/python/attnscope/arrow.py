"""The kernel of audits: a function from a record batch of Arrow to a record batch, for Ray, Spark and whatever else shares out rows.

It needs pyarrow. A row of the output belongs to the row of the input in its place, and its values do not depend on the rows beside it:
they are the same bits however the rows are shared out.

>>> import attnscope as at, pyarrow as pa
>>> table = pa.table({"source": ["A dog runs.", "A man sleeps."], "target": ["Ein Hund läuft.", "Ein Mann schläft."]})
>>> measured = at.arrow.audit_batch(at.open("demo"), at.arrow.with_swaps(table))
>>> [delta > 0 for delta in measured["delta_nll"].to_pylist()]
[True, True]
>>> head = measured["heads"][0].as_py()[0]
>>> head["attention"], head["layer"], head["head"]
('encoder.0.self_attn', 0, 0)
"""

from __future__ import annotations

import importlib
from os import PathLike, fspath
from typing import Any, TypeVar, cast

from attnscope import _core
from attnscope._errors import Error

Batch = TypeVar("Batch")
"""A ``pyarrow.RecordBatch`` or a ``pyarrow.Table``."""

TEXTS = ("source", "target", "swap_source")
"""Columns of strings that are read."""

NUMBERS = ("row", "swap_row", "line")
"""Columns of int64 that are read."""

__all__ = ["audit_batch", "audited_schema", "with_swaps"]


def audit_batch(
    model: _core.Model | str | PathLike[str],
    batch: Batch,
    *,
    measures: bool = True,
    alignments: bool = False,
    max_tokens: int | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    folder: str | PathLike[str] = "",
) -> Batch:
    """Measures every row of a ``pyarrow.RecordBatch`` or a ``pyarrow.Table``, and gives one of the same kind.

    It reads the columns ``target``, ``source`` (where the model reads one), ``swap_source`` (another row's source, which
    :func:`with_swaps` adds), ``swap_row``, ``row`` and ``line`` (int64); others are kept as they are. Columns of the output are those of an
    audit's parts. A row that cannot be measured has the reason in ``rejected``. ``measures=False`` leaves heads and layers out,
    ``alignments`` adds the source token of each target token, ``max_tokens`` cuts the sides, and names of recordings are relative to
    ``folder``. A model that is given by its name is opened once in each process; either is made ready at the first call, for all
    threads.
    """
    pa = _pyarrow()
    if not isinstance(batch, (pa.RecordBatch, pa.Table)):
        raise Error(
            f"expected a pyarrow.RecordBatch or a pyarrow.Table, found {type(batch).__name__}",
            "convert it: pyarrow.Table.from_pandas, or pyarrow.table of columns",
        )
    measured = _core.audit_stream(
        model if isinstance(model, _core.Model) else _opened(fspath(model)),
        _stream(pa, _decoded(pa, batch)),
        measures=measures,
        alignments=alignments,
        max_tokens=max_tokens,
        source_language=source_language,
        target_language=target_language,
        folder=folder,
    )
    with pa.ipc.open_stream(measured) as reader:
        return cast("Batch", reader.read_all() if isinstance(batch, pa.Table) else reader.read_next_batch())


def with_swaps(table: Batch, *, audio: bool = False) -> Batch:
    """The same table with the columns ``row``, ``swap_row`` and ``swap_source``: for each row, by its number, another row whose source
    it is scored with, too. Partners have about the same length and another source.

    Call it on the whole corpus before rows are shared out, so that results do not depend on how they are. ``audio`` says that
    sources are names of recordings, which are taken to be of one length.
    """
    pa = _pyarrow()
    is_table = isinstance(table, pa.Table)
    whole: Any = _decoded(pa, table)
    if is_table:
        # A table without rows may have no batch at all.
        whole = whole.combine_chunks() if whole.num_rows else _empty(pa, whole.schema)
    with pa.ipc.open_stream(_core.with_swaps_stream(_stream(pa, whole), audio=audio)) as reader:
        return cast("Batch", reader.read_all() if is_table else reader.read_next_batch())


def audited_schema(schema: Any, *, alignments: bool = False) -> Any:
    """The ``pyarrow.Schema`` of what :func:`audit_batch` gives for a batch with this one.

    >>> import attnscope as at, pyarrow as pa
    >>> given = pa.schema({"source": pa.string(), "target": pa.string(), "domain": pa.string()})
    >>> at.arrow.audited_schema(given).names[-3:]
    ['heads', 'layers', 'domain']
    """
    pa = _pyarrow()
    if not isinstance(schema, pa.Schema):
        raise Error(f"expected a pyarrow.Schema, found {type(schema).__name__}", "give the schema of a batch: batch.schema")
    schema = _decoded(pa, _empty(pa, schema)).schema
    _check_columns(pa, schema, alignments)
    return _audited(pa, schema, alignments)


def _audited(pa: Any, schema: Any, alignments: bool) -> Any:
    with pa.ipc.open_stream(_core.audited_schema_stream(_stream(pa, schema), alignments=alignments)) as reader:
        return reader.schema


def _check_columns(pa: Any, schema: Any, alignments: bool) -> None:
    """What audit_batch cannot read, it cannot read of no batch with this schema."""
    remedy = f"its columns are {', '.join(TEXTS)} (strings), {', '.join(NUMBERS)} (int64), and others with other names than the output has"
    if "target" not in schema.names:
        raise Error(f"schema: expected a column \"target\", found {', '.join(schema.names)}", remedy)
    own = set(_audited(pa, pa.schema([("source", pa.string()), ("target", pa.string())]), alignments).names)
    texts = [pa.string(), pa.large_string(), *([pa.string_view()] if hasattr(pa, "string_view") else [])]
    for field in schema:
        if field.name in TEXTS and field.type not in texts:
            raise Error(f"schema: expected \"{field.name}\" of type a string, found {field.type}", remedy)
        if field.name in NUMBERS and field.type != pa.int64():
            raise Error(f"schema: expected \"{field.name}\" of type int64, found {field.type}", remedy)
        if field.name in own.difference(TEXTS, NUMBERS):
            raise Error(f"schema: a column \"{field.name}\", which the output has for its own", remedy)


def _empty(pa: Any, schema: Any) -> Any:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _decoded(pa: Any, batch: Any) -> Any:
    """The batch, with texts as texts where Arrow keeps them as numbers of a dictionary."""
    for at, field in enumerate(batch.schema if hasattr(batch, "schema") else ()):
        if field.name in TEXTS and pa.types.is_dictionary(field.type):
            kind = field.type.value_type
            batch = batch.set_column(at, pa.field(field.name, kind, field.nullable), batch.column(at).cast(kind))
    return batch


def _opened(model: str) -> _core.Model:
    if model not in _known:
        _known[model] = _core.open(model)
    return _known[model]


_known: dict[str, _core.Model] = {}


def _pyarrow() -> Any:
    try:
        importlib.import_module("pyarrow.ipc")
        return importlib.import_module("pyarrow")
    except ImportError:
        raise Error("pyarrow is not installed", 'pip install "attnscope[arrow]"') from None


def _stream(pa: Any, value: Any) -> bytes:
    """A schema, a batch or a table in Arrow's IPC format."""
    is_schema = isinstance(value, pa.Schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value if is_schema else value.schema) as writer:
        if not is_schema:
            writer.write(value)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
