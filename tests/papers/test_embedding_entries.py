"""The entries on depth, on tiny stand-ins for the data; what they count is counted right."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from entry_modules import module_of

from papers.embedding_principle import (
    depth_degeneracy,
    depth_pays,
    depth_plateaus,
    depth_pruning,
    figure1,
    traces,
)
from torchlift.data import Splits, teacher_student
from torchlift.models import MLP
from torchlift.report import reproduction_page

Pair = tuple[torch.Tensor, torch.Tensor]


def few_digits(folder: str | None = None) -> tuple[Pair, Pair]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (120, 1, 28, 28), generator=generator, dtype=torch.uint8)
    return (images, torch.arange(120) % 10), (images[:20], torch.arange(20) % 10)


def few_pairs(seed: int, folder: str | None) -> Splits:
    return teacher_student(2, 80, seed=seed)


def shrink(module: Any, patch: pytest.MonkeyPatch) -> None:
    """Small enough for a test: two settings, few steps, no files."""
    for name in ("mnist", "fashion_mnist"):
        patch.setattr(module, name, few_digits, raising=False)
    if module is depth_plateaus:
        chosen = {k: v for k, v in module.SETTINGS.items() if k in ("MNIST, tanh", "sine, residual")}
        patch.setattr(module, "SETTINGS", chosen)
        patch.setattr(module, "PER", 2)
    if module is depth_degeneracy:
        patch.setattr(module, "descend", partial(depth_degeneracy.descend, steps=20))
        patch.setattr(module, "newton", partial(depth_degeneracy.newton, steps=3))
    if module is depth_degeneracy:
        patch.setattr(module, "SIMILARITIES", 1)
    if module is depth_pruning:
        patch.setattr(module, "CALLS", 5)
    if module is depth_pays:
        one = dataclasses.replace(module.SETTINGS["teacher–student"], data=few_pairs, rates=(1e-3,))
        patch.setattr(module, "SETTINGS", {"teacher–student": one})


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("depth_plateaus", {"epochs": 8}),
        ("depth_norms", {"epochs": 120}),
        ("depth_data", {"epochs": 80}),
        ("depth_degeneracy", {}),
        ("depth_pruning", {"epochs": 0.5, "images": 64}),
        ("depth_dependence", {"epochs": 0.02, "images": 64}),
        ("depth_pays", {"epochs": 1, "images": 64}),
    ],
)
def test_entries_run(
    name: str, size: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = module_of(name)
    shrink(module, monkeypatch)
    monkeypatch.setattr(module, "PER", 2, raising=False)
    seeds = 2 if name == "depth_pays" else 1
    result = module.run(tmp_path, seeds=seeds, **size)
    assert all(set(result["columns"]) <= set(row) for row in result["rows"])
    assert result["seeds"] == list(range(seeds))
    assert reproduction_page(result).title


class Passed(Exception):
    """What reached the training."""


def test_figure_1_starts_and_descends_as_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Appendix C: deviation 0.07, rate 0.001, all 150 flowers as measured, 100,000 steps."""

    def descended(weights: figure1.Weights, data: Pair, lr: float, steps: int) -> None:
        values = torch.cat([entry.detach().flatten() for pair in weights for entry in pair])
        raise Passed(round(float(values.std()), 2), lr, steps, tuple(data[0].shape), float(data[0].max()))

    monkeypatch.setattr(figure1, "descended", descended)
    with pytest.raises(Passed) as passed:
        figure1.run(tmp_path)
    printed = figure1.PUBLISHED.arms["ReLU"]
    assert passed.value.args == (printed["deviation"], printed["lr"], 100_000, (150, 4), pytest.approx(7.9))


