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


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for name, recipe in RECIPES.items():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)
        ).double()
        x = torch.randn(90, 5).double()  # batches of 16, 16, …, 10 and, for two processes, halves of each
        data = (x, (x.sum(1) > 0).long() + (x[:, 0] > 0).long())
        result = tl.fit(
            model,
            data,
            data,
            recipe=recipe,
            epochs=6,
            batch_size=16,
            optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.9),
            schedule="cosine",
            out=folder / name,
            clip=1.0,
            progress=False,
        )
        assert result.history, "no rows"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
