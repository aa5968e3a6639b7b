"""B(y, N(u)) + αJ(u) with the states fixed to the forward pass: what several layers end with.

B keeps its slope σ(v) − y where a unit of the last layer is off and should not be; ½‖σ(v) − y‖² loses it.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchlift.convex.activations import Activation
from torchlift.convex.descent import Descent, Stopping, lbfgs
from torchlift.convex.functions import Box, Function, samples
from torchlift.inversion import deep
from torchlift.inversion.reading import AffineStage, forward_states

_RACE = 10
_SHARE = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """B(y, N(x)) + αJ(x), one number per sample; a box is kept by a quadratic penalty, then a cut.

    N = σ ∘ v: ``before`` is v, any network up to its last ``activation``.
    """

    before: Callable[[Tensor], Tensor]
    activation: Activation
    y: Tensor
    reg: Function
    box: Box | None

    def value(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """One number per sample; ``rows`` says which samples x holds, if not all."""
        y = self.y if rows is None else self.y[rows]
        inside = x if self.box is None else self.box.prox(x)
        fit = self.activation.penalty(y, self.before(inside)).reshape(len(x), -1).sum(1)
        return fit + self.reg.fn(inside) + samples(x - inside).square().sum(1) / 2

    def slope(self, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = self.value(x, rows)
            return value.detach(), torch.autograd.grad(value.sum(), x)[0]

    def lower(self, start: Tensor, stopping: Stopping) -> Descent:
        """Quasi-Newton, sample by sample."""
        solution = lbfgs(self.slope, start, stopping=stopping)
        x = solution.x if self.box is None else self.box.prox(solution.x)
        return dataclasses.replace(solution, x=x, objective=self.value(x))


def of_stages(stages: Sequence[AffineStage], y: Tensor, reg: Function, box: Box | None) -> Forward:
    """The objective of a chain."""
    *inner, last = stages
    return Forward(lambda x: last.affine(forward_states(inner, x)[-1]), last.activation, y, reg, box)


def descend_forward(
    stages: Sequence[AffineStage],
    y: Tensor,
    reg: Function,
    box: Box | None,
    init: Tensor | None,
    stopping: Stopping,
    blocks: deep.Blocks,
) -> Descent:
    """Block descent first, then quasi-Newton from where it ends, or from 0 where that is better.

    Half of the iterations and seconds go to the blocks. Which start is better is found by a race of ten
    steps, sample by sample.
    """
    begun = time.perf_counter()
    half = None if stopping.seconds is None else _SHARE * stopping.seconds
    sweeps = dataclasses.replace(stopping, max_iter=max(1, round(_SHARE * stopping.max_iter)), seconds=half)
    lifted = deep.descend_blocks(stages, y, reg, box, init, sweeps, blocks)
    zero = torch.zeros_like(lifted.x) if init is None else init
    zero = zero if box is None else box.prox(zero)
    both = of_stages(stages, torch.cat([y, y]), reg, box)
    limit = None if stopping.seconds is None else stopping.seconds / 10
    raced = both.lower(torch.cat([zero, lifted.x]), Stopping(max_iter=_RACE, every=_RACE, seconds=limit))
    (a, b), (x, other) = raced.objective.chunk(2), raced.x.chunk(2)
    start = torch.where((a <= b).reshape(-1, *[1] * (x.ndim - 1)), x, other)
    left = None if stopping.seconds is None else max(1e-3, stopping.seconds - (time.perf_counter() - begun))
    rest = max(1, stopping.max_iter - lifted.iterations)
    solution = of_stages(stages, y, reg, box).lower(
        start, dataclasses.replace(stopping, max_iter=rest, seconds=left)
    )
    done = lifted.iterations
    rows = (*lifted.history, *((k + done, value, gap) for k, value, gap in solution.history))
    return dataclasses.replace(solution, iterations=solution.iterations + done, history=rows)
