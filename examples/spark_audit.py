"""A corpus measured on Spark: spark-submit examples/spark_audit.py MODEL PAIRS OUT

PAIRS is a Parquet file with the columns `source` and `target`, or lines with a tab between them. OUT is a folder that every node can
write to; it gets the planned corpus and a table with the columns that `attnscope audit` writes. Retries, and what is run where, are
Spark's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import attnscope as at


def corpus(file: Path) -> pa.Table:
    if file.suffix == ".parquet":
        return pq.read_table(file)
    tabs = pa.csv.ParseOptions(delimiter="\t", quote_char=False)
    return pa.csv.read_csv(file, pa.csv.ReadOptions(column_names=["source", "target"]), tabs)


def main(model: str, pairs: Path, out: Path) -> None:
    out.mkdir(parents=True)
    # Partners are fixed before rows are shared out, so that no value depends on how they are.
    plan = out / "plan.parquet"
    planned = at.arrow.with_swaps(corpus(pairs))
    pq.write_table(planned, plan)

    def audit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import attnscope as at

        # A model that is given by its name is opened once in each worker.
        for batch in batches:
            yield at.arrow.audit_batch(model, batch)

    spark = SparkSession.builder.appName("attnscope audit").getOrCreate()
    columns = from_arrow_schema(at.arrow.audited_schema(planned.schema))
    tasks = 4 * spark.sparkContext.defaultParallelism
    rows = spark.read.parquet(str(plan)).repartition(tasks)
    rows.mapInArrow(audit, columns).write.parquet(str(out / "measured"))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
