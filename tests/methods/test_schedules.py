"""Several fits along one schedule: the rates of every step."""

import functools
import math

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.experiments.best_of import Auto
from torchlift.methods.recipe import Recipe
from torchlift.recipes import Chain, Plain, Rotated


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
    """The stage's trials all have its first rates; the winner goes on where its trial ended."""
    recipe = Auto({"slow": Plain()}, trials=0.5, margin=10.0)
    seen = rates(Chain(recipe, Plain(), restart=False))
    one = cosine(96)  # the winner's 16 + 32 steps are half of the schedule
    assert len(seen) == 128
    assert seen[:16] == pytest.approx(one[:16])
    assert seen[16:32] == pytest.approx(one[:16])
    assert seen[32:64] == pytest.approx(one[16:48])
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
