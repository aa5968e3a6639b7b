"""ONNX with integer weights: exact where the grid allows, float with a reason where not."""

import numpy as np
import pytest
import torch
from torch import nn

from torchlift import deploy
from torchlift.core import Task, store, stored
from torchlift.lifts import LearnedStep, Precision

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")


def model() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5)]
    return nn.Sequential(*layers)


X = torch.randn(2, 3, 8, 8)


def quantized(p: float, **options) -> nn.Module:
    lift = Precision(p_init=p, **options)
    return lift.project(lift.lift(Task(model()))).model


@pytest.mark.parametrize(("p", "kind"), [(3, "int4"), (7, "int8")])
def test_grids_that_fit_are_stored_as_integers_exactly(tmp_path, p, kind):
    net = quantized(p)
    found = deploy.export_quantized(net, X, tmp_path / "m.onnx")
    assert len(found.weights) == 3
    assert set(found.weights.values()) == {kind}
    assert found.error < 1e-5
    assert not found.gained_nothing
    assert found.latency_ms > 0
    assert found.float_latency_ms > 0
    weights = sum(w.numel() for w in net.parameters() if w.ndim > 1)
    assert found.float_bytes - found.file_bytes > (3.4 if kind == "int4" else 2.9) * weights - 2000
    stored = {t.name: t for t in onnx.load(tmp_path / "m.onnx").graph.initializer}
    steps = [t for name, t in stored.items() if name.endswith(".step")]
    for step in steps:
        whole = onnx.numpy_helper.to_array(stored[step.name.removesuffix(".step") + ".whole"])
        values = np.float32(onnx.numpy_helper.to_array(step)) * whole.astype(np.float32)
        assert any(
            np.array_equal(values, w.detach().numpy()) for w in net.parameters() if w.shape == values.shape
        )


def test_what_does_not_fit_stays_float_and_says_so(tmp_path):
    net = quantized(3, where="0.weight")
    found = deploy.export_quantized(net, X, tmp_path / "m.onnx")
    assert sorted(kind[:5] for kind in found.weights.values()) == ["float", "float", "int4"]
    assert all("has no grid (tl.stored)" in why for why in found.gained_nothing.values())
    nine = quantized(9)
    lost = deploy.export_quantized(nine, X, tmp_path / "n.onnx").gained_nothing
    assert len(lost) == 3
    assert all("do not fit eight bits" in why for why in lost.values())


def test_learned_steps_fit_too_and_the_option_of_export(tmp_path):
    lift = LearnedStep(bits=4)
    net = lift.project(lift.lift(Task(model()))).model
    assert set(deploy.export_quantized(net, X, tmp_path / "m.onnx").weights.values()) == {"int4"}
    assert deploy.export(net, X, tmp_path / "n.onnx", quantized=True) < 1e-5
    assert (tmp_path / "n.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()
    assert not list(tmp_path.glob("*.float.onnx"))


def by_channel(net: nn.Module, most: int) -> nn.Module:
    """Every output channel on a grid of its own step, one of them zero, one negative."""
    torch.manual_seed(0)
    for name, weight in net.named_parameters():
        if weight.ndim > 1:
            step = weight.detach().flatten(1).abs().amax(1).view(-1, *[1] * (weight.ndim - 1)) / most
            levels = (weight.detach() / step).round()
            levels[1] = 0
            step[0] *= -1
            store(net, name, step=step, levels=levels)
    return net


@pytest.mark.parametrize(("levels", "kind"), [(1, "int4"), (7, "int4"), (127, "int8")])
def test_channels_with_steps_of_their_own_are_stored_as_integers_exactly(tmp_path, levels, kind):
    net = by_channel(model(), levels)
    found = deploy.export_quantized(net, X, tmp_path / "m.onnx")
    assert list(found.weights.values()) == [kind] * 3
    assert found.error < 1e-5
    graph = onnx.load(tmp_path / "m.onnx").graph
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    nodes = [node for node in graph.node if node.op_type == "DequantizeLinear"]
    assert len(nodes) == 3
    for node in nodes:
        whole, step = (stored[name].astype(np.float32) for name in node.input)
        (axis,) = [attribute.i for attribute in node.attribute if attribute.name == "axis"]
        values = np.moveaxis(np.moveaxis(whole, axis, -1) * step, -1, axis)
        weights = [w.detach().numpy() for w in net.parameters() if w.shape == values.shape]
        assert any(np.array_equal(values, w) for w in weights)


class Product(nn.Module):
    """A matrix product with its weight as in × out."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        record = stored(linear)["weight"]
        self.weight = nn.Parameter(linear.weight.detach().T.contiguous())
        store(self, "weight", step=record.step.T, levels=record.levels.T)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


@pytest.mark.parametrize(("levels", "kind"), [(7, "int4"), (127, "int8")])
def test_matrices_stored_as_in_by_out_have_steps_along_their_second_axis(tmp_path, levels, kind):
    net = Product(by_channel(nn.Linear(40, 30), levels))
    found = deploy.export_quantized(net, torch.randn(5, 40), tmp_path / "m.onnx")
    assert list(found.weights.values()) == [kind]
    assert found.error < 1e-5
    graph = onnx.load(tmp_path / "m.onnx").graph
    (node,) = [node for node in graph.node if node.op_type == "DequantizeLinear"]
    assert [attribute.i for attribute in node.attribute if attribute.name == "axis"] == [1]


def test_the_gates_of_an_lstm_are_found_in_the_order_of_the_file(tmp_path):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    lift = LearnedStep("*weight*", bits=4)
    net = lift.project(lift.lift(Task(Net()))).model
    found = deploy.export_quantized(net, torch.randn(2, 5, 4), tmp_path / "m.onnx")
    assert list(found.weights.values()).count("int4") == 3
