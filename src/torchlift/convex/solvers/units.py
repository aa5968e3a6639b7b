"""min μ ΣB(U, A Wᵀ + b) + ρ‖W‖²: Newton's method for all units of a layer, each with a Hessian of its own.

∇²_j = Aᵀ diag(σ'(v_j)) A + 2ρ/μ. From step to step only the rows whose σ' changed are added to it or taken
away, so that a piecewise linear unit pays for its active set once. Where σ' changes everywhere the factor is
kept and conjugate gradients do the rest. The step length is the root of φ', which no rounding of the
objective disturbs. Units that share one vector (softmax) are solved together.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from torchlift.convex.activations.base import Activation
from torchlift.convex.solvers.interior import factor
from torchlift.convex.solvers.solved import Here, Solved, Sums

_HELD = 2**24  # entries of the Hessians held at once
_STALE = 0.5  # relative change of σ' above which a row is exchanged
_INNER = 60  # conjugate gradient steps
_SEARCH = 20  # evaluations of φ' along a direction


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
    found: list[Solved] = []
    for start in range(0, len(theta), size):
        some = slice(start, start + size)
        units = _Units(design, u[:, some], activation.columns(some), tolerance / mu)
        found.append(units.solve(inner[some], steps))
    answer = design.outside(torch.cat([one.x for one in found]), wide)
    residual = mu * max(one.residual for one in found)
    return Solved(
        answer.to(theta), all(one.converged for one in found), residual, max(one.steps for one in found)
    )


@dataclasses.dataclass
class _Design:
    """A with its column of ones, in fewer coordinates where some inputs are always 0 or samples are few."""

    a: Tensor
    ridge: Tensor
    basis: Tensor
    bias: bool
    sums: Sums

    @classmethod
    def of(cls, rows: Tensor, bias: bool, ridge: float, sums: Sums) -> "_Design":
        samples, inputs = rows.shape
        if inputs > samples and sums.processes == 1:
            basis = torch.linalg.qr(rows.mT).Q
        else:
            used = sums.sum(rows.abs().sum(0)) > 0
            basis = torch.eye(inputs, dtype=rows.dtype, device=rows.device)[:, used]
        a = rows @ basis if basis.shape[1] < inputs else rows
        weights = a.new_full((a.shape[1] + bias,), ridge)
        if bias:
            a, weights[-1] = torch.cat([a, a.new_ones(samples, 1)], 1), 0.0
        return cls(a, weights, basis, bias, sums)

    def inside(self, theta: Tensor) -> Tensor:
        """θ in the coordinates of A."""
        weight = theta[:, :-1] @ self.basis
        return torch.cat([weight, theta[:, -1:]], 1) if self.bias else weight

    def outside(self, inner: Tensor, theta: Tensor) -> Tensor:
        """Back; what A does not see of the weights is 0 under a ridge penalty, and stays without one."""
        weight = inner[:, : self.basis.shape[1]] @ self.basis.mT
        if float(self.ridge.max()) == 0:
            rest = theta[:, :-1]
            weight = weight + rest - rest @ self.basis @ self.basis.mT
        return torch.cat([weight, inner[:, -1:] if self.bias else theta[:, -1:]], 1)


class _Units:
    """Some units at once: Hessians, factors and directions, one per unit."""

    def __init__(self, design: _Design, target: Tensor, activation: Activation, tolerance: float) -> None:
        self.a, self.ridge, self.sums = design.a, design.ridge, design.sums
        self.target, self.activation, self.tolerance = target, activation, tolerance
        self.columns = self.sums.sum(self.a.square().sum(0))
        self.floor = torch.finfo(self.a.dtype).eps * self.a.shape[1] * self.columns
        self.hessian: Tensor | None = None
        self.weights = torch.zeros_like(target)

    def _total(self, parts: Tensor) -> Tensor:
        """Σ over coordinates, for every unit; over all units where they share a vector."""
        inner = parts.sum(1)
        return inner.sum().expand(len(inner)) if self.activation.vector else inner

    def _gradient(self, theta: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """∇ and, entry by entry, how much of it is rounding."""
        value = self.activation(v)
        gradient = self.sums.sum((value - self.target).mT @ self.a) + self.ridge * theta
        length = self.sums.sum((value.square() + self.target.square()).sum(0)).sqrt()
        size = length[:, None] * self.columns.sqrt() + (self.ridge + self.columns) * theta.abs()
        return gradient, 32 * torch.finfo(theta.dtype).eps * size

    def solve(self, theta: Tensor, steps: int) -> Solved:
        """Newton steps until every unit is done."""
        for step in range(steps + 1):
            v = self.a @ theta.mT
            gradient, rounding = self._gradient(theta, v)
            wrong = (gradient.abs() > rounding.clamp(min=self.tolerance)).any(1)
            if self.activation.vector:
                wrong = wrong.any().expand(len(wrong))
            if step == steps or not bool(wrong.any()):
                return Solved(theta, not bool(wrong.any()), float(gradient.abs().max()), step)
            move = self._direction(v, gradient * wrong[:, None])
            theta = theta + self._length(theta, v, move)[:, None] * move
        raise AssertionError("the last step returns")

    def _direction(self, v: Tensor, gradient: Tensor) -> Tensor:
        bend = self.activation.diagonal(v)
        exact = self._refresh(bend) and not self.activation.vector
        assert self.hessian is not None
        systems = self.hessian + torch.diag(self.floor)
        roots = factor(systems)

        def precondition(right: Tensor) -> Tensor:
            return torch.cholesky_solve(right[:, :, None], roots)[:, :, 0]

        return precondition(-gradient) if exact else self._conjugate(v, bend, -gradient, precondition)

    def _refresh(self, bend: Tensor) -> bool:
        """Exchange the rows of each Hessian whose σ' changed; whether it is exact now."""
        lipschitz = self.activation.lipschitz
        if self.hessian is None:
            half = self.sums.sum((bend - lipschitz / 2).sign().sum(0)) > 0  # nearer to all rows than to none
            gram = lipschitz * self.sums.sum(self.a.mT @ self.a) if bool(half.any()) else 0.0
            self.weights = torch.where(half, lipschitz, self.weights)
            self.hessian = half[:, None, None] * gram + torch.diag(self.ridge)
        change = bend - self.weights
        stale = (change.abs() > _STALE * torch.maximum(bend, self.weights)) & (
            change.abs() > 0.02 * lipschitz
        )
        update = torch.zeros_like(self.hessian)
        for unit in range(len(update)):
            index = stale[:, unit].nonzero()[:, 0]
            if len(index):
                some = self.a[index]
                update[unit] = (change[index, unit, None] * some).mT @ some
        self.hessian += self.sums.sum(update)
        self.weights = torch.where(stale, bend, self.weights)
        left = (self.weights - bend).abs().amax() if len(bend) else bend.new_zeros(())
        return float(self.sums.sum(left)) == 0

    def _conjugate(
        self, v: Tensor, bend: Tensor, right: Tensor, precondition: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """∇² d = right by preconditioned conjugate gradients."""
        d, residual = torch.zeros_like(right), right
        z = precondition(residual)
        direction, energy = z, self._total(residual * z)
        stop, tiny = 1e-10 * energy, torch.finfo(right.dtype).tiny
        for _ in range(_INNER):
            if bool((energy <= stop).all()):
                break
            image = self.a @ direction.mT
            bent = self.activation.tangent(v, image) if self.activation.vector else bend * image
            product = self.sums.sum(bent.mT @ self.a) + self.ridge * direction
            curve = self._total(direction * product)
            rate = torch.where((energy > stop) & (curve > 0), energy / curve.clamp(min=tiny), 0.0)[:, None]
            d, residual = d + rate * direction, residual - rate * product
            z = precondition(residual)
            following = self._total(residual * z)
            direction = z + (following / energy.clamp(min=tiny))[:, None] * direction
            energy = following
        return d

    def _length(self, theta: Tensor, v: Tensor, move: Tensor) -> Tensor:
        """t with φ'(t) = 0, φ(t) = F(θ + t·move), unit by unit: Newton's method within a bracket."""
        image = self.a @ move.mT
        linear, square = self._total(self.ridge * theta * move), self._total(self.ridge * move * move)

        def slopes(t: Tensor) -> tuple[Tensor, Tensor]:
            point = v + t * image
            first = self.sums.sum(((self.activation(point) - self.target) * image).sum(0))
            second = self.sums.sum((self.activation.diagonal(point) * image * image).sum(0))
            return self._total(first[:, None]) + linear + t * square, self._total(second[:, None]) + square

        t = torch.ones_like(linear)
        low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
        start = slopes(low)[0].abs()
        for _ in range(_SEARCH):
            first, second = slopes(t)
            open_ = first.abs() > 0.1 * start
            if not bool(open_.any()):
                break
            low, high = torch.where(first < 0, t, low), torch.where(first < 0, high, t)
            newton = t - first / second.clamp(min=torch.finfo(t.dtype).tiny)
            far = torch.where(high.isinf(), 4 * t, (low + high) / 2)
            fits = (newton > low) & (newton < high) & (newton <= 8 * t)
            t = torch.where(open_, torch.where(fits, newton, far), t)
        return t