@pytest.mark.parametrize("arm", depth_pruning.PUBLISHED.arms)
def test_figure_8_starts_and_trains_as_its_block_says(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(model: torch.nn.Module, *_: Any, optimizer: Any, **settings: Any) -> None:
        defaults = optimizer(model.parameters()).defaults
        raise Passed(round(float(model[0].weight.detach().std()), 2), defaults["lr"], settings)

    monkeypatch.setattr(depth_pruning.tl, "fit", fit)
    images, rows = torch.rand(4, 784), torch.arange(4)
    data = Splits((images, rows), (images, rows), (images, rows), "classification")
    with pytest.raises(Passed) as passed:
        depth_pruning.trial(depth_pruning.PUBLISHED, arm, data, 0, None, None)
    printed, (deviation, lr, settings) = depth_pruning.PUBLISHED.arms[arm], passed.value.args
    assert (deviation, lr) == (printed["deviation"], printed["lr"])
    assert settings["batch_size"] == printed["batch_size"]
    assert settings.get("schedule") == printed.get("schedule")


def test_a_win_is_a_smaller_error_or_a_larger_accuracy() -> None:
    assert depth_pays.wins([1.0, 3.0, 2.0], [2.0, 2.0, 2.0], less_is_better=True) == 1
    assert depth_pays.wins([1.0, 3.0, 4.0], [2.0, 2.0, 2.0], less_is_better=False) == 2
    record = Path(__file__).parents[2] / "benchmarks" / "results" / "depth_pays.json"
    rows = json.loads(record.read_text())["rows"]
    plain = {row["task"]: row["per seed"] for row in rows if row["arm"] == depth_pays.PLAIN}
    for row in rows:
        less = row["task"].startswith("teacher")
        assert row["to plain"]["wins"] == depth_pays.wins(row["per seed"], plain[row["task"]], less)


def forbidden(*_: object) -> None:
    raise AssertionError("this cell was measured before")


def test_a_finished_cell_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = module_of("depth_norms")
    monkeypatch.setattr(module, "PER", 1)
    first = module.run(tmp_path, seeds=1, epochs=6)
    monkeypatch.setattr(module, "trial", forbidden)
    assert module.run(tmp_path, seeds=1, epochs=6)["rows"] == first["rows"]


def test_figure_8d_counts_pairs_of_predictions() -> None:
    """Column j holds what the first network calls j; the trace is where both agree."""
    first, second = torch.nn.Identity(), Rolled()
    x = torch.eye(10).repeat(3, 1)
    counts = depth_pruning.similarity(first, second, x)
    assert counts.sum() == 30
    assert counts[1, 0] == 3
    assert depth_pruning.agreement(counts) == 0
    assert depth_pruning.agreement(depth_pruning.similarity(first, first, x)) == 100


class Rolled(torch.nn.Module):
    """The next class."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.roll(1, 1)


def test_plateaus_are_stalls_that_end() -> None:
    falling = [2.0, 1.5, 1.0] + [0.5] * 30 + [0.3, 0.2, 0.1, 0.1, 0.1]
    assert [loss for _, loss in traces.plateaus(falling)] == [0.5]
    assert traces.plateaus([2.0, 1.0] + [0.5] * 30) == []
    assert traces.reached(falling, 0.3) == 34
    assert traces.reached(falling, 0.01) is None


def test_one_call_of_fit_shows_loss_and_linearity_side_by_side(tmp_path: Path) -> None:
    """Figure 3: the page of one call has both, over the same epochs."""
    model = traces.gaussian(MLP(1, 8, 8, 1, activation=torch.nn.Tanh), 0.1, 0)
    page = tmp_path / "page" / "fit.html"
    trace = traces.trained(model, traces.sine(20), 0.05, 5, 0, per=2, page=page)
    assert len(trace.losses) == len(trace.linearity) == 5
    with torch.no_grad():
        x, y = traces.sine(20)
        assert (trace.model(x) - y).square().mean() < trace.losses[-1]  # it is the trained one
    assert all(len(row) == 2 for row in trace.linearity)
    text = page.read_text()
    assert 0 < text.index("Loss: plateaus") < text.index("least |ρ|")
