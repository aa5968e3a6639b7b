"""A run small enough to be repeated hundreds of times."""

from pathlib import Path

import torch
from torch import nn

import torchlift as tl


def data(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(seed))
    return x, (x.sum(1) > 0).long()


def model(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))


def run(out: Path | None, net: nn.Module | None = None, **changes: object) -> tl.Result:
    """``tl.fit`` on two epochs; ``train`` and ``valid`` may be changed too."""
    settings = {"epochs": 2, "batch_size": 16, "progress": False, "save_every": 0.0} | changes
    train, valid = settings.pop("train", data()), settings.pop("valid", data())
    return tl.fit(model() if net is None else net, train, valid, out=out, **settings)


def same(one: nn.Module, two: nn.Module) -> bool:
    a, b = one.state_dict(), two.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def everything(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
