"""Worked examples, saved traces, training, and the command line that is installed with the package."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import attnscope as at

HALVES = "[given]\nscores = [[0, 0]]\n[claims]\nweights = [[0.5, {}]]\n"


def test_worked_examples_are_judged(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.toml", tmp_path / "wrong.toml"
    right.write_text(HALVES.format("0.5"))
    wrong.write_text(HALVES.format("0.6"))
    assert at.check(right).ok is True
    both = at.check(right, wrong)
    assert both.ok is False and [one["file"] for one in both["examples"]] == [str(right), str(wrong)]
    assert at.check(text=HALVES.format("0.5")).ok is True
    with pytest.raises(at.Error, match="nothing to check"):
        at.check()
    with pytest.raises(at.Error, match="none.toml: No such file") as e:
        at.check(tmp_path / "none.toml")
    assert "does not exist" in e.value.remedy
    right.write_text("[given]\nscores = [[0, 0]\n")
    with pytest.raises(at.Error, match=r"right.toml:\d"):
        at.check(right)


def test_a_saved_trace_is_computed_again(tmp_path: Path) -> None:
    at.open("demo").trace("A dog.", target="Ein Hund.").save(tmp_path / "run")
    again = at.check(trace=tmp_path / "run")
    assert again.ok is True and again.name == "check-trace"
    tensors = tmp_path / "run" / "trace.safetensors"
    data = bytearray(tensors.read_bytes())
    # The last tensor of the file: other values than its inputs give.
    data[-4096:] = bytes(4096)
    tensors.write_bytes(data)
    assert at.check(trace=tmp_path / "run").ok is False
    with pytest.raises(at.Error, match="only one of them"):
        at.check("a.toml", trace=tmp_path / "run")


def test_a_recipe_is_trained(tmp_path: Path) -> None:
    whole = at.train("toy", out=tmp_path / "whole", steps=6)
    assert whole["steps"] == 6 and whole["ended"] == "finished"
    assert "data:image/svg+xml" in whole._repr_html_()
    opened = at.open(tmp_path / "whole")
    assert opened.trace("I love cats", select="logits")["logits"].ndim == 3
    with pytest.raises(at.Error) as e:
        at.train("toy", out=tmp_path / "whole", steps=6)
    assert "resume=True" in e.value.remedy
    plan = at.train("toy", steps=6, dry_run=True)
    assert plan.name == "train-plan" and plan["steps"] == 6
    with pytest.raises(at.Error, match="no folder for the run"):
        at.train("toy")
    with pytest.raises(at.Error, match="toi"):
        at.train("toi", out=tmp_path / "no")


def test_topics_can_be_asked() -> None:
    assert "softmax" in repr(at.topics())
    with pytest.raises(at.Error) as e:
        at.open("demo").explain("sofmax")
    assert "softmax" in e.value.remedy


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sysconfig.get_path("scripts")) / ("attnscope.exe" if sys.platform == "win32" else "attnscope")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)


def test_the_command_line_is_installed(tmp_path: Path) -> None:
    done = command("summary", "demo", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == at.open("demo").summary().to_dict()
    assert command("--version").stdout.startswith("attnscope ")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(HALVES.format("0.6"))
    assert command("check", str(wrong)).returncode == 1
    unknown = command("summary", "--bach", "2")
    assert unknown.returncode == 2 and "`attnscope summary --help` lists its options" in unknown.stderr
