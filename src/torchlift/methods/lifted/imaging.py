"""Convolutional proximal networks for images: learned filters in place of total variation's differences."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchlift.convex.activations import Clip
from torchlift.convex.operators import Operator
from torchlift.methods.lifted.recursive import Recursive


class ProximalConvNet(Recursive):
    """z_l = clip(z_{l−1} − τL_l(L_lᵀz_{l−1} − x), ±t), output x − L_{L+1}ᵀz_L.

    Unrolled dual forward–backward. L_l is a bank of ``filters`` convolutions of ``kernel`` × ``kernel`` on
    one channel, all of them learned. With differences as filters this is total variation denoising with
    weight t. The filters start random, scaled so that τ‖L‖² = 1.
    """

    def __init__(
        self, filters: int = 16, kernel: int = 5, depth: int = 5, *, tau: float = 0.5, threshold: float = 0.1
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"ProximalConvNet: kernel must be odd, got {kernel}")
        self.tau, self.padding = tau, kernel // 2
        self.activations = [Clip(-threshold, threshold)] * depth
        first = bank(filters, kernel) / tau**0.5
        self.operators = nn.ParameterList(nn.Parameter(first.clone()) for _ in range(depth + 1))

    def _down(self, index: int, u: Tensor) -> Tensor:
        """Lᵀu."""
        return F.conv_transpose2d(u, self.operators[index], padding=self.padding)

    def start(self, x: Tensor) -> Tensor:
        """0."""
        return x.new_zeros(len(x), len(self.operators[0]), *x.shape[2:])

    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """u − τL(Lᵀu − x)."""
        gap = self._down(index, u) - x
        return u - self.tau * F.conv2d(gap, self.operators[index], padding=self.padding)

    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """z."""
        return z

    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """x − Lᵀu."""
        return x - self._down(-1, u)


class UnrolledNet(Recursive):
    """z_l = clip(z_{l−1} + s L_l(2u_{l−1} − u_{l−2}), ±t), u_l = u_{l−1} − τ(Aᵀ(A u_{l−1} − y) + L_lᵀz_l).

    Unrolled Condat–Vũ for ½‖A u − y‖² + t‖L u‖₁: images seen through any operator A with ‖A‖ ≤ 1, such as a
    blur or a mask, which may change from call to call (``net.operator = …``). Every L_l is a bank of
    ``filters`` convolutions of ``kernel`` × ``kernel`` on one channel; filters and τ are learned, layer by
    layer. The filters start random, all layers alike, with ‖L‖ = 1; s = ½ and τ = 1 then make the iteration
    converge. With differences as filters it is total variation with weight t. ``fill`` gives the first image
    from y and A, which is Aᵀy without it.
    """

    def __init__(
        self,
        operator: Operator,
        filters: int = 16,
        kernel: int = 5,
        depth: int = 5,
        *,
        threshold: float = 0.1,
        step: float = 0.5,
        tau: float = 1.0,
        fill: Callable[[Tensor, Operator], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"UnrolledNet: kernel must be odd, got {kernel}")
        self.operator, self.fill = operator, fill
        self.step, self.padding = step, kernel // 2
        self.activations = [Clip(-threshold, threshold)] * depth
        first = bank(filters, kernel)
        self.operators = nn.ParameterList(nn.Parameter(first.clone()) for _ in range(depth))
        self.taus = nn.Parameter(torch.full((depth,), tau))

    def start(self, x: Tensor) -> Tensor:
        """(u₀, ū₀ = u₀, Aᵀy, z₀ = 0) as channels."""
        back = self.operator.A_adjoint(x)
        u = back if self.fill is None else self.fill(x, self.operator)
        zero = x.new_zeros(len(x), len(self.operators[0]), *u.shape[2:])
        return torch.cat([u, u, back, zero], 1)

    def preactivation(self, index: int, u: Tensor, x: Tensor) -> Tensor:
        """z + s L ū."""
        return u[:, 3:] + self.step * F.conv2d(u[:, 1:2], self.operators[index], padding=self.padding)

    def following(self, index: int, u: Tensor, z: Tensor) -> Tensor:
        """u ← u − τ(AᵀA u − Aᵀy + Lᵀz), ū ← 2u − the last."""
        old, back = u[:, :1], u[:, 2:3]
        slope = self.operator.A_adjoint(self.operator.A(old)) - back
        slope = slope + F.conv_transpose2d(z, self.operators[index], padding=self.padding)
        new = old - self.taus[index] * slope
        return torch.cat([new, 2 * new - old, back, z], 1)

    def readout(self, u: Tensor, x: Tensor) -> Tensor:
        """The image."""
        return u[:, :1]


def bank(filters: int, kernel: int) -> Tensor:
    """Random filters that leave flat patches alone, with ‖L‖ = 1 by frequencies."""
    first = torch.randn(filters, 1, kernel, kernel)
    first = first - first.mean((1, 2, 3), keepdim=True)
    return first / torch.fft.fft2(first, s=(64, 64)).abs().square().sum(0).max().sqrt()
