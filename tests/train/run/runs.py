"""A run small enough to be repeated hundreds of times."""

import json
from pathlib import Path
from typing import Any

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


def mean_output(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """A loss with a name."""
    return net(batch[0]).mean()


def same(one: nn.Module, two: nn.Module) -> bool:
    a, b = one.state_dict(), two.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def stored_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's ``history.jsonl``, without the checksums of its lines."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name != "crc"} for line in lines]


def everything(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
