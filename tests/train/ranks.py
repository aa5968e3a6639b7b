"""Train by a recipe and save the weights: run alone, or by ``torchrun`` on several processes."""

import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

import torchlift as tl

RECIPES = {
    "plain": None,
    "penalty": tl.lifts.SoftMask(strength=1e-3, variant="published", s_init=0.1),
    "learning projection": tl.recipes.NeuralLifting("2", width=8, mix=0.5),
}

MATRICES = RECIPES | {
    "centred": tl.recipes.Centred(),
    "rotated": tl.recipes.Rotated(centred=True),
    "pruned": tl.recipes.MagnitudePruning(sparsity=0.5),
    "auto": tl.recipes.Auto(trials=0.5),
}
"""Trained by SOAP in the first layer, by Muon in the others."""


def train(recipe: object, place: Path, **settings: object) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x = torch.randn(90, 5).double()  # batches of 16, 16, …, 10 and, for two processes, halves of each
    data = (x, (x.sum(1) > 0).long() + (x[:, 0] > 0).long())
    common = {"epochs": 6, "batch_size": 16, "schedule": "cosine", "clip": 1.0, "progress": False}
    result = tl.fit(model, data, data, recipe=recipe, out=place, **common | settings)
    assert result.history, "no rows"


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for name, recipe in RECIPES.items():
        train(recipe, folder / name, optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.9))
    soap, muon = partial(tl.optim.Soap, lr=0.01, every=4), partial(tl.optim.Muon, lr=0.01)
    for name, recipe in MATRICES.items():
        groups = {"0.*": {"optimizer": soap}, "*": {}}
        train(recipe, folder / f"{name}, matrices", optimizer=muon, groups=groups)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
