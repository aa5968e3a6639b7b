"""A convolutional proximal network for images: learned filters in place of total variation's differences."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchlift.convex.activations import Clip
from torchlift.lifted.recursive import Recursive


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
        first = torch.randn(filters, 1, kernel, kernel)
        first = first - first.mean((1, 2, 3), keepdim=True)  # flat patches are left alone
        size = torch.fft.fft2(first, s=(64, 64)).abs().square().sum(0).max().sqrt()  # ‖L‖, by frequencies
        first = first / (size * tau**0.5)
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
