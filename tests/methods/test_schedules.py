"""Several fits along one schedule: the rates of every step."""

import functools
import math
from typing import Any

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.methods import Recipe
from torchlift.models import MLP
from torchlift.recipes import BestOf, Chain, ContinuousSparsification, Plain, Rotated


def rates(recipe: Recipe, steps: int = 128) -> list[float]:
    """The rate of every step; an epoch is one step, and has a row in the history."""
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    result = tl.fit(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), (x, x.sum(1, keepdim=True)),
        recipe=recipe, loss="mse", schedule="cosine", epochs=steps, batch_size=16, progress=False,
        optimizer=functools.partial(torch.optim.SGD, lr=1e-2),
    )  # fmt: skip
    return [row["lr"] for row in result.history]


def cosine(steps: int, rate: float = 1e-2) -> list[float]:
    return [rate * 0.5 * (1 + math.cos(math.pi * k / (steps - 1))) for k in range(steps)]


def test_stages_that_do_not_restart_take_the_rates_of_one_fit():
    recipe = Chain(Plain(), Plain(), Plain(), shares=(1, 2, 1), restart=False)
    assert rates(recipe) == pytest.approx(cosine(128))


def test_the_best_of_several_follows_the_chains_schedule():
    """Every trial, and the winner, runs through all of the stage's half of the schedule."""
    recipe = BestOf({"slow": Plain()}, trials=0.5, margin=10.0, warm=False, price="FLOPs")
    seen = rates(Chain(recipe, Plain(), restart=False))
    assert len(seen) == 128
    for trial in (seen[:16], seen[16:32]):
        assert trial == pytest.approx(cosine(32)[:16])
    assert seen[32:64] == pytest.approx(cosine(64)[:32])
    assert seen[64:] == pytest.approx(cosine(128)[64:])


def test_a_chain_inside_a_chain_shares_its_stretch():
    recipe = Chain(Chain(Plain(), Plain()), Plain(), restart=False)
    assert rates(recipe) == pytest.approx(cosine(128))


def test_a_recipe_of_stages_follows_its_stretch_of_the_schedule():
    alone = rates(Rotated(stages=(0.25, 0.75), warmup=0.0))
    assert alone == pytest.approx(cosine(128))
    chained = rates(Chain(Rotated(stages=(0.25, 0.75), warmup=0.0), Plain(), restart=False))
    assert chained == pytest.approx(cosine(128))


def test_a_rate_is_relative_to_that_of_the_branch_around_it():
    def slower(task: tl.Task, fit: object) -> tl.Task:
        fit.branch("half", rate=0.5)(task, rate=0.5)
        return task

    assert rates(slower, steps=32) == pytest.approx(cosine(32, 2.5e-3))


def positions(recipe, epochs=8):
    """Where along the schedule each step lies."""
    seen = []

    def schedule(t):
        seen.append(t)
        return 1.0 - t

    torch.manual_seed(0)
    x, y = torch.randn(40, 6), torch.randint(3, (40,))
    settings = {"epochs": epochs, "batch_size": 10, "schedule": schedule, "progress": False}
    result = tl.fit(MLP(6, 12, 3), (x, y), recipe=recipe, **settings)
    return seen[1:], result  # the first is the check before training


def test_a_chain_follows_the_schedule_once():
    first, then = (ContinuousSparsification(sparsity=0.5, finetune=share) for share in (0.25, 0.5))
    parts = {"prune": first, "more": then}
    once, _ = positions(Chain(parts, {"prune": 1, "more": 1}, restart=False))
    plain, _ = positions(Plain())
    assert once == sorted(once)
    assert once == pytest.approx(plain)
    restarted, _ = positions(Chain(parts, {"prune": 1, "more": 1}))
    assert (restarted.count(0.0), once.count(0.0)) == (4, 1)


def test_branches_epochs_and_spans_of_their_own_lie_inside():
    def halves(task, fit):
        inside = fit.branch("inside", 0.5)
        inside(task, name="first", epochs=4)
        inside(task, name="second", share=0.5, span=(0.5, 1.0))
        fit(task, name="third", share=0.5)
        return task

    seen, _ = positions(Chain({"all": halves}, restart=False))
    assert seen == pytest.approx([k / 31 for k in range(32)])


def test_a_group_with_an_optimizer_of_its_own_has_all_of_the_schedule() -> None:
    """Precisions, moved by Adam, must not stand still because they come last in a chain."""
    rates: dict[str, list[float]] = {"weights": [], "own": []}

    class Watched(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            rates["weights"].append(self.param_groups[0]["lr"])
            return super().step(closure)

    class Own(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            rates["own"].append(self.param_groups[0]["lr"])
            return super().step(closure)

    def second(task: Any, fit: Any) -> Any:
        rates["weights"].clear()
        fit(task, name="second", groups={"*bias": {"optimizer": functools.partial(Own, lr=1.0)}, "*": {}})
        return task

    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    tl.fit(
        torch.nn.Linear(3, 1), (x, x[:, :1]), loss="mse", recipe=Chain(Plain(), second, restart=False),
        optimizer=functools.partial(Watched, lr=1e-3), schedule="cosine", epochs=8, batch_size=8,
        progress=False,
    )  # fmt: skip
    taken = 8 * 8 // 2  # the calls before them only count what a step costs
    assert rates["weights"][-taken:] == pytest.approx(cosine(2 * taken, 1e-3)[taken:])
    assert rates["own"][-taken:] == pytest.approx(cosine(taken, 1.0))
