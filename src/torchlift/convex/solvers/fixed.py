"""x = σ(v − ∇g(x)/μ), sample by sample: the states that minimize μ[f(x) − ⟨x, v⟩] + g(x), by Newton's method.

With r = x − σ(s), s = v − ∇g(x)/μ, D = σ'(s)/μ and M = ∇²g(x), the step solves (D + DMD)y = DMr and goes to
σ(s + y/μ): a primal–dual active-set step for ReLU, in reach of any activation, domains and all. Conjugate
gradients solve it for all samples at once. A sample whose residual is not halved takes first-order steps.
"""

import abc
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from torchlift.convex.activations.base import Activation
from torchlift.convex.functions.base import samples
from torchlift.convex.solvers.solved import Solved

_INNER = 100
_LEFT = 1e-3  # of the residual, after conjugate gradients


class Pulled(abc.ABC):
    """The states of some samples: σ, μ, the pull ∇g(x) − μv and its derivative, and proximal gradient steps.

    μ is one number, or one per entry if it is the same wherever σ ties entries to one another. Residuals
    are given as gradients, μ|r|.
    """

    activation: Activation
    mu: float | Tensor
    momentum: float

    @abc.abstractmethod
    def pull(self, x: Tensor) -> Tensor:
        """∇g(x) − μv."""

    @abc.abstractmethod
    def bend(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """d ↦ ∇²g(x)d."""

    @abc.abstractmethod
    def step(self, x: Tensor) -> Tensor:
        """One proximal gradient step, which never raises the objective."""

    @abc.abstractmethod
    def rows(self, index: Tensor) -> Self:
        """The problem of some samples."""

    def natural(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """s = v − ∇g(x)/μ, and r = x − σ(s), which is 0 at the solution alone."""
        s = -self.pull(x) / self.mu
        return s, x - self.activation(s)

    def largest(self, r: Tensor) -> Tensor:
        """μ|r|, the largest entry of every sample."""
        return samples(self.mu * r.abs()).amax(1)


def newton_states(
    problem: Pulled, start: Tensor, *, tolerance: float = 1e-9, rounds: int = 200, plain: int = 20
) -> Solved:
    """All samples from ``start``; those that are done leave the computation."""
    result, final = start.clone(), torch.zeros(len(start), dtype=start.dtype, device=start.device)
    index, x = torch.arange(len(start), device=start.device), start
    eps = 64 * torch.finfo(start.dtype).eps
    s, r = problem.natural(x)
    step, left = 0, torch.zeros_like(index, dtype=torch.bool)
    for step in range(rounds + 1):
        size = problem.largest(r)
        result[index], final[index] = x, size
        left = size > (eps * problem.largest(s.abs() + x.abs())).clamp(min=tolerance)
        if step == rounds or not bool(left.any()):
            break
        if not bool(left.all()):
            index, x, s, r, size = index[left], x[left], s[left], r[left], size[left]
            problem = problem.rows(left.nonzero()[:, 0])
        new = problem.activation(s + _conjugate_direction(problem, x, s, r) / problem.mu)
        s, r = problem.natural(new)
        worse = (~(problem.largest(r) <= size / 2)).nonzero()[:, 0]
        if len(worse):
            some = problem.rows(worse)
            new[worse] = _proximal_steps(some, x[worse], plain * (1 + step // 5))
            s[worse], r[worse] = some.natural(new[worse])
        x = new
    return Solved(result, not bool(left.any()), float(final.max()) if len(final) else 0.0, step)


def _proximal_steps(problem: Pulled, x: Tensor, steps: int) -> Tensor:
    """Accelerated proximal gradient steps."""
    point = x
    for step in range(steps):
        new = problem.step(point)
        point, x = torch.lerp(x, new, 1 + min(step / (step + 3), problem.momentum)), new
    return x


def _conjugate_direction(problem: Pulled, x: Tensor, s: Tensor, r: Tensor) -> Tensor:
    """Y with (D + DMD)y = DMr, by conjugate gradients scaled with the diagonal of D."""
    act, bend = problem.activation, problem.bend(x)
    diagonal = act.diagonal(s) / problem.mu
    scale = torch.where(diagonal > 0, 1 / diagonal.clamp(min=torch.finfo(x.dtype).tiny), 0.0)

    jacobian = act.jacobian(s) if act.vector else None

    def derivative(d: Tensor) -> Tensor:
        return diagonal * d if jacobian is None else jacobian(d) / problem.mu

    residual = derivative(bend(r))
    y, direction = torch.zeros_like(r), scale * residual
    energy = _sample_dot(residual, direction)
    stop, tiny = _LEFT**2 * energy, torch.finfo(x.dtype).tiny
    for _ in range(_INNER):
        if bool((energy <= stop).all()):
            break
        inner = derivative(direction)
        product = inner + derivative(bend(inner))
        curve = _sample_dot(direction, product)
        rate = torch.where((energy > stop) & (curve > 0), energy / curve.clamp(min=tiny), 0.0)
        y, residual = y + rate * direction, residual - rate * product
        z = scale * residual
        following = _sample_dot(residual, z)
        direction = z + following / energy.clamp(min=tiny) * direction
        energy = following
    return y


def _sample_dot(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ of every sample, in a shape that multiplies samples."""
    return samples(a * b).sum(1).reshape(-1, *[1] * (a.ndim - 1))
