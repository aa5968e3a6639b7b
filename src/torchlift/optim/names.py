"""Optimisers by name, at rates that often work."""

from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from torchlift.errors import TorchliftError

from .avagrad import AvaGrad
from .muon import Muon
from .soap import Soap

NAMED: dict[str, partial[Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
    "adam": partial(torch.optim.Adam, lr=1e-3),
    "adamw": partial(torch.optim.AdamW, lr=1e-3, weight_decay=1e-4),
    "muon": partial(Muon, lr=1e-3),
    "soap": partial(Soap, lr=3e-3),
    "avagrad": partial(AvaGrad, lr=0.1),
}


def named(name: str, **options: Any) -> partial[Optimizer]:
    """The factory of that name with these options: ``named("muon", lr=2e-3)``."""
    if name not in NAMED:
        raise TorchliftError(f"there is no optimiser {name!r}: take {', '.join(NAMED)}, or a factory.")
    return partial(NAMED[name], **options)
