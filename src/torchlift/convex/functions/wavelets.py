"""Orthogonal wavelets, periodic: x = Ψᵀc, and α‖details‖₁ with its proximal map Ψᵀ S_γα Ψ."""

import dataclasses
import math

import torch
from torch import Tensor

from torchlift.convex.functions.base import ConvexError, Function, Weight, check_weight, samples
from torchlift.convex.operators.base import Operator

_R3 = math.sqrt(3)
FILTERS: dict[str, tuple[float, ...]] = {
    "haar": (1 / math.sqrt(2), 1 / math.sqrt(2)),
    "db2": tuple(c / (4 * math.sqrt(2)) for c in (1 + _R3, 3 + _R3, 3 - _R3, 1 - _R3)),
    "db4": (
        0.23037781330885523,
        0.7148465705525415,
        0.6308807679295904,
        -0.02798376941698385,
        -0.18703481171888114,
        0.030841381835986965,
        0.032883011666982945,
        -0.010597401784997278,
    ),
}
"""Low-pass filters h with Σ h_k h_{k+2j} = δ_j (Daubechies 1988)."""


@dataclasses.dataclass(frozen=True)
class WaveletTransform(Operator):
    """Ψ: ``levels`` steps along the last ``dims`` dimensions, coarse part first; ΨᵀΨ = 1."""

    name: str = "haar"
    levels: int = 1
    dims: int = 1

    def A(self, x: Tensor) -> Tensor:
        """The coefficients, in the shape of x."""
        x = x.clone()
        for level in range(self.levels):
            corner = self._corner(x, level)
            for dim in range(-self.dims, 0):
                corner.copy_(self._split(corner, dim))
        return x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The signal of the coefficients: also the inverse."""
        y = y.clone()
        for level in reversed(range(self.levels)):
            corner = self._corner(y, level)
            for dim in range(-self.dims, 0):
                corner.copy_(self._join(corner, dim))
        return y

    def norm(self, like: Tensor) -> float:
        """1."""
        return 1.0

    def _corner(self, x: Tensor, level: int) -> Tensor:
        """What ``level`` steps have left coarse."""
        for dim in range(-self.dims, 0):
            x = x.narrow(dim, 0, x.shape[dim] >> level)
        return x

    def _filters(self, like: Tensor) -> tuple[Tensor, Tensor]:
        low = torch.tensor(FILTERS[self.name], dtype=like.dtype, device=like.device)
        sign = torch.ones_like(low)
        sign[1::2] = -1
        return low, low.flip(0) * sign

    def _indices(self, size: int, taps: int, like: Tensor) -> Tensor:
        first = 2 * torch.arange(size // 2, device=like.device)
        return (first[:, None] + torch.arange(taps, device=like.device)) % size

    def _split(self, x: Tensor, dim: int) -> Tensor:
        x = x.movedim(dim, -1)
        low, high = self._filters(x)
        windows = x[..., self._indices(x.shape[-1], len(low), x)]
        return torch.cat([windows @ low, windows @ high], -1).movedim(-1, dim)

    def _join(self, y: Tensor, dim: int) -> Tensor:
        y = y.movedim(dim, -1)
        low, high = self._filters(y)
        half = y.shape[-1] // 2
        spread = y[..., :half, None] * low + y[..., half:, None] * high
        indices = self._indices(y.shape[-1], len(low), y).flatten()
        return torch.zeros_like(y).index_add(-1, indices, spread.flatten(-2)).movedim(-1, dim)


@dataclasses.dataclass(frozen=True)
class Wavelets(Function):
    """α Σ |details of Ψx|; the coarse part is free. Sizes must be divisible by 2^levels."""

    alpha: float = 1.0
    name: str = "haar"
    levels: int | None = None
    dims: int | None = None

    def __post_init__(self) -> None:
        check_weight("Wavelets", self.alpha)
        if self.name not in FILTERS:
            raise ConvexError(f"Wavelets: no wavelet {self.name!r}; known: {', '.join(FILTERS)}")

    def transform(self, x: Tensor) -> WaveletTransform:
        """Ψ for samples like these: as many levels as their sizes allow, unless the number is given."""
        dims = self.dims or min(x.ndim - 1, 2)
        sizes = x.shape[-dims:]
        possible, taps = 0, len(FILTERS[self.name])
        while all(size % 2 ** (possible + 1) == 0 and size >> possible >= taps for size in sizes):
            possible += 1
        levels = possible if self.levels is None else self.levels
        if not 1 <= levels <= possible:
            raise ConvexError(
                f"Wavelets: samples of shape {tuple(x.shape[1:])} allow {possible} levels of {self.name}, "
                f"not {levels}; pad them to a multiple of 2^levels"
            )
        return WaveletTransform(self.name, levels, dims)

    def _details(self, transform: WaveletTransform, x: Tensor) -> Tensor:
        seen = torch.ones_like(x)
        corner = seen
        for dim in range(-transform.dims, 0):
            corner = corner.narrow(dim, 0, x.shape[dim] >> transform.levels)
        corner.zero_()
        return seen

    def fn(self, x: Tensor) -> Tensor:
        """α Σ |details|."""
        transform = self.transform(x)
        return self.alpha * samples(transform.A(x) * self._details(transform, x)).abs().sum(1)

    def prox(self, x: Tensor, gamma: Weight = 1.0) -> Tensor:
        """Ψᵀ of the coefficients with details lowered by γα."""
        transform = self.transform(x)
        c = transform.A(x)
        lower = gamma * self.alpha * self._details(transform, x)
        return transform.A_adjoint(c.sign() * (c.abs() - lower).clamp(min=0))

    def conjugate(self, q: Tensor) -> Tensor:
        """0 where |details of Ψq| ≤ α and its coarse part is 0, up to rounding; else +inf."""
        transform = self.transform(q)
        c, details = transform.A(q), self._details(transform, q)
        rounding = 0.1 * torch.finfo(q.dtype).eps ** 0.5 * (self.alpha + samples(q).abs().amax(1))
        inside = (samples(c.abs() - self.alpha * details).amax(1)) <= rounding
        return torch.where(inside, 0.0, math.inf).to(q)
