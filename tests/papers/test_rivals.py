"""Contests against tuned rivals and neural lifting at its best, on very little data."""

import dataclasses
import math
from functools import partial

import pytest
import torch
from torch import nn

import clocks
from papers.common import rivals
from papers.common.rivals import Contest, grid, kind, way
from papers.neural_lifting import at_its_best
from papers.our_searches import (
    rivals_lenet,
    rivals_lstm,
    rivals_mlp,
    rivals_signal,
    rivals_teacher,
    rivals_text,
)
from torchlift.data import Splits
from torchlift.lifts import Standardize
from torchlift.report import reproduction_page


def data(seed: int) -> Splits:
    x = torch.randn(96, 4, generator=torch.Generator().manual_seed(seed))
    y = x[:, :1] * x[:, 1:2]
    return Splits((x[:64], y[:64]), (x[64:80], y[64:80]), (x[80:], y[80:]), "regression")


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


LITTLE = Contest("little", net, data, 3, {"loss": "mse", "batch_size": 16}, ratio=True)
THEIRS = grid("AdamW", (1e-2,)) | grid("Muon", (1e-2, 1e-1), weight_decay=(0.1,))
OURS = grid("Muon", (1e-2,), "centered", Standardize())


def seconds(one: object) -> float:
    """A step of Muon, which has twice the FLOPs here, takes twice as long for each of them."""
    return {"AdamW": 1.0, "Muon": 4.0}.get(type(one).__name__, 0.0)


def test_the_best_of_both_sides_meet_at_two_prices_on_other_seeds(tmp_path) -> None:
    with clocks.by(seconds):
        result = rivals.entry(tmp_path, LITTLE, THEIRS, OURS, (100,), (0, 1, 2), "Title", "small")
    assert reproduction_page(result).title
    for price in ("time", "FLOPs"):
        rows = [row for row in result["rows"] if row["price"] == price]
        tried = {row["way"]: row["validation"] for row in result["trials"] if row["price"] == price}
        assert rows[0]["way"] == min((name for name in THEIRS if name in tried), key=lambda name: tried[name])
        assert rows[1]["way"] == next(iter(OURS))
        gap = [
            math.log(mine / base) for mine, base in zip(rows[1]["per seed"], rows[0]["per seed"], strict=True)
        ]
        assert rows[1]["to the best rival"]["mean"] == pytest.approx(math.exp(sum(gap) / 3))
        assert rows[1]["verdict"] in ("better", "worse", "within noise")
    timed, counted = result["rows"][0], next(row for row in result["rows"] if row["price"] == "FLOPs")
    assert timed["cost"] == pytest.approx(3 if timed["way"].startswith("AdamW") else 1.5, rel=0.1)
    assert counted["cost"] == pytest.approx(3, rel=0.05)
    again = rivals.entry(tmp_path, LITTLE, THEIRS, OURS, (100,), (0, 1, 2), "Title", "small")
    untimed = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in one["rows"]] for one in (result, again)
    ]
    assert untimed[0] == untimed[1]


def test_lifts_have_no_more_trials_than_rivals(tmp_path) -> None:
    with pytest.raises(ValueError, match="3 trials of lifts and 1 of rivals"):
        rivals.entry(tmp_path, LITTLE, OURS, THEIRS, (100,), (0,), "Title", "small")
    for module in (rivals_teacher, rivals_mlp, rivals_text, rivals_lenet, rivals_lstm, rivals_signal):
        assert len(module.lifts()) <= len(module.rivals())
        assert {kind(name).split(" + ")[-1] for name in module.rivals()} == {"SGD", "AdamW", "Muon", "SOAP"}
        assert not set(module.lifts()) & set(module.rivals())


def test_what_diverges_is_told_and_never_chosen(tmp_path) -> None:
    theirs = {**grid("AdamW", (1e-2, 1e30)), **dict([way("SGD", {"lr": 1e-3})])}
    result = rivals.entry(tmp_path, LITTLE, theirs, OURS, (100,), (0,), "Title", "small")
    trial = next(row for row in result["trials"] if row["way"] == "AdamW, lr 1e+30")
    assert (trial["validation"], trial["reason"]) == (None, "no end")
    assert "1e+30" not in str(result["rows"])
    assert all(math.isfinite(row["seconds"]) for row in result["rows"])


@pytest.mark.parametrize(
    ("contest", "low", "high", "word"),
    [
        (LITTLE, 0.8, 0.9, "better"),
        (LITTLE, 1.1, 1.2, "worse"),
        (LITTLE, 0.9, 1.1, "within noise"),
        (dataclasses.replace(LITTLE, ratio=False), -0.2, -0.1, "better"),
        (dataclasses.replace(LITTLE, ratio=False, accuracy=True), -0.2, -0.1, "worse"),
        (dataclasses.replace(LITTLE, ratio=False, accuracy=True), 0.1, 0.2, "better"),
    ],
)
def test_better_is_less_loss_or_more_accuracy(contest: Contest, low: float, high: float, word: str) -> None:
    assert rivals.verdict(contest, {"low": low, "high": high}) == word


def test_neural_lifting_at_its_best_has_a_rule_that_can_fire(tmp_path, monkeypatch) -> None:
    assert all(rule.patience < rule.cap for rule in at_its_best.rules(75, at_its_best.PATIENCE))
    monkeypatch.setattr(at_its_best, "sampled", lambda samples, seed: data(seed))
    monkeypatch.setattr(at_its_best, "BlockNet", partial(at_its_best.BlockNet, inputs=4, width=8))
    result = at_its_best.run(tmp_path, seeds=2, epochs=7.5)
    assert reproduction_page(result).title
    assert [row["arm"] for row in result["rows"]][:2] == [at_its_best.PLAIN, at_its_best.PAPERS]
    assert len(result["trials"]) == 3
