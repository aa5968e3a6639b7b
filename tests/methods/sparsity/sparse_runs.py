"""What the tests of sparse recipes share: a small task, a real run, and a scripted fit."""

import copy
from functools import partial

import torch
from torch import nn

import torchlift as tl
from torchlift.core import Task, matches, store

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def data(count: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))


def run(recipe, epochs: float = 6, net: nn.Module | None = None, **settings):
    options = {"optimizer": SGD, "batch_size": 64, "progress": False} | settings
    return tl.fit(net or model(), data(), data(64), recipe=recipe, epochs=epochs, **options)


def zeros(net: nn.Module, where: str = "*weight") -> float:
    """The fraction of zeros among the matrices that a glob picks."""
    chosen = [p.flatten() for name, p in net.named_parameters() if p.ndim > 1 and matches(name, where)]
    return float((torch.cat(chosen) == 0).double().mean())


def pruned(task: Task, fraction: float) -> Task:
    """A copy in which the smallest entries of all matrices are zeros that later fits hold."""
    task = copy.deepcopy(task)
    matrices = {name: p for name, p in task.named_parameters() if p.ndim > 1}
    sizes = torch.cat([p.detach().abs().flatten() for p in matrices.values()]).sort().values
    for name, p in matrices.items():
        store(task, name, kept=p.abs() >= sizes[round(fraction * len(sizes))])
    return task


class Scripted:
    """A fit that moves weights and logits by a fixed amount and keeps what it is asked to remember."""

    epochs = 6.0
    steps = 100

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict]] = []
        self.settings: list[dict] = []
        self.first = None

    def __call__(self, problem, *, name, remember=(), **settings):
        self.settings.append({"name": name, **settings})
        self.seen.append((name, copy.deepcopy(problem.state_dict())))
        self.first = self.first or copy.deepcopy(problem)
        kept = {}
        with torch.no_grad():
            for key, parameter in problem.named_parameters():
                if "logit" in key:
                    parameter.copy_(torch.linspace(-0.05, 0.1, parameter.numel()).view_as(parameter))
                else:
                    parameter.add_(1.0)
            for buffer in problem.buffers():
                if buffer.ndim == 1:
                    buffer.add_(1.0)
            for epoch in remember:
                kept[epoch] = copy.deepcopy(problem.state_dict())
            for key, parameter in problem.named_parameters():
                if "logit" not in key:
                    parameter.add_(1.0)
        return type("Fitted", (), {"remembered": kept, "optimizer": {}, "name": name})()

    def batches(self):
        yield data(4)
