"""min μ ΣB(U, A Wᵀ + b) + ρ‖W‖²: Newton's method for all units of a layer, each with a Hessian of its own.

∇²_j = Aᵀ diag(σ'(v_j)) A + 2ρ/μ. From step to step only the rows whose σ' changed are added to it or taken
away, so that a piecewise linear unit pays for its active set once. Where σ' changes everywhere the factor is
kept and conjugate gradients do the rest. The step length is the root of φ', which no rounding of the
objective disturbs. Units that share one vector (softmax) are solved together, always by conjugate gradients:
their Hessians only precondition and are made of every n-th row where there are many.
"""

import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.convex.activations.base import Activation
from torchlift.convex.solvers.interior import factor
from torchlift.convex.solvers.solved import Here, Solved, Sums

_HELD = 2**24  # entries of the Hessians in memory at once
_STALE = 0.5  # relative change of σ' above which a row is exchanged
_SLIGHT = 0.02  # change of σ', in units of ℓ, below which it is not
_INNER = 100  # conjugate gradient steps after which the factors are computed again
_LEFT = 1e-1  # of the residual, after conjugate gradients: Newton steps are damped for long on separable data
_SEARCH = 20  # evaluations of φ' along a direction
_SAMPLED = 16  # rows per coordinate in a Hessian that only preconditions


