"""Whether a model's own code bears a cut: views and splits may ask for sizes that are written down."""

import dataclasses

import torch
from torch import nn

from torchlift.channels.copies import copied
from torchlift.channels.couplings import Coupling, couplings
from torchlift.channels.dead_channels import Verdict, surgery
from torchlift.channels.example_inputs import Example, outputs
from torchlift.channels.follow import Trace
from torchlift.channels.surgery import operate

FIXED = "the model's own code asks for this size: a number in a view or a split"


def runs(model: nn.Module, found: Trace, some: Coupling | list[Coupling], example: Example) -> bool:
    """Whether the model runs, and gives outputs of the same shapes, without the last channel of couplings."""
    verdicts: list[Verdict] = []
    for coupling in [some] if isinstance(some, Coupling) else some:
        last = torch.zeros(coupling.channels, dtype=torch.bool)
        last[-1] = True
        verdicts.append(Verdict(coupling, last, last))
    small = operate(model, found, surgery(model, found, verdicts, folding=False)).eval()
    try:
        theirs = outputs(small, [example])
    except Exception:  # a model's own code may raise anything
        return False
    ours = outputs(copied(model).eval(), [example])
    return [x.shape for x in ours] == [x.shape for x in theirs]


def usable(model: nn.Module, found: Trace, example: Example) -> list[Coupling]:
    """The couplings of two channels or more, blocked where no channel can be cut out of the running model."""
    every = [c for c in couplings(found) if c.channels > 1]
    free = [c for c in every if not c.blocked]
    fine = {id(c) for c in bearing(model, found, free, example)}
    return [c if c.blocked or id(c) in fine else dataclasses.replace(c, blocked=FIXED) for c in every]


def bearing(model: nn.Module, found: Trace, some: list[Coupling], example: Example) -> list[Coupling]:
    """The couplings that bear a cut, by halving."""
    if not some or runs(model, found, some, example):
        return some
    if len(some) == 1:
        return []
    half = len(some) // 2
    return bearing(model, found, some[:half], example) + bearing(model, found, some[half:], example)
