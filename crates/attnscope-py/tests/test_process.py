"""What other processes see: signals, forks, imports."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

from pathlib import Path

import pytest

import attnscope as at


def python(code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_control_c_ends_a_call() -> None:
    code = """
import attnscope as at
model = at.open("demo")
pairs = [(f"Two dogs play with {n} balls.", f"Zwei Hunde spielen mit {n} Bällen.") for n in range(2000)]
print("begun", flush=True)
try:
    model.doctor(pairs)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(model.generate("A dog.")["outputs"][0]["hypotheses"][0]["text"], flush=True)
"""
    process = python(code)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=30)
    # The model is as good as before.
    assert said.splitlines()[0] == "interrupted" and "Hund" in said, said + errors
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_training_that_is_interrupted_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    code = f"""
import attnscope as at
try:
    at.train("toy", out={str(tmp_path / "run")!r}, steps=400)
except KeyboardInterrupt:
    print("interrupted")
"""
    process = python(code)
    metrics = tmp_path / "run" / "metrics.jsonl"
    begun = time.monotonic()
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < begun + 30:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert said == "interrupted\n", errors
    made = json.loads(metrics.read_text().splitlines()[-1])["step"]
    assert made < 400
    # A run that nobody interrupted, and the one that was, to the same step.
    at.train("toy", out=tmp_path / "whole", steps=400)
    assert at.train("toy", out=tmp_path / "run", steps=400, resume=True)["ended"] == "finished"
    weights = [(tmp_path / run / "best" / "model.safetensors").read_bytes() for run in ("run", "whole")]
    assert weights[0] == weights[1]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_process_computes_too() -> None:
    code = """
import os, attnscope as at
model = at.open("demo")
expected = model.trace("A dog.", select="logits")["logits"].sum()
child = os.fork()
if child == 0:
    again = model.trace("A dog.", select="logits")["logits"].sum()
    os._exit(0 if again == expected else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    said, errors = python(code).communicate(timeout=60)
    assert said == "0\n", errors


def test_importing_it_imports_nothing_large() -> None:
    code = "import sys, attnscope; print(sorted({'numpy', 'torch', 'pandas', 'pyarrow', 'transformers'} & set(sys.modules)))"
    said, errors = python(code).communicate(timeout=60)
    assert said == "[]\n", errors
