"""A capture does not disturb what it captures, and says what it could not keep."""

# torch says little of its types.
# pyright: basic

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import attnscope as at

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.torch


class Returns(nn.Module):  # type: ignore
    """Returns what a function makes of its input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def test_a_tensor_that_cannot_be_copied_does_not_stop_the_model() -> None:
    x = torch.tensor([[1.5, 2.5]])
    odd = {
        "nested": lambda x: torch.nested.nested_tensor([x[0], x[0, :1]]),
        "sparse": lambda x: x.to_sparse(),
        "complex": lambda x: x.to(torch.complex64),
        "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    }
    for name, function in odd.items():
        with at.capture(Returns(function)) as captured:
            found = captured._model(x)
        assert type(found) is torch.Tensor
        assert list(captured) == ["Returns.inputs.args.0"], name
        assert captured.lost == list(captured.not_kept) == ["Returns.outputs"], name
    assert "nested tensor" in str(captured_of(odd["nested"], x).not_kept)


def captured_of(function: Any, *args: Any) -> at.Capture:
    with at.capture(Returns(function)) as captured:
        captured._model(*args)
    return captured


def test_a_view_that_is_negative_is_kept_as_its_values_are() -> None:
    captured = captured_of(torch._neg_view, torch.tensor([[1.5, 2.5]]))
    assert captured["Returns.outputs"].tolist() == [[-1.5, -2.5]]


def test_vmap_fake_tensors_and_odd_containers_do_not_stop_the_model() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = nn.Sequential(nn.Linear(2, 2))
    with at.capture(model) as captured:
        found = torch.func.vmap(model)(torch.ones(3, 2))
    assert found.shape == (3, 2) and not captured.keys() and "torch.func" in captured.not_kept["0.outputs"]
    with FakeTensorMode(allow_non_fake_inputs=True), at.capture(model) as captured:
        model(torch.ones(1, 2))
    assert not captured.keys() and "FakeTensor" in captured.not_kept["0.outputs"]

    class Hostile(dict):  # type: ignore
        def items(self) -> Any:
            raise RuntimeError("no items today")

    captured = captured_of(lambda x: (x, Hostile()), torch.ones(1))
    assert "no items today" in captured.not_kept["Returns.outputs.1"] and "Returns.outputs.0" in captured


def test_the_fast_path_of_nn_transformer_is_captured() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    x, padding = torch.randn(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
        with at.capture(model) as captured:
            found = model(x, src_key_padding_mask=padding)
    # Nested tensors within, or none where torch does not take the fast path with hooks; the model runs either way.
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-5)
    assert "TransformerEncoder.outputs" in captured


@pytest.mark.parametrize("how", ["script", "trace"])
def test_modules_of_torchscript_are_listed(how: str) -> None:
    x, inner = torch.ones(1, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = torch.jit.script(inner) if how == "script" else torch.jit.trace(inner, x)
    model = nn.Sequential(nn.Linear(2, 2), compiled)
    with at.capture(model, inputs=False) as captured:
        model(x)
    assert "0.outputs" in captured and "Sequential.outputs" in captured
    assert {"1.0", "1.1"} <= set(captured.not_kept) and "ScriptModule" in captured.not_kept["1.0"]
    assert set(captured.lost) == set(captured.not_kept)
    if how == "script":
        with pytest.raises(at.Error, match="no module was called") as e, at.capture(compiled):
            compiled(x)
        assert "torch.jit.script" in e.value.remedy


def stance() -> Any:
    """What torch does with what was compiled; None before torch 2.6."""
    return getattr(getattr(import_module("torch._dynamo.eval_frame"), "_stance", None), "stance", None)


def test_what_fails_on_the_way_in_is_undone() -> None:
    class Stubborn(nn.Linear):  # type: ignore
        def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no hooks here")

    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # What was compiled has a stance.
    model = nn.Sequential(nn.Linear(2, 2), Stubborn(2, 2))
    before = stance()
    captured = at.capture(model)
    with pytest.raises(RuntimeError, match="no hooks here"), captured:
        pass
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert stance() == before
    # It is not taken for open.
    with pytest.raises(RuntimeError, match="no hooks here"), captured:
        pass


class Stack(nn.Module):  # type: ignore
    def __init__(self, *layers: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def names(model: Any, *args: Any, **options: Any) -> list[str]:
    with at.capture(model, inputs=False, **options) as captured:
        model(*args)
    return [name.removesuffix(".outputs") for name in captured]


def test_a_shared_module_goes_by_the_place_it_was_called_through() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential()
    model.add_module("enc", Stack(shared, shared))
    model.add_module("dec", Stack(shared, shared))
    x = torch.ones(1, 4)
    expected = ["enc.layers.0", "enc.layers.1", "enc", "dec.layers.0", "dec.layers.1", "dec", "Sequential"]
    assert names(model, x) == expected
    assert names(model, x, select="dec") == ["dec.layers.0", "dec.layers.1", "dec"]
    act = nn.ReLU()
    assert names(nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4), act), x) == ["0", "1", "2", "3", "Sequential"]

    class Two(nn.Module):  # type: ignore
        def __init__(self) -> None:
            super().__init__()
            self.a = self.b = shared

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x))

    assert names(Two(), x) == ["a", "b", "Two"] and names(Two(), x, select="b") == ["b"]


def test_modules_in_circles_are_captured() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].parent = model
    assert names(model, torch.ones(1, 2)) == ["0", "Sequential"]


def test_a_selection_of_nothing_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with pytest.raises(at.Error, match="select='decoder' picks none of the 3 modules") as e:
        at.capture(model, select="decoder")
    assert "Sequential, 0, 1" in e.value.remedy
    model.add_module("unused", nn.Linear(2, 2))
    model.forward = lambda x: model[0](x)
    with pytest.raises(at.Error, match="was called"), at.capture(model, select="unused"):
        model(torch.ones(1, 2))


def test_no_name_is_overwritten() -> None:
    x = torch.ones(1)
    captured = captured_of(lambda x: {"a": {"b": x}, "a.b": x * 2}, x)
    assert captured["Returns.outputs.a.b"].tolist() == [1] and captured["Returns.outputs.a.b~2"].tolist() == [2]
    captured = captured_of(lambda x: {"a": {"b": {1}}, "a.b": {2}}, x)
    assert list(captured.not_kept) == ["Returns.outputs.a.b", "Returns.outputs.a.b~2"]

    class Odd(nn.Module):  # type: ignore
        def __init__(self) -> None:
            super().__init__()
            self.add_module("a#2", nn.Linear(1, 1))
            self.a = nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            return self.a(self.a(self._modules["a#2"](x)))

    with at.capture(Odd(), inputs=False) as captured:
        captured._model(x)
    assert list(captured) == ["a#2.outputs", "a.outputs", "a#2.outputs~2", "Odd.outputs"]


def test_wrong_arguments_are_said_in_words() -> None:
    model: Any = nn.Linear(2, 2)
    wrong: list[tuple[str, Any]] = [("max_bytes", "1G"), ("max_bytes", -1), ("select", 3)]
    for name, value in wrong:
        with pytest.raises(at.Error, match=f"{name}={value!r}: expected"):
            at.capture(model, **{name: value})
    three: Any = 3
    for found in (model, three):
        with pytest.raises(at.Error, match="expected a model of transformers, found"):
            at.from_transformers(found)


def test_the_same_values_are_kept_once() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))
    x = torch.randn(4, 64)
    size = 4 * 64 * 4
    with at.capture(model, max_bytes=9 * size) as captured, torch.no_grad():
        model(x)
    # Inputs and outputs of eight modules and of the model: the input and eight outputs have values of their own.
    assert len(captured) == 18 and not captured.not_kept and f"{9 * size:,} bytes" in repr(captured)

    class Writes(nn.Module):  # type: ignore
        def forward(self, x: Any) -> Any:
            x.data.add_(1)  # Torch does not count this as a change.
            return x

    with at.capture(Writes()) as captured:
        captured._model(torch.zeros(2))
    assert captured["Writes.inputs.args.0"].tolist() == [0, 0] and captured["Writes.outputs"].tolist() == [1, 1]


def test_a_notebook_shows_a_capture() -> None:
    html = captured_of(lambda x: {"<b>": x, "set": {1}}, torch.ones(1, 2))._repr_html_()
    assert "&lt;b&gt;" in html and "<b>" not in html and "f32 [1, 2]" in html and "not kept: a set" in html


def test_a_loop_is_captured_by_steps() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    inputs = [torch.full((1, 2), float(i)) for i in range(3)]
    with at.capture(model) as captured:
        for x in inputs:
            model(x)
    assert captured.steps == 3 and "3 steps" in repr(captured) and "0#3.outputs" in captured
    for i, x in enumerate(inputs):
        one = captured.step(i + 1)
        assert one.steps == 1 and list(one) == list(captured.step(1))
        assert one["0.inputs.args.0"].tolist() == x.tolist()
    assert captured.step(-1)["0.inputs.args.0"].tolist() == [[2, 2]]
    for number in (0, 4, -4):
        with pytest.raises(at.Error, match="there are 3"):
            captured.step(number)


def test_a_step_has_what_ran_before_the_loop() -> None:
    class Pair(nn.Module):  # type: ignore
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Any, encoded: Any) -> Any:
            return self.decoder(x) + encoded

    model = Pair()
    with at.capture(model, inputs=False) as captured:
        encoded = model.encoder(torch.ones(1, 2))
        for _ in range(3):
            model(torch.ones(1, 2), encoded)
    assert captured.steps == 3
    assert list(captured.step(2)) == ["encoder.outputs", "decoder.outputs", "Pair.outputs"]
