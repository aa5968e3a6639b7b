"""Lifted training by every method, alone or by ``torchrun``; other ranks than the first start elsewhere."""

import os
import sys
from pathlib import Path

import torch
from torch import nn

import torchlift as tl
from torchlift import lifted

METHODS: dict[str, dict[str, object]] = {
    "contrastive": {},
    "contrastive sweeps": {"method": "contrastive", "options": {"sweeps": 2}, "penalty": "classical"},
    "isgm": {"method": "isgm", "options": {"rho": 1e-3}},
    "bcd": {"method": "bcd", "options": {"update": "accelerated"}},
    "bcd in one batch": {"method": "bcd", "options": {"update": "accelerated"}},
    "bcd by layers": {"method": "bcd", "options": {"update": "accelerated", "parallel": "layers"}},
    "splitting": {"method": "splitting"},
}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    x = torch.randn(90, 5, generator=torch.Generator().manual_seed(1)).double()
    labels = (x.sum(1) > 0).long() + (x[:, 0] > 0).long()
    for name, chosen in METHODS.items():
        torch.manual_seed(rank)
        model = nn.Sequential(
            nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)
        ).double()
        squares = name == "splitting"
        data = (x, nn.functional.one_hot(labels, 3).double()) if squares else (x, labels)
        tl.fit(
            model,
            data,
            data,
            recipe=tl.recipes.Lifted(**chosen),
            loss="mse" if squares else "cross_entropy",
            epochs=3,
            batch_size=90 if squares or name in ("bcd in one batch", "bcd by layers") else 16,
            out=folder / name,
            progress=False,
        )
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    lifted.train(model, (x, labels), epochs=2, batch_size=20, progress=False)
    if rank == 0:
        torch.save(model.state_dict(), folder / "train.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
