"""½‖N(u) − y‖² + αJ(u) through autograd, by Adam or L-BFGS: what everyone else would do."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.convex.descent import Descent, Stopping
from torchlift.convex.functions import Box, Function, samples

METHODS = ("adam", "lbfgs")
_RESETS = 3


def _optimizer(u: Tensor, method: str, lr: float | None) -> torch.optim.Optimizer:
    if method == "adam":
        return torch.optim.Adam([u], lr=lr or 0.02)
    return torch.optim.LBFGS([u], lr=lr or 1.0, max_iter=1, history_size=20, line_search_fn="strong_wolfe")


def descend_penalized(
    network: Callable[[Tensor], Tensor],
    y: Tensor,
    reg: Function,
    box: Box | None,
    init: Tensor,
    stopping: Stopping,
    method: str,
    lr: float | None = None,
) -> Descent:
    """From ``init``, a box kept by a quadratic penalty, until u stands still or a limit is met."""
    u = init.detach().clone().requires_grad_()
    optimizer, resets = _optimizer(u, method, lr), 0

    def objective(x: Tensor) -> Tensor:
        inside = x if box is None else box.prox(x)
        return (
            samples(network(inside) - y).square().sum(1) / 2
            + reg.fn(inside)
            + samples(x - inside).square().sum(1) / 2
        )

    def closure() -> float:
        optimizer.zero_grad()
        value = objective(u).sum()
        u.grad = torch.autograd.grad(value, u)[0]
        return float(value.detach())

    begun, rows, converged, k = time.perf_counter(), list[tuple[int, float, float | None]](), False, 0
    for k in range(1, stopping.max_iter + 1):
        last = u.detach().clone()
        value = optimizer.step(closure)
        with torch.no_grad():
            size = samples(u).norm(dim=1).clamp(min=1e-12)
            change = float((samples(u - last).norm(dim=1) / size).max())
        late = stopping.seconds is not None and time.perf_counter() - begun >= stopping.seconds
        converged = change <= stopping.tol / 10 and resets >= _RESETS
        if change <= stopping.tol / 10 and not converged:
            optimizer, resets = _optimizer(u, method, lr), resets + 1  # a failed line search leaves bad pairs
        elif change > stopping.tol:
            resets = 0
        if k % stopping.every == 0 or late or converged:
            rows.append((k, float(value or 0.0), None))
            if stopping.report is not None:
                stopping.report(k, float(value or 0.0), None)
        if late or converged:
            break
    with torch.no_grad():
        x = u.detach() if box is None else box.prox(u.detach())
        return Descent(x, objective(x), k, converged, None, None, tuple(rows))
