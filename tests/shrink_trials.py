"""One trial of shrinking: a random network, some of its channels set to zero or none, shrunk and compared."""

import copy
import dataclasses
import random
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from random_cnns import RandomCNN
from random_transformers import random_transformer
from torchlift.channels.copies import sharing
from torchlift.channels.couplings import Coupling, Member
from torchlift.channels.equality import both, output_difference
from torchlift.channels.example_inputs import accepts, batch_of, changed, noise, resized
from torchlift.channels.example_inputs import outputs as outputs_of
from torchlift.channels.follow import traced
from torchlift.channels.shrink import shrunk
from torchlift.channels.surgery import usable

Removed = Literal["dead", "constant", "none"]
"""How zeros are planted: so that a channel does nothing, so that it carries a constant, or not at all."""


@dataclasses.dataclass(frozen=True)
class ShrinkTrial:
    """What a trial gave."""

    seed: int
    way: Removed
    trained: bool
    planted: int
    """Channels whose writers were set to zero."""
    cut: int
    """Channels cut."""
    left: float
    """The part of the parameters that is left."""
    error: float
    """The largest difference at any input, relative to the largest output."""
    shapes: int
    """How many shapes of input were compared."""
    kept: int
    """Groups of which planted channels stayed, each with a reason."""
    unexplained: int
    """Groups of which planted channels stayed without one."""


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


def trial(kind: str, seed: int, way: Removed = "dead") -> ShrinkTrial:
    """Plant zeros, shrink, compare; every other network is trained."""
    model, x = network(kind, seed)
    dice = random.Random(seed)
    if seed % 2:
        model = trained(model, x, dice.choice([1, 5, 20]))
    planted = 0
    if way != "none":
        groups = usable(model, traced(model, x, values=False)[0], x)
        model, planted = with_zeros(model, x, groups, dice, way)
    small, rows = shrunk(model, x)
    examples = variations(model, x)
    outputs = both(model, small, examples)
    kept = [row for row in rows if row.zero > row.cut]
    sizes = [sum(p.numel() for p in m.parameters()) for m in (model, small)]
    return ShrinkTrial(
        seed=seed,
        way=way,
        trained=bool(seed % 2),
        planted=planted,
        cut=sum(row.cut for row in rows),
        left=sizes[1] / sizes[0],
        error=float("inf") if outputs is None else output_difference(*outputs[:2]),
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


def with_zeros(
    model: nn.Module, x: Tensor, groups: list[Coupling], dice: random.Random, way: Removed
) -> tuple[nn.Module, int]:
    """A copy with zeros planted in random channels, and how many these are.

    ``"constant"``: the matrices that write a channel are zero; biases and norms go on. ``"dead"``: all that
    writes it is zero, and where that does not silence it (σ(0) = ½), what reads it too: whether it does is
    tried by setting the readers' slices to zero.
    """
    model, planted = copy.deepcopy(model), list[tuple[Coupling, Tensor]]()
    for group in groups:
        if group.blocked or group.channels < 2 or dice.random() < 0.2:
            continue
        gone = torch.tensor(dice.sample(range(group.channels), dice.randint(1, group.channels - 1)))
        planted.append((group, gone))
        set_to_zero(model, group.of("writes"), gone, least=2 if way == "constant" else 1)
    for group, gone in planted if way == "dead" else ():
        unread = copy.deepcopy(model)
        set_to_zero(unread, group.of("reads"), gone)
        if any(not torch.equal(a, b) for a, b in zip(*both_outputs(model, unread, x), strict=True)):
            model = unread
    return model, sum(len(gone) for _, gone in planted)


def both_outputs(one: nn.Module, other: nn.Module, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Two models' outputs on noise."""
    example = changed(x, noise(10.0))
    return outputs_of(one, [example]), outputs_of(other, [example])


def set_to_zero(model: nn.Module, members: Iterable[Member], gone: Tensor, least: int = 1) -> None:
    """Zero the slices of channels in parameters of at least so many dimensions."""
    parameters = dict(model.named_parameters())
    for member in members:
        if member.name in parameters and parameters[member.name].ndim >= least:
            index = member.index[torch.isin(member.channel, gone)]
            with torch.no_grad():
                parameters[member.name].index_fill_(member.dim, index, 0)
