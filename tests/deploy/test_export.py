"""ONNX files compute what the model does."""

import pytest
import torch
from torch import nn

from torchlift.deploy.exporting import export
from torchlift.deploy.shrinking import shrink

onnxruntime = pytest.importorskip("onnxruntime")


def test_a_shrunken_network_runs_in_onnx_at_any_batch_size(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )
    with torch.no_grad():
        model[0].weight[:3] = 0
    x = torch.randn(2, 1, 8, 8)
    small = shrink(model, x)
    assert small[0].out_channels == 3
    path = tmp_path / "m.onnx"
    assert export(small, x, path) < 1e-5
    assert small.training
    session = onnxruntime.InferenceSession(str(path))
    more = torch.randn(5, 1, 8, 8)
    (found,) = session.run(None, {session.get_inputs()[0].name: more.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), small.eval()(more).detach(), atol=1e-5, rtol=0)
