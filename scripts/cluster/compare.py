"""Runs the examples of clusters on this machine, ends a worker of each, and compares their rows with those of `attnscope audit`.

`scripts/check-cluster` calls it with a folder for what is written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import attnscope as at

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
COPIES = 10
"""Of the demo's pairs, each with words of its own: enough that a worker can be ended in the middle."""
BEGUN = 0.2
"""Seconds of computing after which a worker is ended."""
LIMIT = 240
"""Seconds of one run."""


def corpus(folder: Path) -> Path:
    pairs = (ROOT / "crates/attnscope/data/demo-pairs.tsv").read_text("utf-8").splitlines()
    lines = [f"{n} {pair}" for n in range(COPIES) for pair in pairs]
    file = folder / "pairs.tsv"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def rows(files: list[Path]) -> list[dict[str, Any]]:
    """Rows in the order of the corpus. A line of a file is known only to who reads the file."""
    table = pa.concat_tables([pq.read_table(file) for file in files], promote_options="permissive").sort_by("row")
    return table.drop_columns(["line"]).to_pylist()


def run(name: str, command: list[str], out: Path, is_worker: Callable[[psutil.Process], bool]) -> float:
    """Runs an example. Ends one of its workers once that computes; how long it took."""
    log = out.with_suffix(".log")
    begun, ended = time.monotonic(), None
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        while process.poll() is None:
            if time.monotonic() > begun + LIMIT:
                process.kill()
                raise SystemExit(f"{name}: not done after {LIMIT} s; {log} has what it said")
            if ended is None:
                ended = end_worker(psutil.Process(process.pid), is_worker)
            time.sleep(0.05)
    if process.returncode != 0:
        raise SystemExit(f"{name}: exit code {process.returncode}; {log} has what it said\n{log.read_text()[-4000:]}")
    if ended is None:
        raise SystemExit(f"{name}: no worker was found that could be ended; it proves nothing of retries")
    print(f"{name}: ended worker {ended} in the middle", flush=True)
    return time.monotonic() - begun


def end_worker(example: psutil.Process, is_worker: Callable[[psutil.Process], bool]) -> int | None:
    """Ends a worker that has computed for a while: the model is loaded by then."""
    for child in example.children(recursive=True):
        try:
            if is_worker(child) and uses_model(child) and child.cpu_times().user > BEGUN:
                child.kill()
                return child.pid
        except psutil.Error:
            pass  # Processes come and go.
    return None


def uses_model(process: psutil.Process) -> bool:
    return any("attnscope/_core" in mapped.path for mapped in process.memory_maps())


def main(folder: Path) -> None:
    pairs = corpus(folder)
    begun = time.monotonic()
    at.audit("demo", folder / "alone", pairs=pairs)
    print(f"attnscope audit: {time.monotonic() - begun:.0f} s", flush=True)
    expected = rows(sorted((folder / "alone").glob("part-*.parquet")))
    assert len(expected) == COPIES * 200 and all(row["nll"] > 0 for row in expected)
    examples = {
        "ray": ([sys.executable], lambda child: "Auditor" in " ".join(child.cmdline())),
        "spark": (
            [str(BIN / "spark-submit"), "--master", "local-cluster[2,1,1024]"],
            lambda child: "pyspark.daemon" in " ".join(child.cmdline()),
        ),
    }
    for name, (program, is_worker) in examples.items():
        out = folder / name
        script = str(ROOT / f"examples/{name}_audit.py")
        seconds = run(name, [*program, script, "demo", str(pairs), str(out)], out, is_worker)
        found = rows(sorted((out / "measured").glob("*.parquet")))
        assert len(found) == len(expected), f"{name}: {len(found)} rows, expected {len(expected)}"
        for ours, theirs in zip(expected, found, strict=True):
            different = [column for column in ours if ours[column] != theirs.get(column)]
            assert not different and ours.keys() == theirs.keys(), f"{name}: row {ours['row']}: {different}"
        print(f"{name}: {len(found)} rows, none lost, none doubled, the same bits; {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
