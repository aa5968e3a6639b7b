"""The lifted entries of ``torchlift reproduce`` run and return what a page needs."""

from pathlib import Path

import pytest
import torch
from entry_modules import module_of

from papers.common import mnist_mlp

KEYS = {"title", "source", "finding", "scale", "seeds", "machine", "columns", "rows", "curves", "notes"}


def few_digits(folder: str | None) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (30, 1, 28, 28), generator=generator, dtype=torch.uint8)
    return (images, torch.arange(30) % 10), (images[:10], torch.arange(10))


@pytest.mark.parametrize("name", ["lifted_model", "lifted_deep", "lifted_denoising", "lifted_robustness"])
def test_entries_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mnist_mlp, "mnist", few_digits)
    module = module_of(name)
    result = module.run(out=tmp_path, seeds=1, scale=0.01)
    assert set(result) >= KEYS
    assert all(set(result["columns"]) <= set(row) for row in result["rows"])
    assert all(len(curve["x"]) == len(curve["y"]) > 0 for curve in result["curves"])
    assert result["seeds"] == [0]
