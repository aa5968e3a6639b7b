"""B(y, N(u)) + αJ(u) with the states held to the forward pass: what several layers end with.

B keeps its slope σ(v) − y where a unit of the last layer is off and should not be; ½‖σ(v) − y‖² loses it.
"""

import dataclasses
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from torchlift.convex.descent import Descent, Watch, lbfgs
from torchlift.convex.functions import Box, Function, samples
from torchlift.inversion import deep
from torchlift.inversion.reading import Stage, run

_SWEEPS = 5
_RACE = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """B(y, N(x)) + αJ(x), one number per sample; a box is kept by a quadratic penalty, then a cut."""

    stages: Sequence[Stage]
    y: Tensor
    reg: Function
    box: Box | None

    def value(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """One number per sample; ``rows`` says which samples x holds, if not all."""
        y = self.y if rows is None else self.y[rows]
        inside = x if self.box is None else self.box.prox(x)
        last, below = self.stages[-1], run(self.stages[:-1], inside)[-1]
        fit = last.activation.penalty(y, last.affine(below)).reshape(len(x), -1).sum(1)
        return fit + self.reg.fn(inside) + samples(x - inside).square().sum(1) / 2

    def slope(self, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = self.value(x, rows)
            return value.detach(), torch.autograd.grad(value.sum(), x)[0]

    def lower(self, start: Tensor, watch: Watch) -> Descent:
        """Quasi-Newton, sample by sample."""
        found = lbfgs(self.slope, start, watch=watch)
        x = found.x if self.box is None else self.box.prox(found.x)
        return dataclasses.replace(found, x=x, objective=self.value(x))


def descend(
    stages: Sequence[Stage],
    y: Tensor,
    reg: Function,
    box: Box | None,
    init: Tensor | None,
    watch: Watch,
    blocks: deep.Blocks,
) -> Descent:
    """Quasi-Newton from ``init``, or from the better of two starts: 0 and a short lifted descent.

    Which is better is found by a race of ten steps, sample by sample.
    """
    begun = time.perf_counter()
    start = init
    if start is None:
        zero = y.new_zeros(len(y), *stages[0].affine.shape)
        zero = zero if box is None else box.prox(zero)
        limit = None if watch.seconds is None else watch.seconds / 10
        short = Watch(tol=watch.tol, max_iter=_SWEEPS, every=_SWEEPS, seconds=limit)
        lifted = deep.descend(stages, y, reg, box, None, short, blocks).x
        both = Forward(stages, torch.cat([y, y]), reg, box)
        limit = None if watch.seconds is None else watch.seconds / 5
        raced = both.lower(torch.cat([zero, lifted]), Watch(max_iter=_RACE, every=_RACE, seconds=limit))
        (a, b), (x, other) = raced.objective.chunk(2), raced.x.chunk(2)
        start = torch.where((a <= b).reshape(-1, *[1] * (x.ndim - 1)), x, other)
    left = None if watch.seconds is None else max(1e-3, watch.seconds - (time.perf_counter() - begun))
    return Forward(stages, y, reg, box).lower(start, dataclasses.replace(watch, seconds=left))
