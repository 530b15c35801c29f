"""Corpora: audits, their shards, and the kernel from a record batch to a record batch."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import attnscope as at

# pyarrow says little of its types.
pa: Any = import_module("pyarrow")
pq: Any = import_module("pyarrow.parquet")

NOUNS = ["dog:Hund", "man:Mann", "boy:Junge", "horse:Pferd", "child:Kind"]
PAIRS = [
    (f"A {noun.split(':')[0]} {verb}.", f"Ein {noun.split(':')[1]} {wort}.")
    for noun in NOUNS
    for verb, wort in [("runs", "läuft"), ("sleeps on the street", "schläft auf der Straße"), ("plays", "spielt")]
]


@pytest.fixture(scope="module")
def model() -> at.Model:
    return at.open("demo")


def table(**more: list[str]) -> Any:
    sides = {"source": [source for source, _ in PAIRS], "target": [target for _, target in PAIRS]}
    return pa.table({**sides, **more})


def written(folder: Path, name: str = "pairs.tsv") -> Path:
    file = folder / name
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), "utf-8")
    return file


def parts(folder: Path) -> Any:
    """What an audit wrote, in the order of the corpus."""
    return pa.concat_tables(pq.read_table(part) for part in sorted(folder.glob("part-*.parquet"))).sort_by("row")


def test_an_audit_is_an_answer_and_a_folder_of_parquet(model: at.Model, tmp_path: Path) -> None:
    answer = at.audit(model, tmp_path / "out", pairs=written(tmp_path), part_rows=4, alignments=True)
    assert answer.name == "audit" and answer["summary"]["sentences"] == len(PAIRS) == 15
    assert answer["parts"] == 4 and "15 sentences" in repr(answer)
    rows = parts(tmp_path / "out").to_pylist()
    assert [(row["source"], row["target"]) for row in rows] == PAIRS
    for row in rows:
        assert row["delta_nll"] == (row["nll_swapped"] - row["nll"]) / row["target_tokens"]
        assert len(row["heads"]) == 24 and len(row["alignments"]) == row["target_tokens"]
    mean = sum(row["nll"] / row["target_tokens"] for row in rows) / 15
    assert abs(answer["summary"]["nll"][0]["distribution"]["mean"] - mean) < 1e-9
    again = at.read_audit(tmp_path / "out")
    assert again["summary"] == answer["summary"] and again["run"] is None


def test_shards_are_joined_and_audits_compared(model: at.Model, tmp_path: Path) -> None:
    corpus = written(tmp_path)
    for i in range(2):
        at.audit(model, tmp_path / f"s{i}", pairs=corpus, part_rows=4, shard=(i, 2))
    merged = at.merge_audits([tmp_path / "s0", tmp_path / "s1"], tmp_path / "all")
    assert merged["summary"]["sentences"] == 15
    at.audit(model, tmp_path / "whole", pairs=corpus)
    assert parts(tmp_path / "all").equals(parts(tmp_path / "whole"))
    compared = at.compare_audits(tmp_path / "all", tmp_path / "whole")
    assert compared["paired"]["mean"] == 0 and compared["paired"]["sentences"] == 15
    with pytest.raises(at.Error, match="parts are missing") as e:
        at.merge_audits([tmp_path / "s0"], tmp_path / "no")
    assert "resume=True" in e.value.remedy


def test_columns_are_named_kept_and_summed_up(model: at.Model, tmp_path: Path) -> None:
    corpus = tmp_path / "pairs.parquet"
    columns = {"en": table()["source"], "de": table()["target"], "domain": ["a", "b", "a"] * 5}
    pq.write_table(pa.table(columns), corpus)
    with pytest.raises(at.Error, match="expected a column \"source\", found \"en\", \"de\", \"domain\"") as e:
        at.audit(model, tmp_path / "out", pairs=corpus)
    assert "columns={'source': NAME" in e.value.remedy and not (tmp_path / "out").exists()
    named = {"source": "en", "target": "de"}
    answer = at.audit(model, tmp_path / "out", pairs=corpus, columns=named, keep=["domain"], by="domain")  # type: ignore[arg-type]
    assert [(group["value"], group["sentences"]) for group in answer["summary"]["groups"]] == [("a", 10), ("b", 5)]
    with pytest.raises(at.Error, match="columns='sourse': expected one of source, target, text"):
        at.audit(model, tmp_path / "no", pairs=corpus, columns={"sourse": "en"})  # type: ignore[dict-item]


def test_what_an_audit_cannot_do_is_said_in_python(model: at.Model, tmp_path: Path) -> None:
    corpus = written(tmp_path)
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({}, "there is no corpus", "pairs=FILE, text=FILE or audio=FILE"),
        ({"pairs": corpus, "text": corpus}, "only one of them", "leave the others out"),
        ({"text": corpus}, "the model reads pairs", "pairs=FILE"),
        ({"pairs": corpus, "shard": (4, 4)}, "expected a number below 4", "counted from 0"),
        ({"pairs": corpus, "part_rows": 0}, "part_rows=0", "leave it out"),
        ({"pairs": corpus, "by": "domain"}, "which is not kept", "keep that column"),
        ({"pairs": tmp_path / "none.tsv"}, "none.tsv: No such file", "read"),
    ]
    for given, error, remedy in cases:
        with pytest.raises(at.Error, match=error) as e:
            at.audit(model, tmp_path / "out", **given)
        assert remedy in e.value.remedy, e.value.remedy
        assert not (tmp_path / "out").exists()
    at.audit(model, tmp_path / "out", pairs=corpus)
    with pytest.raises(at.Error, match="holds an audit already") as e:
        at.audit(model, tmp_path / "out", pairs=corpus)
    assert "resume=True" in e.value.remedy
    cut = tmp_path / "cut.tsv.gz"
    cut.write_bytes(gzip.compress(corpus.read_bytes())[:-20])
    with pytest.raises(at.Error, match="found one that is cut off"):
        at.audit(model, tmp_path / "cut", pairs=cut)


def test_rows_that_cannot_be_measured_are_counted(model: at.Model, tmp_path: Path) -> None:
    corpus = tmp_path / "pairs.jsonl"
    rows: list[dict[str, Any]] = [
        {"source": "A dog.", "target": "Ein Hund."},
        {"source": None, "target": "Ein Hund."},
        {"source": "A dog."},
        {"source": "A dog.", "target": 3},
        {"source": "A cat.", "target": "Eine Katze."},
    ]
    corpus.write_text("\n".join(map(json.dumps, rows)))
    answer = at.audit(model, tmp_path / "out", pairs=corpus)
    assert (answer["summary"]["sentences"], answer["summary"]["rejected"]) == (2, 3)
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["line"] for reject in rejects] == [2, 3, 4]
    assert rejects[0]["file"] == str(corpus) and "found null" in rejects[0]["reason"]


def test_the_kernel_gives_what_an_audit_writes(model: at.Model, tmp_path: Path) -> None:
    at.audit(model, tmp_path / "out", pairs=written(tmp_path))
    expected = parts(tmp_path / "out").drop_columns(["line"])
    planned = at.arrow.with_swaps(table())
    # However the rows are shared out, in whichever order.
    pieces = [at.arrow.audit_batch(model, planned.slice(at_row, 4)) for at_row in (12, 4, 0, 8)]
    found = pa.concat_tables(pieces).sort_by("row").drop_columns(["line"])
    assert found.equals(expected)
    assert found.schema.names == [name for name in at.arrow.audited_schema(planned.schema).names if name != "line"]


def test_the_kernel_keeps_kinds_columns_and_empty_batches(model: at.Model) -> None:
    planned = at.arrow.with_swaps(table(domain=["news"] * 15))
    batch = planned.to_batches()[0]
    measured = at.arrow.audit_batch(model, batch, measures=False, alignments=True)
    assert isinstance(measured, pa.RecordBatch) and measured["domain"].to_pylist() == ["news"] * 15
    assert measured["heads"].null_count == 15 and measured["alignments"].null_count == 0
    assert measured.schema.equals(at.arrow.audited_schema(batch.schema, alignments=True))
    for empty in (planned.slice(0, 0), planned.schema.empty_table()):
        assert at.arrow.audit_batch(model, empty).schema.equals(at.arrow.audited_schema(planned.schema))
    large = planned.cast(pa.schema([
        field.with_type(pa.large_string()) if field.type == pa.string() else field for field in planned.schema
    ]))
    assert at.arrow.audit_batch(model, large)["nll"].equals(at.arrow.audit_batch(model, planned)["nll"])
    assert at.arrow.with_swaps(large.drop_columns(["swap_source"]))["swap_row"].equals(planned["swap_row"])


def test_tables_without_rows_and_texts_of_a_dictionary_are_read(model: at.Model) -> None:
    for empty in (table().slice(0, 0), table().schema.empty_table(), table().slice(0, 0).combine_chunks()):
        planned = at.arrow.with_swaps(empty)
        assert planned.num_rows == 0 and planned.schema.equals(at.arrow.with_swaps(table()).schema)
    coded = pa.table({name: table()[name].dictionary_encode() for name in ("source", "target")})
    for given in (coded, coded.to_batches()[0]):
        expected = at.arrow.audit_batch(model, at.arrow.with_swaps(table()))
        found = at.arrow.audit_batch(model, at.arrow.with_swaps(given))
        assert type(found) is type(given)
        assert found["nll"].to_pylist() == expected["nll"].to_pylist()
        assert found.schema.equals(at.arrow.audited_schema(coded.schema))


def test_a_schema_that_no_batch_can_have_is_refused(model: at.Model) -> None:
    planned = at.arrow.with_swaps(table())
    odd = {
        "target": planned.drop_columns(["target"]),
        "nll": planned.append_column("nll", pa.array(["1"] * 15)),
        "row": planned.set_column(planned.schema.get_field_index("row"), "row", planned["row"].cast("int32")),
        "source": planned.set_column(0, "source", planned["row"]),
    }
    for column, given in odd.items():
        with pytest.raises(at.Error, match=f"\"{column}\""):
            at.arrow.audit_batch(model, given)
        with pytest.raises(at.Error, match=f"\"{column}\""):
            at.arrow.audited_schema(given.schema)
    with pytest.raises(at.Error, match="source, target, swap_source"):
        at.arrow.audited_schema(odd["nll"].schema)
    with pytest.raises(at.Error, match="expected a pyarrow.Schema, found list"):
        at.arrow.audited_schema([])


def test_what_the_kernel_cannot_read_is_said(model: at.Model) -> None:
    with pytest.raises(at.Error, match="expected a column \"source\", found target"):
        at.arrow.audit_batch(model, table().drop_columns(["source"]))
    with pytest.raises(at.Error, match="expected \"target\" of type a string, found Int64"):
        at.arrow.audit_batch(model, table().set_column(1, "target", pa.array(range(15))))
    with pytest.raises(at.Error, match="found list"):
        at.arrow.audit_batch(model, [1])
    with pytest.raises(at.Error, match="a column \"nll\", which the output has for its own"):
        at.arrow.audit_batch(model, table(nll=["1"] * 15))
    missing = at.arrow.audit_batch(model, pa.table({"source": ["A dog.", "A cat."], "target": ["Ein Hund.", None]}))
    assert missing["rejected"].to_pylist() == [None, "expected a target, found an empty one"]
    assert missing["nll"].is_valid().to_pylist() == [True, False]


def test_threads_share_the_kernel(tmp_path: Path) -> None:
    model, planned = at.open("demo", threads=1), at.arrow.with_swaps(table())
    expected = at.arrow.audit_batch(at.open("demo"), planned)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(at.arrow.audit_batch, [model] * 8, [planned] * 8))
    assert all(one.equals(expected) for one in found)
