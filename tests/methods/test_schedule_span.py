"""Chains whose fits follow one schedule."""

from functools import partial
from typing import Any

import pytest
import torch

import torchlift as tl
from torchlift.models import MLP
from torchlift.recipes import Chain, ContinuousSparsification, Plain
from torchlift.train.settings import cosine


def places(recipe, epochs=8):
    """Where along the schedule each step lies."""
    seen = []

    def schedule(t):
        seen.append(t)
        return 1.0 - t

    torch.manual_seed(0)
    x, y = torch.randn(40, 6), torch.randint(3, (40,))
    settings = {"epochs": epochs, "batch_size": 10, "schedule": schedule, "progress": False}
    result = tl.fit(MLP(6, 12, 3), (x, y), recipe=recipe, **settings)
    return seen, result


def test_a_chain_follows_the_schedule_once():
    first, then = (ContinuousSparsification(sparsity=0.5, finetune=part) for part in (0.25, 0.5))
    parts = {"prune": first, "more": then}
    once, _ = places(Chain(parts, {"prune": 1, "more": 1}, restart=False))
    plain, _ = places(Plain())
    assert once == sorted(once)
    assert once == pytest.approx(plain, abs=1 / 32)  # each fit reaches the end of its part
    anew, _ = places(Chain(parts, {"prune": 1, "more": 1}))
    assert (anew.count(0.0), once.count(0.0)) == (4, 1)


def test_branches_epochs_and_spans_of_their_own_lie_inside():
    def halves(task, fit):
        inside = fit.branch("inside", 0.5)
        inside(task, name="first", epochs=4)
        inside(task, name="second", share=0.5, span=(0.5, 1.0))
        fit(task, name="third", share=0.5)
        return task

    seen, _ = places(Chain({"all": halves}, restart=False))
    ends = [(part[0], part[-1]) for part in (seen[:8], seen[8:16], seen[16:])]
    assert ends == [(0.0, 0.25), (0.375, 0.5), (0.5, 1.0)]


def test_a_group_with_an_optimizer_of_its_own_goes_through_the_schedule_anew() -> None:
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
        fit(task, name="second", groups={"*bias": {"optimizer": partial(Own, lr=1.0)}, "*": {}})
        return task

    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    tl.fit(
        torch.nn.Linear(3, 1), (x, x[:, :1]), loss="mse", recipe=Chain(Plain(), second, restart=False),
        optimizer=partial(Watched, lr=1e-3), schedule="cosine", epochs=8, batch_size=8, progress=False,
    )  # fmt: skip
    taken = len(rates["own"]) // 9 * 8  # of them the first few only count what a step costs
    places = [k / (taken - 1) for k in range(taken)]
    assert rates["weights"][-taken:] == pytest.approx([1e-3 * cosine(0.5 + 0.5 * t) for t in places])
    assert rates["own"][-taken:] == pytest.approx([cosine(t) for t in places])
