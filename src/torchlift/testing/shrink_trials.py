"""One trial of shrinking: channels of a random network masked, cut, and compared with the masked network."""

import copy
import dataclasses
import random

import torch
from torch import Tensor, nn

from torchlift.channels.copies import copied
from torchlift.channels.couplings import Coupling
from torchlift.channels.equality import both, distance
from torchlift.channels.example_inputs import variations
from torchlift.channels.feasible import usable
from torchlift.channels.model_trace import traced
from torchlift.channels.shrink import shrunk
from torchlift.testing.random_cnns import RandomCNN
from torchlift.testing.random_transformers import random_transformer


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a trial gave."""

    seed: int
    whole: bool
    """Whether norms and biases were masked with the weights."""
    masked: int
    """Channels masked."""
    left: float
    """The part of the parameters that is left."""
    error: float
    """The largest difference at any input, relative to the largest output."""
    shapes: int
    """How many shapes of input were compared."""
    kept: int
    """Groups of which masked channels stayed, each with a reason."""
    unexplained: int
    """Groups of which masked channels stayed without one."""


def network(kind: str, seed: int) -> tuple[nn.Module, Tensor]:
    """A random network (``"cnn"`` or ``"transformer"``) and an input."""
    return RandomCNN(seed).draw() if kind == "cnn" else random_transformer(seed)


def trial(kind: str, seed: int) -> Trial:
    """Mask, shrink, compare."""
    model, x = network(kind, seed)
    dice = random.Random(seed)
    whole = dice.random() < 0.7
    masked, count = masked_at_random(model, usable(model, traced(model, x), x), dice, whole=whole)
    small, rows = shrunk(masked, x)
    examples = variations(copied(masked).eval(), x)
    found = both(masked, small, examples)
    error = float("inf")
    if found is not None:
        error = max(distance(a, b) / max(1.0, float(a.abs().max())) for a, b in zip(*found[:2], strict=True))
    rows = [row for row in rows if row.zero > row.cut]
    sizes = [sum(p.numel() for p in m.parameters()) for m in (masked, small)]
    return Trial(
        seed=seed,
        whole=whole,
        masked=count,
        left=sizes[1] / sizes[0],
        error=error,
        shapes=len({tuple(e.shape) for e in examples}),
        kept=len(rows),
        unexplained=sum(not row.why for row in rows),
    )


def masked_at_random(
    model: nn.Module, groups: list[Coupling], dice: random.Random, *, whole: bool
) -> tuple[nn.Module, int]:
    """A copy with random channels zero, with norms and biases (``whole``) or matrices alone; how many."""
    model = copy.deepcopy(model)
    known = dict(model.named_parameters())
    count = 0
    for group in groups:
        if group.blocked or group.channels < 2 or dice.random() < 0.2:
            continue
        gone = torch.tensor(dice.sample(range(group.channels), dice.randint(1, group.channels - 1)))
        count += len(gone)
        for member in group.of("writes"):
            if member.name in known and (whole or known[member.name].ndim > 1):
                index = member.index[torch.isin(member.channel, gone)]
                with torch.no_grad():
                    known[member.name].index_fill_(member.dim, index, 0)
    return model, count
