"""Sparse kernels compute what dense ones do, and are used only where they were faster."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import clocks
from torchlift.deploy import export, load, measure, save, sparse


def pruned() -> nn.Linear:
    torch.manual_seed(0)
    layer = nn.Linear(64, 48)
    with torch.no_grad():
        layer.weight[torch.rand(48, 64) < 0.9] = 0
    return layer


def timed(seconds: float, model: nn.Module, x: torch.Tensor) -> tuple[nn.Module, list[object]]:
    """What is chosen where a dense linear layer takes a second, and a sparse one so many."""
    times = {"Linear": 1.0, "Conv1d": 1.0, "SparseLinear": seconds}
    with clocks.by(lambda module: times.get(type(module).__name__, 0.0)):
        return sparse(model, x)


def quick(layer: nn.Linear) -> nn.Module:
    """The layer by a sparse kernel."""
    return timed(0.1, nn.Sequential(layer), torch.randn(1, layer.in_features))[0][0]


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64), (64,)])
def test_a_sparse_layer_is_the_layer(shape):
    layer, x = pruned(), torch.randn(shape)
    assert_close(quick(layer)(x), layer(x))
    assert_close(copy.deepcopy(quick(layer))(x), layer(x))


@pytest.mark.parametrize(("seconds", "kind"), [(0.1, "SparseLinear"), (0.8, "SparseLinear"), (0.9, "Linear")])
def test_only_what_was_faster_by_a_margin_is_replaced(seconds, kind):
    model = nn.Sequential(nn.Conv1d(1, 1, 1), pruned(), nn.ReLU(), nn.Linear(48, 2))
    x = torch.randn(2, 1, 64)
    small, choices = timed(seconds, model, x)
    assert type(small[1]).__name__ == kind
    assert [choice.dense_ms for choice in choices] == pytest.approx([1000.0] * 3)
    assert [choice.sparse_ms for choice in choices] == [None, pytest.approx(1000 * seconds), None]
    assert_close(small(x), model(x))


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_a_standard_file_has_the_layer_dense_with_its_zeros(ending, tmp_path):
    pytest.importorskip("onnxscript")
    model, x = nn.Sequential(quick(pruned()), nn.ReLU()).eval(), torch.randn(2, 64)
    assert export(model, x, tmp_path / f"m.{ending}") < 1e-5
    if ending == "pt2":
        (weight,) = (
            t for t in torch.export.load(tmp_path / "m.pt2").state_dict.values() if t.shape == (48, 64)
        )
        assert torch.equal(weight, pruned().weight)
    assert type(model[0]).__name__ == "SparseLinear"


def test_a_packed_file_is_that_of_the_dense_layer(tmp_path):
    dense, x = nn.Sequential(pruned(), nn.ReLU()), torch.randn(2, 64)
    small = nn.Sequential(quick(dense[0]), nn.ReLU())
    sizes = save(small, tmp_path / "m.tl"), save(dense, tmp_path / "d.tl"), measure(small, x).file_bytes
    assert len(set(sizes)) == 1
    assert torch.equal(load(tmp_path / "m.tl")[0].weight, dense[0].weight)
