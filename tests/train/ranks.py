"""Train in several ways and save the weights: run alone, or by ``torchrun`` on several processes."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import torchlift as tl

sys.path.insert(0, str(Path(__file__).parents[1]))
import every_recipe


class Recurrent(nn.Module):
    """Dropout inside torch's own recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(1, 6, num_layers=2, dropout=0.5, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x[..., None])[0][:, -1])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))


def meeting() -> nn.Module:
    """Samples meet in the normalization, and draw from one stream."""
    first = [nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.3)]
    return nn.Sequential(*first, nn.Linear(16, 8), nn.AlphaDropout(0.2), nn.Linear(8, 3))


def images() -> nn.Module:
    """Channels dropped, in place; normalized over places."""
    first = [nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 6, 3), nn.BatchNorm1d(6, momentum=None)]
    return nn.Sequential(*first, nn.Dropout1d(0.3, inplace=True), nn.Flatten(), nn.Linear(18, 3))


CASES = {
    "plain": (mlp, None),
    "penalty": (mlp, tl.lifts.SoftMask(strength=1e-3, variant="published", s_init=0.1)),
    "learning projection": (mlp, tl.recipes.NeuralLifting("2", width=8, mix=0.5)),
    "statistics and noise": (meeting, None),
    "channels": (images, None),
    "folded norm": (mlp, tl.lifts.Normalize()),
    "noise of weights": (mlp, tl.recipes.IterativeStochastic(rounds=1, s_init=2.0)),
    "recurrent dropout": (Recurrent, None),
}

MATRICES = {
    "plain": None,
    "penalty": tl.lifts.SoftMask(strength=1e-3, variant="published", s_init=0.1),
    "learning projection": tl.recipes.NeuralLifting("2", width=8, mix=0.5),
    "folded norm": tl.lifts.Normalize(),
    "averaged": tl.lifts.Average(),
    "in parts": tl.lifts.Split("*", 2),
    "rotated": tl.recipes.Rotated(centered=True),
    "auto": tl.recipes.BestOf(trials=0.5, price="FLOPs"),
}
"""Trained by SOAP in the first layer, by Muon in the others."""


def train(make: Callable[[], nn.Module], recipe: object, out: Path, **settings: object) -> None:
    torch.manual_seed(0)
    model = make().double()
    x = torch.randn(90, 5).double()  # batches of 16, 16, …, 10 and, for two processes, halves of each
    data = (x[:89], ((x.sum(1) > 0).long() + (x[:, 0] > 0).long())[:89])  # the last: 5 and 4
    common = {"epochs": 4, "batch_size": 16, "schedule": "cosine", "clip": 1.0, "progress": False}
    result = tl.fit(model, data, data, recipe=recipe, out=out, save_every=0.01, **common | settings)
    assert result.history, "no rows"


def every(folder: Path) -> None:
    """One of each recipe there is."""
    torch.set_num_threads(1)
    x, y = every_recipe.data(1, 90)
    for name, recipe in every_recipe.one_each().items():
        settings = {"epochs": 3, "batch_size": 32, "save_every": 0.01, "progress": False}
        settings["optimizer"] = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
        model, data = every_recipe.model().double(), (x.double(), y)
        tl.fit(model, data, data, recipe=recipe, out=folder / name, **settings)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for name, (make, recipe) in CASES.items():
        train(make, recipe, folder / name, optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.9))
    groups = {"0.*": {"optimizer": partial(tl.optim.Soap, lr=0.01, every=4)}, "*": {}}
    for name, recipe in MATRICES.items():
        muon = partial(tl.optim.Muon, lr=0.01)
        train(mlp, recipe, folder / f"{name}, matrices", optimizer=muon, groups=groups)


if __name__ == "__main__":
    (every if sys.argv[2:] == ["every"] else main)(Path(sys.argv[1]))
