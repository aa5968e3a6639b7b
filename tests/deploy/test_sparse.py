"""Sparse kernels compute what dense ones do, and are used only where they were faster."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchlift.channels.sparse_linear import SparseLinear
from torchlift.deploy import export, load, measure, save
from torchlift.deploy import sparse as package_sparse
from torchlift.deploy.sparse_layers import Execution, sparse


def pruned() -> nn.Linear:
    torch.manual_seed(0)
    layer = nn.Linear(64, 48)
    with torch.no_grad():
        layer.weight[torch.rand(48, 64) < 0.9] = 0
    return layer


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64), (64,)])
def test_a_sparse_layer_is_the_layer(shape):
    layer, x = pruned(), torch.randn(shape)
    assert_close(SparseLinear(layer)(x), layer(x))
    assert_close(copy.deepcopy(SparseLinear(layer))(x), layer(x))


def test_only_what_was_faster_is_replaced(monkeypatch):
    model = nn.Sequential(nn.Conv1d(1, 1, 1), pruned(), nn.ReLU(), nn.Linear(48, 2))
    x = torch.randn(2, 1, 64)
    for dense, expected in ((10.0, SparseLinear), (1.0, nn.Linear)):
        times = {1: [dense], 2: [dense, 1.0]}
        monkeypatch.setattr(
            "torchlift.deploy.sparse_layers.median_times", lambda layers, x, times=times: times[len(layers)]
        )
        quick, choices = sparse(model, x)
        assert type(quick[1]) is expected
        assert [c.sparse_ms is None for c in choices] == [True, False, True]
        assert_close(quick(x), model(x))
    assert package_sparse is sparse


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_a_standard_file_has_the_layer_dense_with_its_zeros(ending, tmp_path):
    pytest.importorskip("onnxscript")
    model, x = nn.Sequential(SparseLinear(pruned()), nn.ReLU()).eval(), torch.randn(2, 64)
    assert export(model, x, tmp_path / f"m.{ending}") < 1e-5
    if ending == "pt2":
        (weight,) = (
            t for t in torch.export.load(tmp_path / "m.pt2").state_dict.values() if t.shape == (48, 64)
        )
        assert torch.equal(weight, pruned().weight)
    assert isinstance(model[0], SparseLinear)


def test_a_packed_file_is_that_of_the_dense_layer(tmp_path):
    dense, x = nn.Sequential(pruned(), nn.ReLU()), torch.randn(2, 64)
    quick = nn.Sequential(SparseLinear(dense[0]), nn.ReLU())
    sizes = save(quick, tmp_path / "m.tl"), save(dense, tmp_path / "d.tl"), measure(quick, x).file_bytes
    assert len(set(sizes)) == 1
    assert torch.equal(load(tmp_path / "m.tl")[0].weight, dense[0].weight)


def test_a_choice_needs_a_margin():
    assert Execution("a", 0.9, 1.0, 0.5).sparse
    assert not Execution("a", 0.9, 1.0, 0.9).sparse
    assert not Execution("a", 0.9, 1.0, None).sparse
