"""What is compared, and what cannot be, is said."""

# transformers says little of its types.
# pyright: basic

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnscope as at

TEXT = dict(text="Two dogs play.", target="Zwei Hunde spielen.")


@pytest.fixture(scope="module")
def run() -> at.Trace:
    return at.open("demo").trace(**TEXT)  # type: ignore[arg-type]


def test_arrays_by_name_are_a_run(run: at.Trace) -> None:
    arrays: dict[str, Any] = {name: run[name] for name in ("decoder.out", "logits")}
    assert at.diff(run, arrays).ok
    at.assert_matches(arrays, run)
    wrong = {**arrays, "logits": arrays["logits"] * np.float32(2)}
    assert at.diff(run, wrong).ok is False
    odd: list[tuple[Any, str]] = [
        ({}, "no arrays"),
        ({3: arrays["logits"]}, "expected a name, found int"),
        ({"logits": "text"}, "logits: expected an array of numbers"),
        ({"logits": [[1], [2, 3]]}, "logits: expected an array of numbers"),
    ]
    for given, words in odd:
        with pytest.raises(at.Error, match=words):
            at.diff(run, given)


def test_arrays_of_every_type_are_read(run: at.Trace) -> None:
    for kind in ("<f4", ">f4", "<f8"):
        assert at.diff(run, {"logits": run["logits"].astype(kind)}).ok
    assert at.diff(run, {"tgt.ids": run["tgt.ids"].astype("<u4"), "logits": run["logits"].T.copy().T}).ok


def test_what_is_no_run_is_said(run: at.Trace) -> None:
    nothing: Any = 3
    with pytest.raises(at.Error, match="expected a run, found int") as e:
        at.diff(nothing, nothing)
    assert "at.capture" in e.value.remedy
    with pytest.raises(at.Error, match="expected a run, found ndarray"):
        at.assert_matches(np.zeros(3), run)  # type: ignore[arg-type]


def test_names_that_match_nothing_are_an_error(run: at.Trace) -> None:
    theirs = {"mine": run["logits"], "decoder.out": run["decoder.out"]}
    at.assert_matches(theirs, run, names={"mine": "logits"})
    for names in ({"mine": "logit"}, {"other": "logits"}, {"a.{n}": "decoder.{n}.out"}):
        with pytest.raises(at.Error, match="matches nothing"):
            at.diff(run, theirs, names=names)
    pairs: Any = [("mine", "logits")]
    with pytest.raises(at.Error, match="expected a dictionary of texts"):
        at.diff(run, theirs, names=pairs)


@pytest.fixture(scope="module")
def llama() -> Any:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(7)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    config = transformers.LlamaConfig(vocab_size=60, num_key_value_heads=2, max_position_embeddings=64, **sizes)
    return transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()


IDS = [[4, 5, 6, 7, 8, 2]]


@pytest.mark.torch
def test_a_match_of_almost_nothing_is_none(llama: Any) -> None:
    torch = pytest.importorskip("torch")
    ours = at.from_transformers(llama).trace(ids=IDS)
    with at.capture(llama, max_bytes=2000) as theirs, torch.no_grad():
        llama(torch.tensor(IDS))
    assert at.diff(ours, theirs).ok and theirs.lost
    with pytest.raises(AssertionError, match=rf"{len(theirs.lost)} of {len(theirs.lost) + len(theirs)} tensors"):
        at.assert_matches(theirs, ours)
    at.assert_matches(theirs, ours, partial=True)
    # The cache is no tensor that a comparison could have read.
    with at.capture(llama) as theirs, torch.no_grad():
        llama(torch.tensor(IDS), use_cache=True)
    assert theirs.not_kept and not theirs.lost
    at.assert_matches(theirs, ours)


@pytest.mark.torch
def test_a_bug_after_the_first_step_does_not_pass(llama: Any) -> None:
    torch = pytest.importorskip("torch")
    model, ids = at.from_transformers(llama), torch.tensor(IDS)
    calls = []

    def broken(module: Any, given: Any, output: Any) -> Any:
        calls.append(1)
        return output * 2 if len(calls) > 1 else output

    hook = llama.model.layers[1].mlp.register_forward_hook(broken)
    try:
        with at.capture(llama) as theirs, torch.no_grad():
            for _ in range(3):
                ids = torch.cat([ids, llama(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    finally:
        hook.remove()
    first = model.trace(ids=IDS)
    for compare in (at.diff, at.assert_matches):
        with pytest.raises(at.Error, match="3 calls of the model") as e:
            compare(first, theirs)
        assert "one forward pass" in e.value.remedy and "theirs.step(1)" in e.value.remedy
    at.assert_matches(theirs.step(1), first)
    last = at.diff(model.trace(ids=ids[:, :-1]), theirs.step(-1))
    assert last.ok is False and last["first_divergence"]["node"].startswith("decoder.1."), last


@pytest.mark.torch
def test_a_batch_that_is_padded_on_the_left_is_refused(llama: Any) -> None:
    torch = pytest.importorskip("torch")
    model = at.from_transformers(llama)
    left = torch.tensor([[5, 6, 7, 8, 9, 2], [1, 1, 5, 6, 7, 2]])
    mask = (left != 1).long()
    for args, kwargs in [((left,), {"attention_mask": mask}), ((left, mask), {})]:
        with at.capture(llama) as theirs, torch.no_grad():
            llama(*args, **kwargs)
        with pytest.raises(at.Error, match="padded on the left") as e:
            at.diff(model.trace(ids=left, mask=mask), theirs)
        assert "padding_side" in e.value.remedy
        assert at.diff(theirs, theirs).ok  # Both have the same positions.
    right = torch.tensor([[5, 6, 7, 8, 9, 2], [5, 6, 7, 2, 1, 1]])
    with at.capture(llama) as theirs, torch.no_grad():
        llama(right, attention_mask=(right != 1).long())
    at.diff(model.trace(ids=right, mask=(right != 1).long()), theirs)


@pytest.mark.torch
def test_a_tokenizer_is_not_its_name(llama: Any) -> None:
    with pytest.raises(at.Error, match="expected a tokenizer, found str"):
        at.from_transformers(llama, "tok")
