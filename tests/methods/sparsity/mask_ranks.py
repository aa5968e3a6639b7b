"""Prune by several recipes under ``torchrun``; every process saves the zeros it ended with."""

import os
import sys
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import torchlift as tl

RECIPES = {
    "continuous": tl.recipes.ContinuousSparsification(sparsity=0.7),
    "tickets": tl.recipes.TicketSearch(rounds=2, rewind=1, s_init=-0.01),
    "stochastic": tl.recipes.IterativeStochastic(rounds=2, strength=1e-3),
}


def zeros(recipe: object) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    x = torch.randn(90, 5)
    data = (x, (x.sum(1) > 0).long() + (x[:, 0] > 0).long())
    sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    result = tl.fit(model, data, recipe=recipe, epochs=6, batch_size=16, optimizer=sgd, progress=False)
    return {name: (p == 0).to(torch.uint8) for name, p in result.model.named_parameters() if p.ndim > 1}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, recipe in RECIPES.items():
        save_file(zeros(recipe), Path(sys.argv[1]) / f"{name}-{os.environ['RANK']}.safetensors")
