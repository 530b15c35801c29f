"""A model, its runs and its answers, with numpy alone."""

from __future__ import annotations

import collections.abc
import json
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import attnscope as at

TEXT, TARGET = "Two dogs play in the snow.", "Zwei Hunde spielen im Schnee."


@pytest.fixture(scope="module")
def model() -> at.Model:
    return at.open("demo")


@pytest.fixture(scope="module")
def run(model: at.Model) -> at.Trace:
    return model.trace(TEXT, target=TARGET)


def test_a_run_is_a_mapping_of_arrays(run: at.Trace) -> None:
    assert isinstance(run, collections.abc.Mapping)
    assert len(run) == len(list(run)) == len(dict(run.items())) == 133
    assert "logits" in run and "logit" not in run
    assert not run.__contains__(3)
    assert run.get("logit") is None and run.get("logit", 7) == 7
    logits = run["logits"]
    assert logits.dtype == np.float32 and logits.shape == (1, 7, 4000)
    assert run.dims("logits") == ["B", "T", "V"]
    with pytest.raises(KeyError, match="nearest are logits"):
        run["logit"]


def test_what_follows_from_the_tensors(run: at.Trace) -> None:
    weights = run["decoder.0.cross_attn.weights"]
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    scores = run["decoder.0.cross_attn.scores"]
    q, k = run["decoder.0.cross_attn.q_heads"], run["decoder.0.cross_attn.k_heads"]
    np.testing.assert_allclose(scores, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), atol=1e-4)


def test_arrays_are_read_only_and_share_the_memory_of_the_run(model: at.Model) -> None:
    run = model.trace(TEXT, select="logits")
    one, two = run["logits"], run["logits"]
    assert not one.flags.writeable and np.shares_memory(one, two)
    with pytest.raises(ValueError):
        one[0, 0, 0] = 1
    before = one.copy()
    del run, two
    model.trace(["Something else."] * 8)  # Would overwrite what was given back.
    np.testing.assert_array_equal(one, before)


def test_another_device_gives_doubles(run: at.Trace) -> None:
    exact = at.open("demo", device="reference").trace(TEXT, target=TARGET, select="logits")["logits"]
    assert exact.dtype == np.float64
    np.testing.assert_allclose(run["logits"], exact, atol=1e-3)


def test_ids_are_given_as_lists_arrays_or_padded_batches(model: at.Model) -> None:
    rows = [[266, 974, 273, 16, 1], [7, 1]]
    plain = model.trace(ids=rows, target_ids=[[0, 5, 6], [0, 5, 6]], select="decoder.out")["decoder.out"]
    padded = np.array([[266, 974, 273, 16, 1], [7, 1, 0, 0, 0]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    as_array = model.trace(ids=padded, mask=mask, target_ids=np.array([[0, 5, 6]] * 2), select="decoder.out")
    np.testing.assert_array_equal(plain, as_array["decoder.out"])
    with pytest.raises(at.Error, match="found padding inside it"):
        model.trace(ids=padded[:1], mask=[[1, 1, 0, 1, 1]])
    with pytest.raises(at.Error, match="found -100"):
        model.trace(ids=[[-100]])
    with pytest.raises(at.Error, match="only one of them"):
        model.trace(TEXT, ids=rows)
    with pytest.raises(TypeError, match="is it target_ids"):
        model.trace(TEXT, targetids=rows)  # type: ignore[call-arg]


def test_an_argument_of_another_type_is_told_in_words(model: at.Model) -> None:
    with pytest.raises(TypeError, match="expected a text or a list of texts, found int"):
        model.trace(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a file, or a list of pairs of a source and a target, found int"):
        model.doctor(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a Model, or what `open` takes, found int"):
        at.audit(3, "out")  # type: ignore[arg-type]


def test_gradients_stand_beside_their_tensors(model: at.Model) -> None:
    run = model.trace(TEXT, target=TARGET, select="decoder.out", gradients=True)
    assert list(run) == ["decoder.out", "grad:decoder.out"]
    assert run["grad:decoder.out"].shape == run["decoder.out"].shape


def test_answers_show_themselves(model: at.Model, run: at.Trace) -> None:
    answers: list[at.Answer] = [
        model.inspect(tensors=True),
        model.summary(),
        model.flow(),
        run,
        run.stats(),
        run.heads(),
        model.generate(TEXT, align=True),
        model.masks(TEXT, wrong=["no-causal"]),
        model.explain("heads"),
        model.explain("cross_attn.weights", at=(0, 1, 2, 3)),
        model.doctor(rules=["dead-head"]),
    ]
    for answer in answers:
        assert answer.name and len(repr(answer).splitlines()) > 1
        assert max(map(len, answer.text(width=60).splitlines())) <= 100
        html = answer._repr_html_()
        assert html.startswith("<div>") and html.endswith("</div>") and "<script" not in html
        assert answer.to_dict() == json.loads(answer.to_json())
        assert answer.to_dict()["schema"] == 1


def test_answers_are_pickled_with_their_forms(model: at.Model, run: at.Trace) -> None:
    for answer in [model.explain("heads"), model.masks(TEXT), run.stats(), model.summary(), run]:
        again = pickle.loads(pickle.dumps(answer))
        assert repr(again) == repr(answer) and again.to_json() == answer.to_json()
        assert again._repr_html_() == answer._repr_html_() and again.ok == answer.ok
        if isinstance(answer, at.Table):
            assert again.rows() == answer.rows()


def test_a_run_is_saved_as_every_command_reads_it(run: at.Trace, tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    document = json.loads((tmp_path / "run" / "trace.json").read_text())
    assert document["model"] == "demo" and all(node["saved"] for node in document["nodes"])
    with pytest.raises(at.Error, match="found a folder") as e:
        run.save(tmp_path / "run")
    assert "does not exist yet" in e.value.remedy


def test_a_report_is_one_file(model: at.Model, tmp_path: Path) -> None:
    model.report(tmp_path / "report.html", TEXT, repair_time=0)
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_errors_say_what_to_do_in_python(tmp_path: Path) -> None:
    with pytest.raises(at.Error) as e:
        at.open(tmp_path)
    assert str(tmp_path) in str(e.value) and "give a folder" in e.value.remedy
    with pytest.raises(at.Error, match="device='gpu': expected one of cpu, reference"):
        at.open("demo", device="gpu")  # type: ignore[arg-type]
    with pytest.raises(at.Error, match="row=3:"):
        at.open("demo").trace(TEXT, row=3)
    again = pickle.loads(pickle.dumps(e.value))
    assert (again.error, again.remedy) == (e.value.error, e.value.remedy)
    with pytest.raises(at.OutOfMemory) as full:
        at.open("demo", memory=1 << 20).trace(TEXT)
    assert isinstance(full.value, MemoryError) and "memory=BYTES" in full.value.remedy


def test_no_remedy_speaks_of_flags() -> None:
    words = Path(__file__).parents[1] / "src" / "remedies.rs"
    flags = re.findall(r"(?<!attnscope trace )--\w+", words.read_text())
    assert not flags, "Python has no flags"


def test_threads_share_a_model_and_a_run(model: at.Model, run: at.Trace) -> None:
    expected = run["logits"]

    def work(_: int) -> bool:
        again = model.trace(TEXT, target=TARGET, select="logits")["logits"]
        return bool((again == expected).all() and (run["logits"] == expected).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))


def test_other_threads_run_while_it_computes(model: at.Model) -> None:
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.wait(0.001):
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    model.trace([TEXT] * 64, target=[TARGET] * 64, select="logits")
    stop.set()
    thread.join()
    assert counted[0] > 5
