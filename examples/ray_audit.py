"""A corpus measured on Ray: python examples/ray_audit.py MODEL PAIRS OUT

PAIRS is a Parquet file with the columns `source` and `target`, or lines with a tab between them. OUT is a folder that every node can
write to; it gets the planned corpus and a table with the columns that `attnscope audit` writes. Retries, autoscaling and what is run
where are Ray's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import ray
import ray.data

import attnscope as at

ROWS = 256
"""Rows of a batch: what is done again where a worker is lost."""


class Auditor:
    """A worker: the model is loaded once."""

    def __init__(self, model: str) -> None:
        # Workers are as many as there are cores.
        self.model = at.open(model, threads=1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        return at.arrow.audit_batch(self.model, batch)


def corpus(file: Path) -> pa.Table:
    if file.suffix == ".parquet":
        return pq.read_table(file)
    tabs = pa.csv.ParseOptions(delimiter="\t", quote_char=False)
    return pa.csv.read_csv(file, pa.csv.ReadOptions(column_names=["source", "target"]), tabs)


def main(model: str, pairs: Path, out: Path) -> None:
    out.mkdir(parents=True)
    # Partners are fixed before rows are shared out, so that no value depends on how they are.
    plan = out / "plan.parquet"
    pq.write_table(at.arrow.with_swaps(corpus(pairs)), plan, row_group_size=ROWS)
    ray.init(ignore_reinit_error=True)
    workers = max(1, int(ray.cluster_resources()["CPU"]) - 1)
    measured = ray.data.read_parquet(str(plan), override_num_blocks=4 * workers).map_batches(
        Auditor, fn_constructor_args=(model,), batch_format="pyarrow", batch_size=ROWS, concurrency=workers
    )
    measured.write_parquet(str(out / "measured"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
