"""Runs small enough to be repeated in other processes, and recipes that end theirs."""

import dataclasses
import os
import signal
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.core import Fit
from torchlift.methods import Recipe


def data(seed: int, n: int = 96) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] * x[:, 1] > 0).long()


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


SETTINGS = {"batch_size": 32, "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9), "progress": False}
DATA = (data(1), data(2), data(3))


@dataclasses.dataclass(frozen=True)
class Fatal(Recipe):
    """Plain training in two halves; the first time it is between them, its process is killed."""

    marker: str

    def __call__(self, task: tl.Task, fit: Fit) -> tl.Task:
        fit(task, name="half", share=0.5)
        fit.remember("die", self.die)
        fit(task, name="rest", share=0.5)
        return task

    def die(self) -> None:
        if self.marker and not Path(self.marker).exists():
            Path(self.marker).write_text("once")
            os.kill(os.getpid(), signal.SIGKILL)


@dataclasses.dataclass(frozen=True)
class Always(Recipe):
    """Never comes to its end."""

    def __call__(self, task: tl.Task, fit: Fit) -> tl.Task:
        os.kill(os.getpid(), signal.SIGKILL)
        return task


@dataclasses.dataclass(frozen=True)
class Broken(Recipe):
    """Fails in a way no recipe should."""

    def __call__(self, task: tl.Task, fit: Fit) -> tl.Task:
        raise KeyError("what is this")


def numbers(comparison: tl.Comparison) -> dict[str, list[tuple[float, float]]]:
    """All that must not change: scores and costs."""
    return {
        name: [(run.scores["test"].loss, run.cost) for run in runs]
        for name, runs in comparison.results.items()
    }
