"""When a descent ends, and what it says of itself: nothing is called solved that was only stopped."""

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from torchlift.convex.functions.base import samples


class Smooth(Protocol):
    """A convex function with a Lipschitz gradient, one number per sample."""

    @property
    def lipschitz(self) -> float:
        """That of the gradient."""
        ...

    def value(self, x: Tensor) -> Tensor:
        """F(x), one number per sample."""
        ...

    def gradient(self, x: Tensor) -> Tensor:
        """∇F(x)."""
        ...


class Certificate(NamedTuple):
    """F(x) − min F is at most ``gap``, sample by sample; differences below ``rounding`` mean nothing."""

    gap: Tensor
    rounding: Tensor


Gap = Callable[[Tensor, Tensor | None], Certificate]
"""(x, dual variable or None) → certificate; +inf where none can be given."""


@dataclasses.dataclass(frozen=True)
class Stopping:
    """When to stop: gap ≤ ``tol``·objective (relative change of x where there is no gap), steps, seconds.

    ``report(step, objective, gap)`` is called at every look, one look in ``every`` steps.
    """

    tol: float = 1e-6
    max_iter: int = 10_000
    every: int = 10
    seconds: float | None = None
    report: Callable[[int, float, float | None], None] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent ended: ``converged`` only if its own test was met for every sample."""

    x: Tensor
    objective: Tensor
    iterations: int
    converged: bool
    gap: Tensor | None = None
    dual: Tensor | None = None
    history: tuple[tuple[int, float, float | None], ...] = ()


class Monitor:
    """Measures a descent on its way, and says when to stop."""

    def __init__(self, stopping: Stopping, objective: Callable[[Tensor], Tensor], gap: Gap | None) -> None:
        self.stopping, self.objective, self.gap = stopping, objective, gap
        self.started = time.perf_counter()
        self.rows: list[tuple[int, float, float | None]] = []
        self.certificate: Certificate | None = None
        self.converged = False

    def enough(self, step: int, x: Tensor, last: Tensor, dual: Tensor | None = None) -> bool:
        """Look if it is time to, and say whether to stop; ``last`` is the point one step before."""
        stopping = self.stopping
        late = stopping.seconds is not None and time.perf_counter() - self.started >= stopping.seconds
        if step % stopping.every and step < stopping.max_iter and not late:
            return False
        value = self.objective(x)
        self.certificate = self.gap(x, dual) if self.gap is not None else None
        self.converged = self._met(x, last, value)
        gap = None if self.certificate is None else float(self.certificate.gap.sum())
        self.rows.append((step, float(value.sum()), gap))
        if stopping.report is not None:
            stopping.report(step, float(value.sum()), gap)
        return self.converged or late

    def _met(self, x: Tensor, last: Tensor, value: Tensor) -> bool:
        certificate = self.certificate
        if certificate is not None and bool(torch.isfinite(certificate.gap).all()):
            return bool(
                (
                    certificate.gap <= torch.maximum(self.stopping.tol * value.abs(), certificate.rounding)
                ).all()
            )
        change = samples(x - last).norm(dim=1)
        floor = 8 * torch.finfo(x.dtype).eps
        return bool(
            (change <= max(self.stopping.tol / 10, floor) * samples(x).norm(dim=1).clamp(min=1e-12)).all()
        )

    def result(self, x: Tensor, step: int, dual: Tensor | None = None) -> Descent:
        """All that was seen."""
        gap = None if self.certificate is None else self.certificate.gap
        if gap is not None and not bool(torch.isfinite(gap).all()):
            gap = None
        return Descent(x, self.objective(x), step, self.converged, gap, dual, tuple(self.rows))
