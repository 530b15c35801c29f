"""Live models of transformers: tensors equal Hugging Face's, a planted bug is found."""

# transformers says little of its types.
# pyright: basic

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnscope as at

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.torch

IDS = [[4, 5, 6, 7, 8, 2], [9, 10, 11, 12, 13, 2]]
TARGET = [[3, 20, 21, 22, 23], [3, 24, 25, 26, 27]]


def two_stacks(config: Any, **sizes: Any) -> Any:
    return config(
        vocab_size=60,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=3,
        forced_eos_token_id=2,
        **sizes,
    )


def marian() -> Any:
    return transformers.MarianMTModel, two_stacks(transformers.MarianConfig, max_position_embeddings=40)


def bart() -> Any:
    return transformers.BartForConditionalGeneration, two_stacks(transformers.BartConfig)


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=60,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration, config


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=60, n_positions=40, n_embd=32, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel, config


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return transformers.LlamaForCausalLM, config


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    return transformers.BertForMaskedLM, config


def whisper() -> Any:
    sizes = dict(num_mel_bins=8, max_source_positions=30, max_target_positions=20)
    return transformers.WhisperForConditionalGeneration, two_stacks(transformers.WhisperConfig, **sizes)


MADE = [marian, bart, t5, gpt2, llama, bert, whisper]


def made(make: Any) -> Any:
    torch.manual_seed(7)
    kind, config = make()
    # Attention in plain steps: the fused one returns no weights.
    return kind._from_config(config, attn_implementation="eager").eval()


def batch(model: Any) -> dict[str, Any]:
    if model.config.model_type == "whisper":
        frames = torch.randn(2, 8, 60, generator=torch.Generator().manual_seed(3))
        return {"input_features": frames, "decoder_input_ids": torch.tensor(TARGET)}
    given = {"input_ids": torch.tensor(IDS)}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.tensor(TARGET)
    return given


def traced(model: at.Model, given: dict[str, Any]) -> at.Trace:
    if "input_features" in given:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "features.npy"
            np.save(file, given["input_features"].numpy())
            return model.trace(features=file, target_ids=given["decoder_input_ids"])
    return model.trace(ids=given["input_ids"], target_ids=given.get("decoder_input_ids"))


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_tensors_equal_those_of_transformers(make: Any) -> None:
    theirs = made(make)
    given = batch(theirs)
    with torch.no_grad():
        out = theirs(**given, output_attentions=True)
    ours = traced(at.from_transformers(theirs), given)
    np.testing.assert_allclose(ours["logits"], out.logits.numpy(), atol=2e-5)
    attentions = {
        "encoder.{}.self_attn.weights": out.get("encoder_attentions"),
        "decoder.{}.cross_attn.weights": out.get("cross_attentions"),
        "decoder.{}.self_attn.weights": out.get("decoder_attentions") or out.get("attentions"),
    }
    compared = 0
    for pattern, layers in attentions.items():
        for n, weights in enumerate(layers or ()):
            path = pattern.format(n)
            path = path if path in ours else path.replace("decoder", "encoder")
            np.testing.assert_allclose(ours[path], weights.numpy(), atol=2e-6)
            compared += 1
    assert compared == (6 if theirs.config.is_encoder_decoder else 2)


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_a_capture_of_a_right_model_matches(make: Any) -> None:
    theirs = made(make)
    given = batch(theirs)
    with at.capture(theirs) as captured, torch.no_grad():
        theirs(**given)
    difference = at.diff(traced(at.from_transformers(theirs), given), captured)
    assert difference.ok, difference
    assert len(difference["nodes"]) > 20


