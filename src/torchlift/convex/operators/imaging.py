"""What cameras do to images: blur (Gaussian, motion) and missing pixels."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlift.convex.operators.base import Operator


class Slide(torch.autograd.Function):
    """A kernel slid over images; its gradient is the kernel turned round, ten times faster than torch's."""

    @staticmethod
    def forward(x: Tensor, kernel: Tensor) -> Tensor:
        """Images n × 1 × h × w, outside of which all is 0."""
        return F.conv2d(x, kernel[None, None], padding=(kernel.shape[0] // 2, kernel.shape[1] // 2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """The kernel is all it needs."""
        del output
        ctx.kernel = inputs[1]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """With respect to the images; the kernel is fixed."""
        return Slide.apply(slope, ctx.kernel.flip(0, 1)), None


def slid(x: Tensor, kernel: Tensor) -> Tensor:
    """A fixed kernel slid over every channel."""
    return Slide.apply(x.reshape(-1, 1, *x.shape[-2:]), kernel).reshape(x.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Blur(Operator):
    """Every channel convolved with one odd-sized kernel; outside the frame the image counts as 0."""

    kernel: Tensor

    def __post_init__(self) -> None:
        if self.kernel.ndim != 2 or any(size % 2 == 0 for size in self.kernel.shape):
            raise ValueError(
                f"Blur: the kernel must be a matrix with odd sizes, got shape {tuple(self.kernel.shape)}"
            )

    def A(self, x: Tensor) -> Tensor:
        """The blurred images."""
        return slid(x, self.kernel.to(x))

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The same with the kernel turned round."""
        return slid(y, self.kernel.to(y).flip(0, 1))

    def norm(self, like: Tensor) -> float:
        """At most Σ|k| (Young)."""
        return float(self.kernel.abs().sum())


def gaussian_kernel(sigma: float, radius: int | None = None) -> Tensor:
    """k ∝ exp(−(i² + j²)/2σ²), Σk = 1, cut at 3σ unless ``radius`` says otherwise."""
    if not sigma > 0:
        raise ValueError(f"gaussian_kernel: sigma must be positive, got {sigma}")
    reach = math.ceil(3 * sigma) if radius is None else radius
    t = torch.arange(-reach, reach + 1, dtype=torch.float64)
    line = torch.exp(-t.square() / (2 * sigma**2))
    kernel = line[:, None] * line[None, :]
    return kernel / kernel.sum()


def motion_kernel(length: int, angle: float = 0.0) -> Tensor:
    """A straight line of ``length`` pixels at ``angle`` degrees to the rows, Σk = 1."""
    if length < 1 or length % 2 == 0:
        raise ValueError(f"motion_kernel: length must be odd and positive, got {length}")
    reach = length // 2
    kernel = torch.zeros(length, length, dtype=torch.float64)
    for t in torch.linspace(-reach, reach, 8 * length).tolist():
        row = reach + round(-t * math.sin(math.radians(angle)))
        column = reach + round(t * math.cos(math.radians(angle)))
        kernel[row, column] += 1
    return kernel / kernel.sum()


@dataclasses.dataclass(frozen=True, eq=False)
class Mask(Operator):
    """Inpainting: pixels that are seen are kept, the others are 0. A projection, its own adjoint."""

    seen: Tensor

    def A(self, x: Tensor) -> Tensor:
        """What is seen of x."""
        return x * self.seen.to(x)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The same."""
        return y * self.seen.to(y)

    def norm(self, like: Tensor) -> float:
        """1 as soon as one pixel is seen."""
        return float(self.seen.to(like).abs().max())


def random_mask(shape: tuple[int, ...], share: float, seed: int = 0) -> Tensor:
    """Every pixel is seen with probability ``share``."""
    if not 0 < share <= 1:
        raise ValueError(f"random_mask: share must lie in (0, 1], got {share}")
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def box_mask(shape: tuple[int, ...], rows: tuple[int, int], columns: tuple[int, int]) -> Tensor:
    """All pixels are seen but those of one rectangle."""
    seen = torch.ones(shape, dtype=torch.bool)
    seen[..., rows[0] : rows[1], columns[0] : columns[1]] = False
    return seen
