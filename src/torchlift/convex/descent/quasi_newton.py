"""min F(x), sample by sample: limited-memory BFGS (Liu & Nocedal 1989) for a whole batch at once.

Every sample has its own curvature pairs and its own step, unlike one L-BFGS on the sum over the batch.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.convex.descent.stopping import Descent, Monitor, Stopping
from torchlift.convex.functions.base import samples

_MEMORY = 20
_HALVINGS = 8
_ARMIJO = 1e-4

Slope = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""(x, which samples it holds or None for all) → (F(x) per sample, ∇F(x))."""


def lbfgs(slope: Slope, start: Tensor, *, stopping: Stopping | None = None) -> Descent:
    """From ``start``; a sample whose line search fails starts again along its gradient, then rests."""
    monitor = Monitor(stopping or Stopping(), lambda x: slope(x, None)[0], None)
    x, pairs, k = samples(start), list[tuple[Tensor, Tensor, Tensor]](), 0
    value, gradient = _flat(slope, x, start)
    for k in range(1, monitor.stopping.max_iter + 1):
        direction = _direction(gradient, pairs)
        downhill = (direction * gradient).sum(1) < 0
        direction = torch.where(downhill[:, None], direction, -gradient)
        new, new_value, new_gradient = _search(slope, x, value, gradient, direction, start, bool(pairs))
        pairs = _remember(pairs, new - x, new_gradient - gradient, (new == x).all(1))
        last, x, value, gradient = x, new, new_value, new_gradient
        if monitor.enough(k, x.reshape(start.shape), last.reshape(start.shape)):
            break
    return monitor.result(x.reshape(start.shape), k)


def _flat(slope: Slope, x: Tensor, like: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    value, gradient = slope(x.reshape(-1, *like.shape[1:]), rows)
    return value, samples(gradient)


def _direction(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """−H∇F by the two-loop recursion, row by row."""
    q, weights = gradient, list[Tensor]()
    for s, y, rho in reversed(pairs):
        a = rho * (s * q).sum(1)
        q = q - a[:, None] * y
        weights.append(a)
    if pairs:
        s, y, rho = pairs[-1]
        curved = rho > 0
        scale = torch.where(curved, (s * y).sum(1) / y.square().sum(1).clamp(min=1e-30), 1.0)
        q = scale[:, None] * q
    for (s, y, rho), a in zip(pairs, reversed(weights), strict=True):
        q = q + (a - rho * (y * q).sum(1))[:, None] * s
    return -q


def _remember(
    pairs: list[tuple[Tensor, Tensor, Tensor]], s: Tensor, y: Tensor, failed: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Add a pair; 1/sᵀy is 0, so that the pair does nothing, where curvature is not positive.

    A sample whose search failed forgets all its pairs.
    """
    product = (s * y).sum(1)
    fine = product > 1e-10 * y.square().sum(1)
    rho = torch.where(fine, 1 / torch.where(fine, product, 1.0), 0.0)
    kept = [(a, b, torch.where(failed, 0.0, r)) for a, b, r in pairs[-_MEMORY + 1 :]]
    return [*kept, (s, y, rho)]


def _search(
    slope: Slope,
    x: Tensor,
    value: Tensor,
    gradient: Tensor,
    direction: Tensor,
    like: Tensor,
    scaled: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Halve each sample's step until its value falls enough; a sample that never falls stays."""
    length = direction.norm(dim=1).clamp(min=1e-30)
    step = torch.ones_like(value) if scaled else 1 / length.clamp(min=1.0)
    slant = (direction * gradient).sum(1)
    best, best_value, best_gradient = x, value, gradient
    rows = torch.arange(len(x), device=x.device)
    for _ in range(_HALVINGS):
        trial = x[rows] + step[rows, None] * direction[rows]
        trial_value, trial_gradient = _flat(slope, trial, like, rows)
        good = trial_value <= value[rows] + _ARMIJO * step[rows] * slant[rows]
        done = rows[good]
        best = best.index_copy(0, done, trial[good])
        best_value = best_value.index_copy(0, done, trial_value[good])
        best_gradient = best_gradient.index_copy(0, done, trial_gradient[good])
        rows = rows[~good]
        if len(rows) == 0:
            break
        step = step.index_copy(0, rows, step[rows] / 2)
    return best, best_value, best_gradient