def test_a_bug_in_a_subclassed_attention_is_found() -> None:
    right, wrong = made(bart), made(bart)
    attention = type(right.model.encoder.layers[0].self_attn)

    class Mine(attention):  # type: ignore
        def forward(self, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
            output, *rest = super().forward(hidden_states, *args, **kwargs)
            return output * 2, *rest

    wrong.model.decoder.layers[1].encoder_attn.__class__ = Mine
    given = batch(wrong)
    with at.capture(wrong) as captured, torch.no_grad():
        wrong(**given)
    ours = traced(at.from_transformers(right), given)
    difference = at.diff(ours, captured)
    assert difference.ok is False
    first = difference["first_divergence"]
    assert first["node"].startswith("decoder.1.cross_attn"), difference
    with pytest.raises(AssertionError, match="decoder.1.cross_attn"):
        at.assert_matches(captured, ours)


def test_half_precision_is_read_as_it_is() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        theirs = made(llama).to(dtype)
        ours = at.from_transformers(theirs)
        stored = {tensor["dtype"] for tensor in ours.inspect(tensors=True)["tensors"]}
        assert stored == {"f16" if dtype is torch.float16 else "bf16"}
        given = batch(theirs)
        exact = theirs.float()(**given).logits.detach().numpy()
        np.testing.assert_allclose(traced(ours, given)["logits"], exact, atol=2e-5)


def test_what_is_done_to_a_model_later_does_not_change_the_copy() -> None:
    theirs = made(gpt2)
    ours, given = at.from_transformers(theirs), batch(theirs)
    before = traced(ours, given)["logits"].copy()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.mul_(2)
    np.testing.assert_array_equal(traced(ours, given)["logits"], before)


def test_models_without_values_are_refused() -> None:
    with torch.device("meta"):
        empty = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1))
    with pytest.raises(at.Error, match="meta tensor"):
        at.from_transformers(empty)


def test_the_doctor_looks_at_a_live_model() -> None:
    theirs = made(gpt2)
    with torch.no_grad():
        theirs.transformer.h[1].mlp.c_fc.weight[3, 4] = float("nan")
    diagnosis = at.from_transformers(theirs).doctor(ids=IDS, rules=["first-nan"])
    assert diagnosis.ok is False and "decoder.1.ffn.hidden" in diagnosis.to_json()


def test_calls_are_numbered_in_a_generation_loop() -> None:
    theirs = made(gpt2)
    with at.capture(theirs, select="lm_head", inputs=False) as captured, torch.no_grad():
        theirs.generate(torch.tensor([[4, 5]]), max_new_tokens=3, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert list(captured) == ["lm_head.outputs", "lm_head#2.outputs", "lm_head#3.outputs"]


def test_a_shared_module_goes_by_the_path_of_its_caller() -> None:
    shared = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(torch.nn.Sequential(shared), torch.nn.Sequential(shared))
    with at.capture(model, inputs=False) as captured:
        model(torch.ones(1, 2))
    assert list(captured) == ["0.0.outputs", "0.outputs", "1.0.outputs", "1.outputs", "Sequential.outputs"]


def test_what_could_not_be_kept_is_said() -> None:
    class Odd(torch.nn.Module):  # type: ignore
        def forward(self, x: Any) -> Any:
            return {"a": (x, [x.half(), x.bfloat16()]), "set": {1}, "sparse": x.to_sparse(), "text": "no tensor"}

    model = Odd()
    with at.capture(model, max_bytes=30) as captured:
        model(torch.tensor([[1.5, 2.5]]))
    assert list(captured) == [
        "Odd.inputs.args.0",
        "Odd.outputs.a.0",
        "Odd.outputs.a.1.0",
        "Odd.outputs.a.1.1",
    ]
    assert captured["Odd.outputs.a.1.1"].dtype == np.float32 and captured["Odd.outputs.a.1.0"].dtype == np.float16
    assert captured["Odd.outputs.a.1.1"].tolist() == [[1.5, 2.5]]
    assert set(captured.not_kept) == {"Odd.outputs.set", "Odd.outputs.sparse"}
    with at.capture(model, max_bytes=10) as captured:
        model(torch.ones(1, 2))
    assert "Odd.outputs.a.0" in captured  # It is what was read.
    assert "max_bytes" in captured.not_kept["Odd.outputs.a.1.0"]


def test_a_shared_weight_is_copied_once() -> None:
    theirs = made(gpt2)
    tensors = at.from_transformers(theirs).inspect(tensors=True)["tensors"]
    names = [tensor["name"] for tensor in tensors]
    assert "transformer.wte.weight" in names
    assert sum(tensor["shape"] == [60, 32] for tensor in tensors) <= 2


def test_an_exception_leaves_no_hooks() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(3, 3))
    with pytest.raises(RuntimeError), at.capture(model, inputs=False) as captured:
        model(torch.ones(1, 2))
    assert list(captured) == ["0.outputs"]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(at.Error, match="no module was called"), at.capture(model):
        pass


