"""What the entries share: small data, networks from small weights, loss and linearity over the steps."""

import dataclasses
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import torchlift as tl
from torchlift.core import Fit, Task

Pair = tuple[Tensor, Tensor]
SOURCE = "Bai, Luo, Xu, Zhang: Embedding Principle in Depth (2024)"


class Whole(Dataset[Pair]):
    """All of the data, so many times: an epoch of full-batch steps."""

    def __init__(self, data: Pair, steps: int) -> None:
        self.data, self.steps = data, steps

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self.steps

    def __getitem__(self, index: int) -> Pair:
        """Everything."""
        if index >= self.steps:
            raise IndexError(index)
        return self.data


def jump(x: Tensor) -> Tensor:
    """Two steps, at −1 and 1."""
    return (torch.tanh(6 * (x + 1)) + torch.tanh(6 * (x - 1))) / 2


def steps(n: int = 70) -> Pair:
    """One variable, two steps."""
    x = torch.linspace(-2, 2, n).unsqueeze(1)
    return x, jump(x)


def sine(n: int = 70) -> Pair:
    """One variable, two waves."""
    x = torch.linspace(-2, 2, n).unsqueeze(1)
    return x, torch.sin(3 * x)


def flowers() -> Pair:
    """Iris with one-hot targets."""
    x, y = tl.data.iris().train
    return x, nn.functional.one_hot(y, 3).float()


def gaussian(model: nn.Module, std: float, seed: int) -> nn.Module:
    """All parameters of Linear layers from N(0, std²), in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model.modules():
            for parameter in layer.parameters(recurse=False) if isinstance(layer, nn.Linear) else ():
                parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
    return model


@dataclasses.dataclass(frozen=True)
class Trace:
    """A training: loss and the linearity of every layer after each epoch of full-batch steps."""

    losses: list[float]
    linearity: list[list[float]]
    states: dict[int, Any]
    """The weights after every epoch, where they were asked for."""
    model: nn.Module
    """What came out: `tl.fit` leaves the model it is given alone."""

    def short(self, points: int = 40) -> dict[str, Any]:
        """Few enough numbers to write down."""
        every = max(1, len(self.losses) // points)
        return {
            "losses": [float(f"{loss:.4g}") for loss in self.losses[::every]],
            "linearity": [[round(v, 4) for v in row] for row in self.linearity[::every]],
        }


def trained(
    model: nn.Module,
    data: Pair,
    lr: float,
    epochs: int,
    seed: int,
    *,
    per: int = 100,
    keep: bool = False,
    page: Any = None,
    device: str | None = None,
) -> Trace:
    """One `tl.fit` call of full-batch descent, ``per`` steps an epoch; ``page`` gets its report."""
    kept: dict[int, Any] = {}

    def recipe(task: Task, fit: Fit) -> Task:
        wanted = tuple(range(1, epochs + 1)) if keep else ()
        kept.update(fit(task, name="train", remember=wanted).remembered)
        return task

    bends = any(isinstance(module, nn.ReLU) for module in model.modules())
    result = tl.fit(
        model,
        DataLoader(Whole(data, per), batch_size=None),
        recipe=recipe,
        loss="mse",
        optimizer=partial(torch.optim.SGD, lr=lr),
        epochs=epochs,
        seed=seed,
        log=tl.analyze.Depth(data[0], cka=False, zero=0.05 if bends else 0.0),
        progress=False,
        device=device or "auto",
    )
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        result.report(page)
    losses = [row["train_loss"] for row in result.history]
    lines = [[v for k, v in row.items() if k.startswith("linearity ")] for row in result.history]
    return Trace(losses, lines, kept, result.model)


def plateaus(losses: list[float]) -> list[tuple[int, float]]:
    """(epoch, loss) in the middle of each stall that ends."""
    return [((one.start + one.end) // 2, one.loss) for one in tl.analyze.stalls(losses)]


def reached(losses: list[float], level: float) -> int | None:
    """The first epoch with a loss of at most ``level``."""
    return next((epoch + 1 for epoch, loss in enumerate(losses) if loss <= level), None)