def newton_units(
    rows: Tensor,
    target: Tensor,
    activation: Activation,
    mu: float,
    rho: float,
    theta: Tensor,
    *,
    bias: bool = True,
    sums: Sums | None = None,
    tolerance: float = 1e-9,
    steps: int = 100,
) -> Solved:
    """θ = [W | b] from ``theta``, in float64; solved where all entries of the gradient are within tolerance.

    Entries that rounding alone keeps from it count as solved. ``residual`` is the largest entry.
    """
    design = _Design.of(rows.double(), bias, 2 * rho / mu, sums or Here())
    wide, u = theta.double(), target.double()
    inner = design.inside(wide)
    size = len(theta) if activation.vector else max(1, _HELD // design.a.shape[1] ** 2)
    solutions: list[Solved] = []
    for start in range(0, len(theta), size):
        some = slice(start, start + size)
        units = _Units(design, u[:, some], activation.columns(some), tolerance / mu)
        solutions.append(units.solve(inner[some], steps))
    answer = design.outside(torch.cat([one.x for one in solutions]), wide)
    residual = mu * max(one.residual for one in solutions)
    return Solved(
        answer.to(theta),
        all(one.converged for one in solutions),
        residual,
        max(one.steps for one in solutions),
    )


@dataclasses.dataclass
class _Design:
    """A with its column of ones, in fewer coordinates where some inputs are always 0 or samples are few."""

    a: Tensor
    ridge: Tensor
    used: Tensor
    basis: Tensor | None
    bias: bool
    sums: Sums

    @classmethod
    def of(cls, rows: Tensor, bias: bool, ridge: float, sums: Sums) -> "_Design":
        used = sums.sum(rows.abs().sum(0)) > 0
        a, basis = rows[:, used], None
        if a.shape[1] > len(a) and sums.processes == 1:
            basis = torch.linalg.qr(a.mT).Q
            a = a @ basis
        weights = a.new_full((a.shape[1] + bias,), ridge)
        if bias:
            a, weights[-1] = torch.cat([a, a.new_ones(len(a), 1)], 1), 0.0
        return cls(a, weights, used, basis, bias, sums)

    def inside(self, theta: Tensor) -> Tensor:
        """θ in the coordinates of A."""
        weight = theta[:, :-1][:, self.used]
        weight = weight if self.basis is None else weight @ self.basis
        return torch.cat([weight, theta[:, -1:]], 1) if self.bias else weight

    def outside(self, inner: Tensor, theta: Tensor) -> Tensor:
        """Back; what A does not see of the weights is 0 under a ridge penalty, and stays without one."""
        weights = inner[:, :-1] if self.bias else inner
        free = float(self.ridge.max()) == 0
        if self.basis is not None:
            rest = theta[:, :-1][:, self.used] if free else weights.new_zeros(())
            rest = rest - rest @ self.basis @ self.basis.mT if free else rest
            weights = weights @ self.basis.mT + rest
        weight = theta[:, :-1].clone() if free else torch.zeros_like(theta[:, :-1])
        weight[:, self.used] = weights
        return torch.cat([weight, inner[:, -1:] if self.bias else theta[:, -1:]], 1)


def _gram(rows: Tensor, weights: Tensor) -> Tensor:
    """Σ w a aᵀ, the two halves of its columns apart: what mirrors is not worked out twice."""
    half, weighted = rows.shape[1] // 2, rows * weights[:, None]
    gram = rows.new_empty(rows.shape[1], rows.shape[1])
    gram[:, half:] = rows.mT @ weighted[:, half:]
    gram[:half, :half] = rows[:, :half].mT @ weighted[:, :half]
    gram[half:, :half] = gram[:half, half:].mT
    return gram


class _Units:
    """Some units at once: Hessians, factors and directions, one per unit; those that are done are left."""

    def __init__(self, design: _Design, target: Tensor, activation: Activation, tolerance: float) -> None:
        self.a, self.ridge, self.sums = design.a, design.ridge, design.sums
        self.target, self.activation, self.tolerance = target, activation, tolerance
        self.every = max(1, len(self.a) // (_SAMPLED * self.a.shape[1])) if activation.vector else 1
        self.sampled = self.a[:: self.every]
        self.squares = self.sums.sum(self.a.square().sum(0))
        floor = torch.finfo(self.a.dtype).eps * self.a.shape[1] * self.squares  # no curvature is none
        self.hessian = torch.diag(self.ridge + floor).expand(target.shape[1], -1, -1).clone()
        self.weights = torch.zeros_like(target[:: self.every])

    def solve(self, theta: Tensor, steps: int) -> Solved:
        """Newton steps until every unit is done."""
        left = torch.arange(len(theta), device=theta.device)
        residual = theta.new_zeros(len(theta))
        for step in range(steps + 1):
            some = _Line(self, left, theta[left])
            gradient, rounding = some.gradient()
            wrong = (gradient.abs() > rounding.clamp(min=self.tolerance)).any(1)
            residual[left] = gradient.abs().amax(1)
            if self.activation.vector:
                wrong = wrong.any().expand(len(wrong))
            if step == steps or not bool(wrong.any()):
                return Solved(theta, not bool(wrong.any()), float(residual.max()), step)
            if not bool(wrong.all()):
                left, gradient = left[wrong], gradient[wrong]
                some = _Line(self, left, theta[left])
            if step == 0:
                self._start(some.bend)
            move = self._direction(some, gradient)
            theta = theta.index_copy(0, left, theta[left] + some.length(move)[:, None] * move)
        raise AssertionError("the last step returns")

    def _start(self, bend: Tensor) -> None:
        """Hessians of all rows where most have σ' near ℓ: there are fewer rows to take away than to add."""
        lipschitz = self.activation.lipschitz
        most = self.sums.sum((bend - lipschitz / 2).sign().sum(0)) > 0
        if len(most) == len(self.hessian) and bool(most.any()):
            self.hessian[most] += lipschitz * self.every * self.sums.sum(self.sampled.mT @ self.sampled)
            self.weights = torch.where(most, lipschitz, self.weights)

    def _direction(self, some: "_Line", gradient: Tensor) -> Tensor:
        """−∇²⁻¹∇: by the factors if they are exact, else by conjugate gradients, or by new factors."""
        if self._refresh(some.left, some.bend, _STALE, _SLIGHT) and not self.activation.vector:
            return self._solver(some.left)(-gradient)
        d, solved = some.conjugate(-gradient, self._solver(some.left))
        if solved or self.activation.vector:
            return d
        self._refresh(some.left, some.bend, 0.0, 0.0)
        return self._solver(some.left)(-gradient)

    def _solver(self, left: Tensor) -> Callable[[Tensor], Tensor]:
        roots = factor(self.hessian if len(left) == len(self.hessian) else self.hessian[left])
        return lambda right: torch.cholesky_solve(right[:, :, None], roots)[:, :, 0]

    def _refresh(self, left: Tensor, bend: Tensor, relative: float, absolute: float) -> bool:
        """Exchange the rows of each Hessian whose σ' changed; whether it is exact now."""
        old, bend = self.weights[:, left], bend[:: self.every]
        change = bend - old
        stale = (change.abs() > relative * torch.maximum(bend, old)) & (
            change.abs() > absolute * self.activation.lipschitz
        )
        for column, unit in enumerate(left.tolist()):
            index = stale[:, column].nonzero()[:, 0]
            rows, change_of_rows = self.sampled[index], self.every * change[index, column]
            self.hessian[unit] += self.sums.sum(_gram(rows, change_of_rows))
        new = torch.where(stale, bend, old)
        self.weights[:, left] = new
        return float(self.sums.sum((new - bend).abs().sum())) == 0


class _Line:
    """Units at one θ: v, σ'(v), the gradient, and what happens along a direction."""

    def __init__(self, units: _Units, left: Tensor, theta: Tensor) -> None:
        whole = len(left) == units.target.shape[1]
        self.units, self.left, self.theta, self.sums = units, left, theta, units.sums
        self.target = units.target if whole else units.target[:, left]
        self.activation = units.activation if whole else units.activation.columns(left)
        self.v = units.a @ theta.mT

    @functools.cached_property
    def bend(self) -> Tensor:
        """σ'(v), or the diagonal of it."""
        return self.activation.diagonal(self.v)

    def gradient(self) -> tuple[Tensor, Tensor]:
        """∇ and, entry by entry, how much of it is rounding."""
        units, value = self.units, self.activation(self.v)
        gradient = self.sums.sum((value - self.target).mT @ units.a) + units.ridge * self.theta
        length = self.sums.sum((value.square() + self.target.square()).sum(0)).sqrt()
        size = length[:, None] * units.squares.sqrt() + (units.ridge + units.squares) * self.theta.abs()
        return gradient, 32 * torch.finfo(size.dtype).eps * size

    def _total(self, summands: Tensor) -> Tensor:
        """Σ over coordinates, for every unit; over all units where they share a vector."""
        inner = summands.sum(1)
        return inner.sum().expand(len(inner)) if self.activation.vector else inner

    def _bent(self, v: Tensor, image: Tensor) -> Tensor:
        """σ'(v)·image."""
        act = self.activation
        return act.tangent(v, image) if act.vector else act.diagonal(v) * image

    def conjugate(self, right: Tensor, precondition: Callable[[Tensor], Tensor]) -> tuple[Tensor, bool]:
        """∇² d = right by preconditioned conjugate gradients, and whether they got there."""
        a, d, residual = self.units.a, torch.zeros_like(right), right
        jacobian = self.activation.jacobian(self.v) if self.activation.vector else None
        z = precondition(residual)
        direction, energy = z, self._total(residual * z)
        stop, tiny = _LEFT**2 * energy, torch.finfo(right.dtype).tiny
        for _ in range(_INNER):
            if bool((energy <= stop).all()):
                break
            image = a @ direction.mT
            bent = self.bend * image if jacobian is None else jacobian(image)
            product = self.sums.sum(bent.mT @ a) + self.units.ridge * direction
            curve = self._total(direction * product)
            rate = torch.where((energy > stop) & (curve > 0), energy / curve.clamp(min=tiny), 0.0)[:, None]
            d, residual = d + rate * direction, residual - rate * product
            z = precondition(residual)
            following = self._total(residual * z)
            direction = z + (following / energy.clamp(min=tiny))[:, None] * direction
            energy = following
        return d, bool((energy <= stop).all())

    def length(self, move: Tensor) -> Tensor:
        """t with φ'(t) = 0, φ(t) = F(θ + t·move), unit by unit: Newton's method within a bracket."""
        image, ridge = self.units.a @ move.mT, self.units.ridge
        linear, square = self._total(ridge * self.theta * move), self._total(ridge * move * move)

        def slopes(t: Tensor) -> tuple[Tensor, Tensor]:
            point = self.v + t * image
            first = self.sums.sum(((self.activation(point) - self.target) * image).sum(0))
            second = self.sums.sum((self._bent(point, image) * image).sum(0))
            return self._total(first[:, None]) + linear + t * square, self._total(second[:, None]) + square

        t = torch.ones_like(linear)
        low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
        start = slopes(low)[0].abs()
        for _ in range(_SEARCH):
            first, second = slopes(t)
            wide = first.abs() > 0.1 * start
            if not bool(wide.any()):
                break
            low, high = torch.where(first < 0, t, low), torch.where(first < 0, high, t)
            newton = t - first / second.clamp(min=torch.finfo(t.dtype).tiny)
            far = torch.where(high.isinf(), 4 * t, (low + high) / 2)
            fits = (newton > low) & (newton < high) & (newton <= 8 * t)
            t = torch.where(wide, torch.where(fits, newton, far), t)
        return t
