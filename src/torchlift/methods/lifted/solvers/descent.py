"""min g(z) + h(z): rules that lower one block, from one proximal step to convergence."""

import abc
import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.convex.solvers.gradient import constant_momentum as constant_momentum
from torchlift.convex.solvers.solved import Solved, tell
from torchlift.methods.lifted.shard import Alone, Shard

_GRADIENT = 1e-9
_DOUBLINGS = 40


@dataclasses.dataclass(frozen=True)
class ConvexBlock:
    """One convex block: a majorise–minimize step (a proximal gradient step, say), its value, its gradient.

    ``step(z)`` minimizes an upper model of the objective that touches it at z, so it never raises it.
    ``momentum`` is the constant (√κ − 1)/(√κ + 1) if the condition number κ is known, else None.
    ``project`` puts an arbitrary point back into the domain; ``shard`` completes norms over processes.
    ``newton(z, tolerance, steps)``, where there is one, solves the block to that gradient.
    """

    step: Callable[[Tensor], Tensor]
    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    project: Callable[[Tensor], Tensor]
    momentum: float | None = None
    shard: Shard = Alone()
    newton: Callable[[Tensor, float, int], Solved] | None = None
    name: str = "a block"


def falling(
    z: Tensor,
    step: Callable[[float], Tensor],
    curvature: float,
    value: Callable[[Tensor], Tensor] | None,
) -> Tensor:
    """The step with this curvature, or with the first of its doubles at which the value does not rise; None:
    it never does. Where all do, z."""
    new = step(curvature)
    if value is None:
        return new
    before = value(z)
    for _ in range(_DOUBLINGS):
        if value(new) <= before:
            return new
        curvature *= 2
        new = step(curvature)
    return z


class DescentRule(abc.ABC):
    """How a block is lowered. All but ``Nesterov`` leave the objective no higher than they found it."""

    @abc.abstractmethod
    def __call__(self, block: ConvexBlock, z: Tensor) -> Tensor:
        """The new point."""


@dataclasses.dataclass(frozen=True)
class Linearized(DescentRule):
    """Plain majorise–minimize steps: monotone."""

    steps: int = 1

    def __call__(self, block: ConvexBlock, z: Tensor) -> Tensor:
        """z ← step(z), a few times."""
        for _ in range(self.steps):
            z = block.step(z)
        return z


@dataclasses.dataclass(frozen=True)
class Nesterov(DescentRule):
    """Constant-momentum steps without looking at the objective: the cheap inner loop of mini-batches."""

    steps: int = 5

    def __call__(self, block: ConvexBlock, z: Tensor) -> Tensor:
        """z ← step(z + β(z − last))."""
        point = z
        for _ in range(self.steps):
            new = block.step(point)
            point, z = torch.lerp(z, new, 1 + (block.momentum or 0.0)), new
        return z


@dataclasses.dataclass(frozen=True)
class Accelerated(DescentRule):
    """Nesterov's extrapolation, restarted whenever the objective would rise (O'Donoghue & Candès 2015)."""

    steps: int = 10
    tolerance: float = 0.0

    def __call__(self, block: ConvexBlock, z: Tensor) -> Tensor:
        """Extrapolate, step, and fall back on the plain step from the last point if that was worse."""
        point, weight = z, 1.0
        value = block.value(z)
        for _ in range(self.steps):
            new = block.step(point)
            new_value = block.value(new)
            if new_value > value:
                if point is z:
                    return z  # rounding: the step is monotone
                point, weight = z, 1.0
                continue
            small = _relative_change(new, z, block.shard) <= self.tolerance
            beta, weight = _extrapolation(block.momentum, weight)
            point, z, value = new + beta * (new - z), new, new_value
            if small:
                break
        return z


