"""One trial of shrinking: a random network, some of its channels set to zero or none, shrunk and compared."""

import copy
import dataclasses
import random

import torch
from torch import Tensor, nn

from torchlift.channels.copies import sharing
from torchlift.channels.couplings import Coupling
from torchlift.channels.equality import apart, both
from torchlift.channels.example_inputs import accepts, batch_of, changed, noise, resized
from torchlift.channels.follow import traced
from torchlift.channels.shrink import shrunk
from torchlift.channels.surgery import usable
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
    cut: int
    """Channels cut."""
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


def trained(model: nn.Module, x: Tensor, steps: int) -> nn.Module:
    """A few steps of gradient descent towards random numbers; the statistics of norms move too."""
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    model.train()
    for _ in range(steps):
        out = model(changed(x, noise(1.0)))
        loss = (out - torch.ones_like(out)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def trial(kind: str, seed: int, *, planted: bool = True) -> Trial:
    """Set channels to zero if any are to be ``planted``, shrink, compare; every other network is trained."""
    model, x = network(kind, seed)
    dice = random.Random(seed)
    if seed % 2:
        model = trained(model, x, dice.choice([1, 5, 20]))
    whole, count = dice.random() < 0.7, 0
    if planted:
        groups = usable(model, traced(model, x, values=False)[0], x)
        model, count = masked_at_random(model, groups, dice, whole=whole)
    small, rows = shrunk(model, x)
    examples = variations(model, x)
    outputs = both(model, small, examples)
    kept = [row for row in rows if row.zero > row.cut]
    sizes = [sum(p.numel() for p in m.parameters()) for m in (model, small)]
    return Trial(
        seed=seed,
        whole=whole,
        masked=count,
        cut=sum(row.cut for row in rows),
        left=sizes[1] / sizes[0],
        error=float("inf") if outputs is None else apart(*outputs[:2]),
        shapes=len({tuple(e.shape) for e in examples}),
        kept=len(kept),
        unexplained=sum(not row.why for row in kept),
    )


def variations(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The input; noise in its place, small and large; another batch; other sizes that the model takes."""
    twin = sharing(model).eval()
    changes = (batch_of(3), *(resized(x, factor) for factor in (0.5, 1.5, 2.0)))
    others = [changed(x, change) for change in changes]
    fitting = [changed(o, noise(1.0)) for o in others if o.shape != x.shape and accepts(twin, o)]
    return [x, changed(x, noise(1.0)), changed(x, noise(10.0)), *fitting]


def masked_at_random(
    model: nn.Module, groups: list[Coupling], dice: random.Random, *, whole: bool
) -> tuple[nn.Module, int]:
    """A copy with random channels zero, with norms and biases (``whole``) or matrices alone; how many."""
    model = copy.deepcopy(model)
    parameters = dict(model.named_parameters())
    count = 0
    for group in groups:
        if group.blocked or group.channels < 2 or dice.random() < 0.2:
            continue
        gone = torch.tensor(dice.sample(range(group.channels), dice.randint(1, group.channels - 1)))
        count += len(gone)
        for member in group.of("writes"):
            if member.name in parameters and (whole or parameters[member.name].ndim > 1):
                index = member.index[torch.isin(member.channel, gone)]
                with torch.no_grad():
                    parameters[member.name].index_fill_(member.dim, index, 0)
    return model, count
