"""Recipes whose projection is exact: linear lifting, folded normalization; and those made of others."""

import math
from functools import partial

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.core import Fit, Task, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import Expand, Normalize, Standardize
from torchlift.models import MLP, BlockNet, LeNet5
from torchlift.recipes import BestOf, Chain, Plain, Rotated
from torchlift.train import Settings


def data(n=96):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(n, 5, generator=generator)
    return x, x.square().sum(1, keepdim=True)


def run(recipe, model=None, epochs=6, **settings):
    torch.manual_seed(0)
    settings = {"loss": "mse", "progress": False, "optimizer": partial(torch.optim.Adam, lr=0.01)} | settings
    return tl.fit(model or BlockNet(1), data(), data(32), recipe=recipe, epochs=epochs, **settings)


@pytest.mark.parametrize(
    "recipe",
    [
        Expand(),
        Expand(side="both", rank=0.5),
        Normalize(),
        Standardize(),
        Standardize(scaled=True),
        Rotated(),
    ],
    ids=repr,
)
def test_what_is_kept_is_what_was_trained(recipe):
    result = run(recipe)
    assert list(result.model.state_dict()) == list(BlockNet(1).state_dict())
    assert not list(nodes(result.model))
    assert result.history[-1]["valid_loss"] == pytest.approx(result.scores["valid"].loss, rel=1e-3)
    assert result.history[-1]["valid_loss"] < result.history[0]["valid_loss"]


def test_stages_follow_the_schedule_once():
    result = run(Rotated(stages=(1, 1, 2), warmup=0.0), epochs=8, schedule="cosine", save_every=0.0)
    ends = {row["phase"]: row["lr"] for row in result.history}
    assert list(ends) == ["lifted 1", "lifted 2", "lifted 3"]
    assert list(ends.values()) == pytest.approx(
        [0.005 * (1 + math.cos(math.pi * t)) for t in (1 / 7, 3 / 7, 1)]
    )  # of 8 steps


def test_stages_resume_where_they_were(tmp_path):
    recipe, whole = Rotated(stages=(1, 1)), run(Rotated(stages=(1, 1)))
    rows = []

    def stop(row):
        rows.append(row)
        if len(rows) == 5:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run(recipe, out=tmp_path, save_every=0.0, listener=stop)
    again = run(recipe, out=tmp_path, resume=True)
    assert all(
        torch.equal(a, b) for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True)
    )


def test_linear_lifting_costs_little_more_than_plain_training():
    torch.manual_seed(0)
    x, y = torch.rand(128, 3, 32, 32), torch.randint(10, (128,))
    costs = [
        tl.fit(LeNet5(), (x, y), recipe=recipe, epochs=1, progress=False).cost for recipe in (None, Expand())
    ]
    assert costs[0] == pytest.approx(1.0, rel=0.01)
    assert costs[1] < 1.1


class RecordingFit(Fit):
    """A fit that notes shares and names; candidates score as told."""

    epochs, steps, settings = 20.0, 1, Settings()

    def __init__(self, scores, calls=None, prefix="", share=1.0):
        self.scores, self.calls = scores, [] if calls is None else calls
        self.prefix, self.share = prefix, share

    def __call__(self, problem, **settings):
        name = self.prefix + settings["name"]
        self.calls.append((name, self.share * settings.get("share", 1.0)))
        problem.model.mark = name

    def branch(self, name, share=1.0, span=None, **settings):
        return RecordingFit(self.scores, self.calls, f"{self.prefix}{name}: ", self.share * share)

    def batches(self):
        yield torch.zeros(2, 1), torch.zeros(2, 1)

    def evaluate(self, problem):
        from torchlift.train import Score

        name = next(key for key in self.scores if key in problem.model.mark)
        return Score(self.scores[name], self.scores[name], higher_is_better=False)


def candidates():
    return {"one": Plain(), "two": Plain()}


def test_auto_falls_back_to_plain():
    fit = RecordingFit({"plain": 0.5, "one": 3.0, "two": 1.0})
    BestOf(candidates())(Task(nn.Linear(1, 1), "mse"), fit)
    assert fit.calls[-1][0] == "plain: base"


def test_auto_on_a_real_model_spends_its_budget_and_comes_back_plain():
    result = run(BestOf(), MLP(5, 16, 16, 1), epochs=20, equal_cost=True)
    assert result.cost == pytest.approx(20, rel=0.1)
    assert [type(m) for m in result.model.modules()] == [type(m) for m in MLP(5, 16, 16, 1).modules()]


def test_chain_splits_the_budget_and_scales_rules():
    from torchlift.train.until import Plateau

    fit = RecordingFit({})

    def careful(task, fit):
        fit(task, name="slow", until=Plateau(99, cap=8))
        return task

    recipe = Chain({"first": Plain(), "second": careful}, {"first": 3, "second": 1})
    recipe(Task(nn.Linear(1, 1), "mse"), fit)
    assert fit.calls == [("first: base", 0.75), ("second: slow", 0.25)]
    rows = run(recipe, MLP(5, 8, 1), epochs=8).history
    assert [row["phase"] for row in rows] == ["first: base"] * 6 + ["second: slow"] * 2


def test_chain_hands_the_task_on():
    result = run(Chain({"normed": Normalize(), "polish": Plain()}), MLP(5, 8, 1))
    assert [row["phase"] for row in result.history] == ["normed: lifted"] * 3 + ["polish: base"] * 3


def test_settings_are_checked():
    with pytest.raises(TorchliftError, match="trials"):
        BestOf(trials=1.0)
    with pytest.raises(TorchliftError, match="at least one"):
        Chain({})
    with pytest.raises(TorchliftError, match="shares"):
        Chain({"a": Plain()}, {"b": 1.0})