@dataclasses.dataclass(frozen=True)
class Exact(DescentRule):
    """The block's minimizer: by Newton's method to a gradient of 1e-9 where the block has it.

    Else Nesterov until the relative step is below 1e-8 (float64) or 1e-5 (float32), restarted when the
    momentum points uphill: objectives cannot be compared that finely. ``tolerance`` replaces these numbers.
    A block that is not solved after ``steps`` gives a ``StoppedShortWarning``.
    """

    tolerance: float | None = None
    steps: int = 5000

    def __call__(self, block: ConvexBlock, z: Tensor) -> Tensor:
        """The minimizer, or as far as it got, with a warning."""
        fix = "raise mu or rho, take more steps (Exact(steps=…)), or choose update='accelerated'"
        return tell(f"exact: {block.name}", self.solve(block, z), fix)

    def solve(self, block: ConvexBlock, z: Tensor) -> Solved:
        """The minimizer, and whether it is one."""
        if block.newton is not None:
            solved = block.newton(z, _GRADIENT if self.tolerance is None else self.tolerance, self.steps)
        else:
            solved = self._nesterov(block, z)
        return solved if not block.value(solved.x) > block.value(z) else solved._replace(x=z)

    def _nesterov(self, block: ConvexBlock, z: Tensor) -> Solved:
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = 1e-8 if z.dtype == torch.float64 else 1e-5
        point, weight, count, change = z, 1.0, 0, 0.0
        while count < self.steps:
            count += 1
            new = block.step(point)
            turned = float(block.shard.sum(((point - new) * (new - z)).sum())) > 0
            change = _relative_change(new, z, block.shard)
            beta, weight = (0.0, 1.0) if turned else _extrapolation(block.momentum, weight)
            point, z = new + beta * (new - z), new
            if change <= tolerance:
                break
        return Solved(z, change <= tolerance, change, count)


@dataclasses.dataclass(frozen=True)
class HeavyBall(DescentRule):
    """Proximal steps with momentum 0.9; a step that would raise the objective is taken without it."""

    steps: int = 5
    momentum: float = 0.9

    def __call__(self, block: ConvexBlock, z: Tensor) -> Tensor:
        """z ← step(z) + 0.9·(last move), projected."""
        move = torch.zeros_like(z)
        value = block.value(z)
        for _ in range(self.steps):
            plain = block.step(z)
            new = block.project(plain + self.momentum * move)
            new_value = block.value(new)
            if not new_value <= value:
                new, new_value = plain, block.value(plain)
            move, z, value = new - z, new, new_value
        return z


@dataclasses.dataclass(frozen=True)
class Adaptive(DescentRule):
    """Adam on the block's gradient, projected on the domain; halved and restarted when it would rise."""

    steps: int = 10
    lr: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)

    def __call__(self, block: ConvexBlock, z: Tensor) -> Tensor:
        """Adam's update of z, guarded."""
        lr, value, k = self.lr, block.value(z), 0
        first, second = torch.zeros_like(z), torch.zeros_like(z)
        for _ in range(self.steps):
            k += 1
            gradient = block.gradient(z)
            first = self.betas[0] * first + (1 - self.betas[0]) * gradient
            second = self.betas[1] * second + (1 - self.betas[1]) * gradient.square()
            scale = math.sqrt(1 - self.betas[1] ** k) / (1 - self.betas[0] ** k)
            new = block.project(z - lr * scale * first / (second.sqrt() + 1e-8))
            new_value = block.value(new)
            if new_value <= value:
                z, value = new, new_value
            else:
                lr, k = lr / 2, 0
                first, second = torch.zeros_like(z), torch.zeros_like(z)
        return z


def _extrapolation(momentum: float | None, weight: float) -> tuple[float, float]:
    following = (1 + math.sqrt(1 + 4 * weight**2)) / 2
    return ((weight - 1) / following if momentum is None else momentum), following


def _relative_change(new: Tensor, old: Tensor, shard: Shard) -> float:
    change, size = shard.sum(torch.stack([(new - old).square().sum(), new.square().sum()]))
    return math.sqrt(float(change)) / max(math.sqrt(float(size)), torch.finfo(new.dtype).tiny)


_RULES: dict[str, DescentRule] = {
    "exact": Exact(),
    "linearized": Linearized(),
    "accelerated": Accelerated(),
    "momentum": HeavyBall(),
    "adaptive": Adaptive(),
}


def descent_rule(rule: str | DescentRule) -> DescentRule:
    """The rule called ``rule``; a rule is returned as is."""
    if isinstance(rule, DescentRule):
        return rule
    if rule not in _RULES:
        raise ValueError(f"update: no rule {rule!r}; known: {', '.join(_RULES)}")
    return _RULES[rule]
