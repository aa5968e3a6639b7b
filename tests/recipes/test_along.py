"""Chains whose fits follow one schedule."""

import pytest
import torch

import torchlift as tl
from torchlift.models import MLP
from torchlift.recipes import Chain, ContinuousSparsification, Plain, Smol


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
    parts = {"prune": ContinuousSparsification(sparsity=0.5, finetune=0.25), "bits": Smol(finetune=0.5)}
    once, _ = places(Chain(parts, {"prune": 1, "bits": 1}, restart=False))
    plain, _ = places(Plain())
    assert once == sorted(once)
    assert once == pytest.approx(plain, abs=1 / 32)  # each fit reaches the end of its part
    anew, _ = places(Chain(parts, {"prune": 1, "bits": 1}))
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
