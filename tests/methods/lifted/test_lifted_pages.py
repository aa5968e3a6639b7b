"""What lifted training and inversions found, as pages with pictures."""

from pathlib import Path

import torch
from torch import nn

import torchlift as tl


def test_trained_shows_the_energy_of_every_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    x = torch.randn(20, 4)
    actual = tl.lifted.train(model, (x, x[:, :3].argmax(1)), epochs=2, batch_size=10, progress=False)
    page = actual.report(tmp_path / "trained.html").read_text()
    assert actual.layers == ("0",)
    assert repr(actual).startswith("Trained: Sequential, 2 epochs")
    assert len(repr(actual)) < 200
    assert "Energy of each layer" in page
    assert "<svg" in page


def test_an_inversion_shows_input_reconstruction_and_residual(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 49), nn.ReLU())
    x = torch.rand(1, 1, 8, 8)
    actual = tl.invert(model, model(x).detach(), reg=tl.convex.L2(1e-3), shape=(1, 8, 8), progress=False)
    page = actual.report(tmp_path / "inversion.html", truth=x).read_text()
    for caption in ("input", "observation", "reconstruction", "error", "residual"):
        assert caption in page
    assert page.count("data:image/png") >= 5
    assert "Primal–dual gap" in page
    assert ">Settings<" not in page
    assert "converged after" in repr(actual)
    assert "above the minimum" in repr(actual)
    assert len(repr(actual)) < 250
