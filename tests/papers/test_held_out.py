"""The held-out contest: its bookkeeping on a task of seconds, and that every task's model takes its data."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from papers.our_searches import held_out, trial_ranks, two_leads
from papers.our_searches.held_out_tasks import TASKS, HeldOut, friedman, oscillator, table
from torchlift.data import Splits

WITHOUT_FILES = {"table 40-64-64-8": table, "oscillator formula, residual MLP": oscillator}
WITHOUT_FILES |= {"Friedman's formula, MLP 10-64-64-1": friedman}


def little(data: str | None) -> Splits:
    del data
    x = torch.randn(160, 4, generator=torch.Generator().manual_seed(0))
    y = x[:, :1] * x[:, 1:2]
    return Splits((x[:96], y[:96]), (x[96:128], y[96:128]), (x[128:], y[128:]), "regression")


def net(norm: bool = False) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.ReLU(), nn.Linear(8, 1))


@pytest.fixture
def contest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> held_out.Contest:
    monkeypatch.setitem(TASKS, "little", HeldOut(net, little, 40, 16, norms=True, loss="mse"))
    return held_out.Contest("little", "FLOPs", tmp_path, None)


def test_a_rivals_rate_is_the_best_of_its_tuning_seed(contest: held_out.Contest) -> None:
    tried = {
        rate: contest.rival("Muon", rate, held_out.TUNING)["valid"] for rate in held_out.RIVALS["Muon"][1]
    }
    assert contest.best_rate("Muon") == min(tried, key=lambda rate: tried[rate])


def test_time_gives_a_dear_rival_fewer_epochs(tmp_path: Path, contest: held_out.Contest) -> None:
    timed = held_out.Contest("little", "time", tmp_path, None)
    timed.cells.get("seconds of a step", lambda: dict.fromkeys(held_out.RIVALS, 1.0) | {"Muon": 2.0})
    rows = {name: timed.rival(name, 1e-2, 0) for name in ("AdamW", "Muon")}
    assert rows["Muon"]["epochs"] == rows["AdamW"]["epochs"] / 2


def test_finished_cells_are_read_and_not_run(
    contest: held_out.Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = contest.rival("AdamW", 1e-2, 0)
    monkeypatch.setattr(held_out.Contest, "run", None)
    assert contest.rival("AdamW", 1e-2, 0) == first


def test_a_row_compares_with_the_right_arms() -> None:
    def runs(*losses: float) -> list[dict[str, float]]:
        return [{"test": loss, "seconds": 2.0} for loss in losses]

    found = {
        "AdamW": runs(1.0, 1.0),
        "Muon": runs(0.8, 0.8),
        "norm + Muon": runs(0.5, 0.5),
        held_out.PAID: runs(0.6, 0.6),
    }
    row = held_out.told("x", found, held_out.PAID)
    assert row["best arm"] == "norm + Muon"
    assert row["to the best arm"] == pytest.approx(1.2)
    assert not row["within noise of it"]
    assert row["to AdamW"] == pytest.approx(0.6)
    assert row["to the best without norms"] == pytest.approx(0.75)


def test_ranks_of_trials_are_held_against_whole_runs(
    contest: held_out.Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {("AdamW", 3e-3): 3.0, ("AdamW", 1e-2): 1.0, ("Muon", 1e-2): 2.0, ("norm + Muon", 1e-2): 4.0}
    monkeypatch.setattr(contest, "rival", lambda name, rate, seed: {"valid": whole[name, rate]})
    words = "goes on with x; validation losses of rung 1: rate × 3 1e-05, Muon 0.2, plain 0.3, norm, Muon 7"
    assert held_out.rank_correlation(contest, [{"words": words}]) == pytest.approx(1.0)
    words = words.replace("1e-05", "9")
    found = held_out.rank_correlation(contest, [{"words": words + "; validation losses of rung 2: plain 1"}])
    assert found == pytest.approx(-0.2)
    assert held_out.rank_correlation(contest, [{}]) is None


def test_a_partial_table_says_so() -> None:
    row = {"price": "time", "chooser": held_out.PAID, "task": "x", "within noise of it": True}
    row |= {"to AdamW": 0.9, "to the best without norms": 0.95}
    told = held_out.entry([row], [0])
    assert told["scale"].startswith("partial: 1 of 10")
    assert "0.950" in told["finding"]


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_generated_tasks_fit_their_models(name: str) -> None:
    job = TASKS[name]
    x, y = job.data(None).train
    out = job.make()(x[:4])
    assert out.shape == (4, 8) if job.loss == "cross_entropy" else out.shape == y[:4].shape
    assert all(math.isfinite(value) for value in out.flatten().tolist())
    assert not job.norms or any(isinstance(m, nn.BatchNorm1d) for m in job.make(norm=True))


def test_the_leads_are_paired_with_their_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate of a way is the better one on the tuning seed; a dear way takes fewer steps."""
    x = torch.randn(96, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    few = Splits(*(((x[i::3], (x[i::3].mean((1, 2, 3)) > 0).long())) for i in range(3)), "classification")
    monkeypatch.setattr(two_leads, "cut", lambda *_: few)
    measure = two_leads.Measure("CNN 12-24-48", tmp_path, None, 4.0)
    prices = dict.fromkeys(measure.lead.recipes, 1.0) | {"whitened, norm": 2.0}
    measure.cells.get("seconds of a step", lambda: prices)
    (row, *_) = measure.rows("CNN", [0, 1])
    assert (row["control"], row["lead"]) == ("norm", "whitened, norm")
    assert row["time of a step"] == 2
    assert measure.run("whitened, norm", row["rates"]["whitened, norm"], 0)["steps"] == pytest.approx(2)
    tried = {rate: measure.run("norm", rate, two_leads.TUNING)["valid"] for rate in two_leads.RATES}
    assert row["rates"]["norm"] == min(tried, key=lambda rate: tried[rate])
    assert "whitened, norm" in two_leads.finding(row)


def test_trials_are_ranked_against_whole_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = (lambda: net(), lambda: little(None), "mse")
    monkeypatch.setattr(trial_ranks, "TASKS", {"little": job})
    monkeypatch.setattr(trial_ranks, "PARTS", (0.5, 1.0))
    told = trial_ranks.run(tmp_path, seeds=1, epochs=1.0)
    half, whole = told["rows"]
    assert whole["rank correlation"] == pytest.approx(1.0)
    assert whole["loss of its choice to the best"] == 1
    assert half["loss of its choice to the best"] >= 1