def test_what_is_changed_in_place_is_kept_as_it_was() -> None:
    class Adds(torch.nn.Module):  # type: ignore
        def forward(self, x: Any) -> Any:
            return x.add_(1)

    given = torch.zeros(1, 2)
    model = torch.nn.Sequential(Adds(), torch.nn.ReLU(inplace=True), Adds())
    with at.capture(model) as captured:
        model(given)
    values = {name: array.tolist() for name, array in captured.items() if not name.startswith("Seq")}
    assert values == {
        "0.inputs.args.0": [[0.0, 0.0]],
        "0.outputs": [[1.0, 1.0]],
        "1.inputs.args.0": [[1.0, 1.0]],
        "1.outputs": [[1.0, 1.0]],
        "2.inputs.args.0": [[1.0, 1.0]],
        "2.outputs": [[2.0, 2.0]],
    }
    assert captured["Sequential.inputs.args.0"].tolist() == [[0.0, 0.0]] and given.tolist() == [[2.0, 2.0]]


def test_keywords_named_tuples_and_outputs_of_transformers_are_kept() -> None:
    theirs = made(bart)
    given = batch(theirs)
    with at.capture(theirs, select="BartForConditionalGeneration") as captured, torch.no_grad():
        out = theirs(**given, use_cache=True)
    name = "BartForConditionalGeneration"
    np.testing.assert_array_equal(captured[f"{name}.inputs.kwargs.input_ids"], IDS)
    np.testing.assert_array_equal(captured[f"{name}.outputs.logits"], out.logits.numpy())
    # The cache is an object of transformers: it is said that it was left out.
    assert any("past_key_values" in left for left in [*captured, *captured.not_kept])


def test_select_and_max_bytes_say_what_was_left_out() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    with at.capture(model, select="[01]", inputs=False) as captured:
        model(torch.ones(1, 4))
    assert list(captured) == ["0.outputs", "1.outputs"] and not captured.not_kept
    with at.capture(model, inputs=False, max_bytes=16 + 4) as captured:
        model(torch.ones(1, 4))
    # What is small enough is kept, though something larger before it was not.
    assert list(captured) == ["0.outputs", "2.outputs", "Sequential.outputs"]
    assert set(captured.not_kept) == {"1.outputs"}
    assert captured.not_kept["1.outputs"] == "16 bytes, more than what is left of max_bytes"
    assert "1 not kept" in repr(captured)


@pytest.mark.parametrize("how", ["model", "in place", "inner module", "function"])
def test_what_is_compiled_runs_as_it_is_written_while_it_is_captured(how: str) -> None:
    torch.manual_seed(1)
    inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model: Any = torch.nn.Sequential(inner, torch.nn.Linear(2, 2))
    given = torch.ones(1, 2)
    with at.capture(model, inputs=False) as expected, torch.no_grad():
        model(given)
    compiles = {"backend": lambda graph, _: counted(graph)}
    runs = []

    def counted(graph: Any) -> Any:
        def compiled(*args: Any) -> Any:
            runs.append(1)
            return graph.forward(*args)

        return compiled

    call = model
    if how == "model":
        call = model = torch.compile(model, **compiles)
    elif how == "in place":
        model.compile(**compiles)
    elif how == "inner module":
        call = model = torch.nn.Sequential(torch.compile(inner, **compiles), model[1])
    else:
        call = torch.compile(lambda x: model(x), **compiles)
    if not hasattr(torch.compiler, "set_stance"):
        # Before torch 2.6 nothing can be told to run as it is written.
        if how != "function":
            with pytest.raises(at.Error, match="before torch 2.6"):
                at.capture(model)
        return
    with torch.no_grad():
        before = call(given)
        count = len(runs)
        with at.capture(model, inputs=False) as captured:
            found = call(given)
        assert len(runs) == count > 0
        # Compiled as before.
        again = call(given)
        assert len(runs) > count
    assert list(captured) == list(expected) == [
        "0.0.outputs",
        "0.1.outputs",
        "0.outputs",
        "1.outputs",
        "Sequential.outputs",
    ]
    for name, array in expected.items():
        np.testing.assert_array_equal(captured[name], array)
    np.testing.assert_allclose(found.numpy(), before.numpy(), atol=1e-6)
    np.testing.assert_allclose(again.numpy(), before.numpy(), atol=1e-6)
