"""The lifted entries of ``torchlift reproduce`` run and return what a page needs."""

import shutil
from pathlib import Path

import pytest
import torch
from entry_modules import module_of

from papers.common import mnist_mlp
from papers.lifted_networks import lifted_model, sparse_autoencoder

KEYS = {"title", "source", "finding", "scale", "seeds", "machine", "columns", "rows", "curves", "notes"}


def few_digits(folder: str | None) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (30, 1, 28, 28), generator=generator, dtype=torch.uint8)
    return (images, torch.arange(30) % 10), (images[:10], torch.arange(10))


def test_table_1_of_lifted_networks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All columns on a small net; a run that was stopped gives the table of one that was not."""
    small = {"PAPER": {(8,): {"model": (0.9, 0.9)}}, "FIGURE_1": ((8,),), "LAMBDAS": (1.0, 10.0), "SWEEPS": 1}
    monkeypatch.setattr(mnist_mlp, "mnist", few_digits)
    for name, value in small.items():
        monkeypatch.setattr(lifted_model, name, value)
    whole = lifted_model.run(out=tmp_path / "whole", seeds=2, epochs=2)
    assert set(whole) >= KEYS
    assert all(set(whole["columns"]) <= set(row) for row in whole["rows"])
    assert [(row["init"], row["seeds"]) for row in whole["rows"]] == [
        ("model", 2),
        *((init, 2) for init in lifted_model.INITS for _ in lifted_model.RATES),
        *((lifted_model.SAME_TIME, 1) for _ in lifted_model.RATES),
    ]
    assert all(len(curve["x"]) == len(curve["y"]) == 3 for curve in whole["curves"])
    lines = (tmp_path / "whole" / "trials.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "trials.jsonl").write_text("".join(lines[:2]))
    for weights in (tmp_path / "whole").glob("*.pt"):
        shutil.copy(weights, tmp_path / "stopped")
    resumed = lifted_model.run(out=tmp_path / "stopped", seeds=2, epochs=2)
    counted = len(whole["rows"]) - len(lifted_model.RATES)  # the control's steps follow from measured time
    assert [row["mean"] for row in resumed["rows"][:counted]] == [
        row["mean"] for row in whole["rows"][:counted]
    ]


def test_codes_get_sparser_with_the_norm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mnist_mlp, "mnist", few_digits)
    monkeypatch.setattr(sparse_autoencoder, "CODE", 8)
    result = sparse_autoencoder.run(out=tmp_path, seeds=1, epochs=2)
    assert set(result) >= KEYS
    zeros = [row["zeros in codes"]["mean"] for row in result["rows"]]
    assert zeros[0] < zeros[-1]


def accuracy(model: torch.nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    with torch.no_grad():
        return float((model(data[0]).argmax(1) == data[1]).double().mean())


def test_networks_trained_together_are_those_trained_alone() -> None:
    (images, labels), _ = few_digits(None)
    train = images.flatten(1).float() / 255 * (torch.arange(784) % 3 > 0), labels
    models = [mnist_mlp.mlp((784, 8, 6, 10), init, 0) for init in ("normal", "xavier")]
    together = lifted_model.descend_together(models, 3, 1e-2, train, train, 5)
    alone = [lifted_model.descend_together([model], 3, 1e-2, train, train, 5)[0] for model in models]
    for model, ours, single in zip(models, together, alone, strict=True):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        generator, curve = torch.Generator().manual_seed(3), [accuracy(model, train)]
        for _ in range(5):
            index = torch.randperm(30, generator=generator)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(train[0][index]), train[1][index]).backward()
            optimizer.step()
            curve.append(accuracy(model, train))
        assert ours["curve"] == single["curve"] == pytest.approx(curve)
        assert curve[-1] > curve[0]


@pytest.mark.parametrize("name", ["lifted_deep", "lifted_denoising", "lifted_robustness"])
def test_entries_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mnist_mlp, "mnist", few_digits)
    module = module_of(name)
    more = {"stand_in": True} if name == "lifted_deep" else {}
    result = module.run(out=tmp_path, seeds=1, epochs=1, images=600, **more)
    assert set(result) >= KEYS
    assert all(set(result["columns"]) <= set(row) for row in result["rows"])
    assert all(len(curve["x"]) == len(curve["y"]) > 0 for curve in result["curves"])
    assert result["seeds"] == [0]
