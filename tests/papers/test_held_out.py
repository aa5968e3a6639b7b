"""The held-out contest: its bookkeeping on a task of seconds, and that every task's model takes its data."""

import dataclasses
import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import clocks
import torchlift as tl
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


def test_rivals_and_choosers_meet_at_both_prices(
    tmp_path: Path, contest: held_out.Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each at its best rate on the tuning seed; a dear rival has fewer epochs where time is the price."""
    few = {name: held_out.RIVALS[name] for name in ("AdamW", "norm + Muon")}
    few = {name: (make, rates[:2], norm) for name, (make, rates, norm) in few.items()}
    monkeypatch.setattr(held_out, "RIVALS", few)
    monkeypatch.setattr(held_out, "TRIALS", 1)
    monkeypatch.setattr(held_out, "BestOf", partial(held_out.BestOf, {"rate × 3": tl.Arm(rate=3.0)}))
    contest.epochs = 3.0
    counted = contest.compared([0])
    tried = counted.tuning["norm + Muon"].candidates
    assert len(tried) == 2
    assert counted.tuning["norm + Muon"].values["arm"] == max(tried, key=lambda name: tried[name])
    assert any(isinstance(m, nn.BatchNorm1d) for m in counted.results["norm + Muon"][0].before.modules())
    rows = contest.rows([0], (held_out.PAID, held_out.FREE))
    assert [row["chooser"] for row in rows] == [held_out.PAID, held_out.FREE]
    assert all("goes on with" in row["choices"][0] for row in rows)
    assert rows[1]["CPU time to AdamW's"] > 0
    assert contest.seconds(["AdamW"]) == float((contest.folder / "AdamW.seconds").read_text())
    assert rows[0]["AdamW"]["mean"] == counted.results["plain"][0].scores["test"].loss
    with clocks.by(lambda one: {"AdamW": 1.0, "Muon": 4.0}.get(type(one).__name__, 0.0)):
        timed = held_out.Contest("little", "time", tmp_path, None, 3.0).compared([0])
    assert timed.results["norm + Muon"][0].cost < 0.6 * timed.results["plain"][0].cost


def test_a_small_contest_has_fewer_rates(contest: held_out.Contest, tmp_path: Path) -> None:
    small = held_out.Contest("little", "FLOPs", tmp_path, None, 0.1, 4)
    assert contest.share == 1 > small.share
    counts = {len(rates) for rates in held_out.rivals(small.job, small.share).values()}
    assert counts == {math.ceil(small.share * held_out.TRIALS)}
    assert {len(rates) for rates in held_out.rivals(contest.job).values()} == {held_out.TRIALS}


def test_a_row_compares_with_the_right_arms() -> None:
    def runs(*losses: float) -> list[dict[str, float | str]]:
        return [{"test": loss, "words": ""} for loss in losses]

    actual = {
        "AdamW": runs(1.0, 1.0),
        "Muon": runs(0.8, 0.8),
        "norm + Muon": runs(0.5, 0.5),
        held_out.PAID: runs(0.6, 0.6),
    }
    row = held_out.task_row("x", actual, held_out.PAID)
    assert row["best arm"] == "norm + Muon"
    assert row["to the best arm"] == pytest.approx(1.2)
    assert not row["within noise of it"]
    assert row["to AdamW"] == pytest.approx(0.6)
    assert row["to the best without norms"] == pytest.approx(0.75)


def test_ranks_of_trials_are_held_against_whole_runs() -> None:
    whole = {"AdamW, lr 0.003": 3.0, "AdamW, lr 0.01": 1.0, "Muon, lr 0.01": 2.0, "norm + Muon, lr 0.01": 4.0}
    scores = {name: -loss for name, loss in whole.items()}
    words = "goes on with x; validation losses of rung 1: rate × 3 1e-05, Muon 0.2, plain 0.3, norm, Muon 7"
    assert held_out.rank_correlation(scores, [{"words": words}]) == pytest.approx(1.0)
    words = words.replace("1e-05", "9")
    actual = held_out.rank_correlation(scores, [{"words": words + "; validation losses of rung 2: plain 1"}])
    assert actual == pytest.approx(-0.2)
    assert held_out.rank_correlation(scores, [{"words": ""}]) is None


def test_every_candidate_of_the_chooser_is_a_rivals_run() -> None:
    job = HeldOut(net, little, 40, norms=True)
    arms = {name for candidates in held_out.rivals(job).values() for name in candidates}
    assert set(held_out.CANDIDATES.values()) <= arms


def test_a_partial_table_says_so() -> None:
    row = {"price": "time", "chooser": held_out.PAID, "task": "x", "within noise of it": True}
    row |= {"to AdamW": 0.9, "to the best without norms": 0.95}
    result = held_out.entry([row], [0])
    assert result["scale"].startswith("partial: 1 of 10")
    assert "0.950" in result["finding"]


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
    lead = two_leads.LEADS["CNN 12-24-48"]
    ways = {way: lead.recipes[way] for way in ("plain", "whitened")}
    small = dataclasses.replace(lead, recipes=ways, pairs=(("plain", "whitened"),))
    monkeypatch.setitem(two_leads.LEADS, "CNN 12-24-48", small)
    with clocks.by(lambda one: float(isinstance(one, torch.optim.Optimizer | tl.Node))):
        actual = two_leads.compared("CNN 12-24-48", [0, 1], tmp_path, None, 4.0)
    (row,) = two_leads.table("CNN 12-24-48", actual)
    assert (row["control"], row["lead"]) == ("plain", "whitened")
    assert actual.results["whitened"][0].cost == pytest.approx(2, rel=0.2)
    for way, arm in zip(ways, row["arms"], strict=True):
        tried = actual.tuning[way].candidates
        assert arm == max(tried, key=lambda name: tried[name])
    assert "whitened" in two_leads.finding(row)


def test_trials_are_ranked_against_whole_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = (lambda: net(), lambda: little(None), "mse")
    monkeypatch.setattr(trial_ranks, "TASKS", {"little": job})
    monkeypatch.setattr(trial_ranks, "PARTS", (0.5, 1.0))
    result = trial_ranks.run(tmp_path, seeds=1, epochs=1.0)
    half, whole = result["rows"]
    assert whole["rank correlation"] == pytest.approx(1.0)
    assert whole["loss of its choice to the best"] == 1
    assert half["loss of its choice to the best"] >= 1
