"""Affine fits neuron by neuron, y_j ≈ λ_j x_j + μ_j, from moments that are gathered batch by batch."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclasses.dataclass
class Moments:
    """Counts, means and centered second moments of pairs (x_j, y_j), in float64 (Chan et al., 1983)."""

    count: int
    x: Tensor
    y: Tensor
    xx: Tensor
    yy: Tensor
    xy: Tensor
    low: Tensor
    high: Tensor
    """The range of x."""

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> "Moments":
        """Of rows of samples, columns of neurons."""
        x, y = x.detach().double(), y.detach().double()
        mean_x, mean_y = x.mean(0), y.mean(0)
        dx, dy = x - mean_x, y - mean_y
        second = (dx * dx).sum(0), (dy * dy).sum(0), (dx * dy).sum(0)
        return cls(len(x), mean_x, mean_y, *second, x.amin(0), x.amax(0))

    def __add__(self, other: "Moments") -> "Moments":
        """Of both sets of rows together."""
        count = self.count + other.count
        weight = self.count * other.count / count
        dx, dy = other.x - self.x, other.y - self.y
        return Moments(
            count,
            self.x + dx * (other.count / count),
            self.y + dy * (other.count / count),
            self.xx + other.xx + weight * dx * dx,
            self.yy + other.yy + weight * dy * dy,
            self.xy + other.xy + weight * dx * dy,
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
        )

    @property
    def constant(self) -> Tensor:
        """Neurons whose input or output does not vary beyond rounding: they have no correlation."""
        return self.still(self.xx, self.x) | self.still(self.yy, self.y)

    def still(self, second: Tensor, mean: Tensor) -> Tensor:
        """Whether a spread is no more than float32's rounding of the mean."""
        return (second / self.count).sqrt() <= 1e-7 * mean.abs()

    @property
    def correlation(self) -> Tensor:
        """|ρ_j|, NaN for constant neurons."""
        rho = (self.xy / (self.xx.sqrt() * self.yy.sqrt())).abs().clamp(max=1.0)
        return torch.where(self.constant, torch.nan, rho)

    def fit(self, slope: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """λ, μ of least squares; where x is constant, the given slope (or none) through the mean."""
        fallback = torch.zeros_like(self.x) if slope is None else slope.double()
        slopes = torch.where(self.still(self.xx, self.x), fallback, self.xy / self.xx)
        return slopes, self.y - slopes * self.x

    @property
    def residual(self) -> Tensor:
        """Root mean square of y − λ x − μ."""
        slope, _ = self.fit()
        return ((self.yy - slope * self.xy).clamp(min=0) / self.count).sqrt()


def feature_rows(z: Tensor, axis: int) -> Tensor:
    """Samples as rows, the features of ``axis`` as columns."""
    return z.movedim(axis, -1).flatten(0, -2) if z.ndim > 1 else z.unsqueeze(1)


TRANSPOSED = {3: functional.conv_transpose1d, 4: functional.conv_transpose2d, 5: functional.conv_transpose3d}


def composed_weight(second: Tensor, first: Tensor, stride: int | Sequence[int] = 1) -> Tensor:
    """The weight of x ↦ second(first(x)): a matrix product, or the kernel of both convolutions together.

    W[o, i, u] = Σ_m Σ_a W₂[o, m, a] W₁[m, i, u − stride · a], ``stride`` the first one's; it holds where no
    padding comes between the two.
    """
    if second.ndim == 2:
        return second @ first
    return TRANSPOSED[second.ndim](second, first, stride=stride)


def through(weight: Tensor, value: Tensor) -> Tensor:
    """What a layer makes of an input that is ``value`` everywhere."""
    return (weight if weight.ndim == 2 else weight.flatten(2).sum(2)) @ value


def by_row(vector: Tensor, weight: Tensor) -> Tensor:
    """diag(vector) · weight, for a weight with axes (out, in, …)."""
    return vector.view(-1, *[1] * (weight.ndim - 1)) * weight


def weight_and_bias(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Both in float64; a layer without a bias has zeros."""
    weight = layer.get_parameter("weight").detach().double()
    bias = layer.bias
    return weight, bias.detach().double() if isinstance(bias, Tensor) else weight.new_zeros(len(weight))
