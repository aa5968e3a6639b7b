"""min F(x) + f(x), F smooth and f by its prox: accelerated proximal gradient (Beck & Teboulle 2009).

Restarted sample by sample whenever the momentum points uphill (O'Donoghue & Candès 2015).
"""

import torch
from torch import Tensor

from torchlift.convex.descent.stopping import Descent, Gap, Monitor, Smooth, Stopping
from torchlift.convex.functions.base import Function, samples


def fista(
    smooth: Smooth,
    function: Function,
    start: Tensor,
    *,
    gap: Gap | None = None,
    stopping: Stopping | None = None,
) -> Descent:
    """x ← prox of f/L at p − ∇F(p)/L, p = x + β(x − last), from ``start``."""
    monitor = Monitor(stopping or Stopping(), lambda x: smooth.value(x) + function.fn(x), gap)
    step, x, point = 1 / max(smooth.lipschitz, 1e-30), start, start
    weight = start.new_ones(len(start))
    k = 0
    for k in range(1, monitor.stopping.max_iter + 1):
        new = function.prox(point - step * smooth.gradient(point), step)
        turned = samples((point - new) * (new - x)).sum(1) > 0
        following = (1 + torch.sqrt(1 + 4 * weight.square())) / 2
        beta = torch.where(turned, 0.0, (weight - 1) / following)
        weight = torch.where(turned, 1.0, following)
        last, x, point = x, new, new + beta.reshape(-1, *[1] * (x.ndim - 1)) * (new - x)
        if monitor.enough(k, x, last):
            break
    return monitor.result(x, k)
