"""Non-smooth and constrained weights: min μ ΣP(U, AWᵀ + b) + R(W) by proximal gradient."""

import abc
import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from torchlift.methods.lifted.penalties import Penalty
from torchlift.methods.lifted.shard import Alone, Shard
from torchlift.methods.lifted.solvers.descent import ConvexBlock, DescentRule, Exact
from torchlift.methods.lifted.solvers.glm import WeightBlock


class Regularizer(abc.ABC):
    """R(W), by its value and its proximal map."""

    by_column: ClassVar[bool] = False
    """Whether R is a sum over the columns of W, so that every input may have a step of its own."""

    @abc.abstractmethod
    def value(self, weight: Tensor) -> Tensor:
        """R(W)."""

    @abc.abstractmethod
    def prox(self, weight: Tensor, step: float | Tensor) -> Tensor:
        """argmin over Z of ½‖Z − W‖² + step·R(Z)."""


@dataclasses.dataclass(frozen=True)
class Lasso(Regularizer):
    """strength·Σ|w|: sparse weights."""

    by_column: ClassVar[bool] = True

    strength: float

    def value(self, weight: Tensor) -> Tensor:
        """strength·Σ|w|."""
        return self.strength * weight.abs().sum()

    def prox(self, weight: Tensor, step: float | Tensor) -> Tensor:
        """The soft-threshold."""
        return weight.sign() * (weight.abs() - step * self.strength).clamp(min=0)


@dataclasses.dataclass(frozen=True)
class GroupLasso(Regularizer):
    """strength·Σⱼ‖W_·j‖: inputs are used by all units or by none."""

    by_column: ClassVar[bool] = True

    strength: float

    def value(self, weight: Tensor) -> Tensor:
        """strength·Σ of column norms."""
        return self.strength * torch.linalg.vector_norm(weight, dim=0).sum()

    def prox(self, weight: Tensor, step: float | Tensor) -> Tensor:
        """Columns shrunk towards 0."""
        norm = torch.linalg.vector_norm(weight, dim=0).clamp(min=torch.finfo(weight.dtype).tiny)
        return weight * (1 - step * self.strength / norm).clamp(min=0)


@dataclasses.dataclass(frozen=True)
class Nuclear(Regularizer):
    """strength·Σ singular values: low rank."""

    strength: float

    def value(self, weight: Tensor) -> Tensor:
        """strength·‖W‖_*."""
        return self.strength * torch.linalg.svdvals(weight).sum()

    def prox(self, weight: Tensor, step: float | Tensor) -> Tensor:
        """Singular values soft-thresholded."""
        left, values, right = torch.linalg.svd(weight, full_matrices=False)
        return (left * (values - step * self.strength).clamp(min=0)) @ right


@dataclasses.dataclass(frozen=True)
class Orthogonal(Regularizer):
    """The indicator of orthonormal rows (or columns, if there are more rows): W = polar(W)."""

    def value(self, weight: Tensor) -> Tensor:
        """0 on the set, as the steps stay on it."""
        return weight.new_zeros(())

    def prox(self, weight: Tensor, step: float | Tensor) -> Tensor:
        """The nearest matrix with orthonormal rows or columns."""
        left, _, right = torch.linalg.svd(weight, full_matrices=False)
        return left @ right


@dataclasses.dataclass(frozen=True)
class SquaredNorm(Regularizer):
    """strength·‖W‖²."""

    by_column: ClassVar[bool] = True

    strength: float

    def value(self, weight: Tensor) -> Tensor:
        """strength·‖W‖²."""
        return self.strength * weight.square().sum()

    def prox(self, weight: Tensor, step: float | Tensor) -> Tensor:
        """W/(1 + 2·step·strength)."""
        return weight / (1 + 2 * step * self.strength)


@dataclasses.dataclass(frozen=True)
class ScaledRegularizer(Regularizer):
    """R(W / unit), column by column: a regularizer in coordinates W · unit."""

    inner: Regularizer
    unit: Tensor

    def value(self, weight: Tensor) -> Tensor:
        """R(W / unit)."""
        return self.inner.value(weight / self.unit)

    def prox(self, weight: Tensor, step: float | Tensor) -> Tensor:
        """unit · prox(W / unit) with the steps step / unit²."""
        if not self.inner.by_column:
            return self.inner.prox(weight, step)
        return self.unit * self.inner.prox(weight / self.unit, step / self.unit**2)


def regularized_weights(
    rows: Tensor,
    target: Tensor,
    penalty: Penalty,
    mu: float,
    regularizer: Regularizer,
    start: Tensor,
    *,
    bias: bool = True,
    rule: DescentRule | None = None,
    shard: Shard | None = None,
) -> Tensor:
    """argmin over θ = [W | b] of μ ΣP(U, AWᵀ + b) + R(W), from ``start``, by (accelerated) proximal gradient.

    Where R allows it (``by_column``) the inputs are brought to mean square one, so that badly scaled ones
    do not hold up the others. The step is 1/(μ ℓ ‖A₁‖²) with A₁ = A and a column of ones. On the Stiefel
    manifold (orthogonal weights) the same step is monotone, because ‖W‖ is constant there, and
    extrapolation is left out.
    """
    shard = shard or Alone()
    square, count = shard.sum(rows.square().sum(0)), shard.sum(rows.new_tensor(float(len(rows))))
    unit = (square / count).sqrt().where((square > 0) & regularizer.by_column, 1.0)
    scales = torch.cat([unit, unit.new_ones(1)])
    scaled = ScaledRegularizer(regularizer, unit)
    smooth = WeightBlock(rows / unit, target, penalty, mu, 0.0, bias=bias, shard=shard)
    shift = rows / unit if not bias else torch.cat([rows / unit, rows.new_ones(len(rows), 1)], 1)
    gram = shard.sum(shift.mT @ shift)
    lipschitz = mu * penalty.lipschitz_v * float(torch.linalg.eigvalsh(gram)[-1])

    def put(theta: Tensor, step: float) -> Tensor:
        return torch.cat([scaled.prox(theta[:, :-1], step), theta[:, -1:]], 1)

    block = ConvexBlock(
        lambda theta: put(theta - smooth.gradient(theta) / lipschitz, 1 / lipschitz),
        lambda theta: smooth.value(theta) + scaled.value(theta[:, :-1]),
        smooth.gradient,
        lambda theta: put(theta, 0.0),
        momentum=0.0 if isinstance(regularizer, Orthogonal) else None,
    )
    start = put(start, 0.0) if isinstance(regularizer, Orthogonal) else start
    return (rule or Exact(steps=20_000))(block, start * scales) / scales
