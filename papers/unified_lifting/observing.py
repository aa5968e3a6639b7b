"""Five ways an image is seen badly, the networks that undo them, and total variation that undoes them too."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlift import convex, inversion, lifted
from torchlift.convex import operators
from torchlift.convex.functions import denoise

Pair = tuple[Tensor, Tensor]
BOX, EVERY = 8, 32
"""Squares of missing pixels, one in every square of EVERY × EVERY."""


def filled(y: Tensor, operator: operators.Operator) -> Tensor:
    """Missing pixels by the mean of the seen ones around them, weighted by a Gaussian of three pixels."""
    assert isinstance(operator, operators.Mask)
    seen = operator.seen.to(y).expand(y.shape)
    window = operators.gaussian_kernel(3.0, 9).to(y)[None, None]
    near = F.conv2d(y, window, padding=9) / F.conv2d(seen, window, padding=9).clamp(min=1e-6)
    return torch.where(seen > 0, y, near)


def sharpened(y: Tensor, operator: operators.Operator, steps: int = 10, least: float = 5e-3) -> Tensor:
    """(AᵀA + εI)u = Aᵀy by a few conjugate gradients."""

    def inner(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum((1, 2, 3), keepdim=True)

    u = operator.A_adjoint(y)
    rest = u - operator.A_adjoint(operator.A(u)) - least * u
    way = rest
    for _ in range(steps):
        image = operator.A_adjoint(operator.A(way)) + least * way
        length = inner(rest, rest) / inner(way, image).clamp(min=1e-12)
        u, new = u + length * way, rest - length * image
        way = new + inner(new, new) / inner(rest, rest).clamp(min=1e-12) * way
        rest = new
    return u


def boxes(shape: tuple[int, ...], generator: torch.Generator) -> operators.Mask:
    """A square is missing somewhere in each cell of a grid."""
    seen = torch.ones(shape, dtype=torch.bool)
    for row in range(0, shape[-2] - EVERY + 1, EVERY):
        for column in range(0, shape[-1] - EVERY + 1, EVERY):
            down, right = torch.randint(0, EVERY - BOX + 1, (2,), generator=generator).tolist()
            top, left = row + down, column + right
            seen &= operators.box_mask(shape, (top, top + BOX), (left, left + BOX))
    return operators.Mask(seen)


def half(shape: tuple[int, ...], generator: torch.Generator) -> operators.Mask:
    """Every second pixel is missing, at random."""
    return operators.Mask(torch.rand(shape, generator=generator) < 0.5)


@dataclasses.dataclass(frozen=True)
class ImagingTask:
    """How an image is seen, and what the methods are told of it."""

    operator: Callable[[tuple[int, ...], torch.Generator], operators.Operator]
    noise: float
    threshold: float
    """Where the network's activations are clipped."""
    alphas: Sequence[float]
    """Of total variation: the best on the test images is taken."""
    fill: Any = None

    def observe(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, operators.Operator]:
        """A x + noise, and A."""
        operator = self.operator(tuple(x.shape), generator)
        return operator.A(x) + self.noise * torch.randn(x.shape, generator=generator), operator

    def network(self, depth: int = 5) -> lifted.UnrolledNet:
        """Random filters."""
        return lifted.UnrolledNet(operators.Identity(), depth=depth, threshold=self.threshold, fill=self.fill)

    def kept(self, estimate: Tensor, y: Tensor, operator: operators.Operator) -> Tensor:
        """In [0, 1]; pixels that were seen without noise stay what they are."""
        if isinstance(operator, operators.Mask):
            estimate = torch.where(operator.seen, y, estimate)
        return estimate.clamp(0, 1)


def blurred(kernel: Tensor) -> Callable[[tuple[int, ...], torch.Generator], operators.Operator]:
    """One blur for all images."""
    return lambda shape, generator: operators.Blur(kernel)


TASKS = {
    "denoising": ImagingTask(
        lambda shape, generator: operators.Identity(), 25 / 255, 0.1, (0.06, 0.07, 0.085)
    ),
    "Gaussian blur": ImagingTask(
        blurred(operators.gaussian_kernel(1.6)), 2 / 255, 0.01, (3e-4, 6e-4, 1.2e-3), sharpened
    ),
    "motion blur": ImagingTask(
        blurred(operators.motion_kernel(9, 30.0)), 2 / 255, 0.01, (3e-4, 6e-4, 1.2e-3), sharpened
    ),
    "half the pixels": ImagingTask(half, 0.0, 0.02, (1e-3, 3e-3, 1e-2), filled),
    "boxes": ImagingTask(boxes, 0.0, 0.02, (1e-3, 3e-3, 1e-2), filled),
}


@dataclasses.dataclass(frozen=True)
class Misfit:
    """½‖A x − y‖²."""

    operator: operators.Operator
    y: Tensor
    lipschitz: float = 1.0

    def value(self, x: Tensor) -> Tensor:
        """One number per sample."""
        return (self.operator.A(x) - self.y).square().flatten(1).sum(1) / 2

    def gradient(self, x: Tensor) -> Tensor:
        """Aᵀ(A x − y)."""
        return self.operator.A_adjoint(self.operator.A(x) - self.y)


def variation(
    task: ImagingTask, alpha: float, y: Tensor, operator: operators.Operator, steps: int = 150
) -> Tensor:
    """½‖A x − y‖² + α TV(x) by ``steps`` of Condat–Vũ in [0, 1], or of the dual if A is the identity."""
    differences, norm = convex.TV(alpha).analysis(y.ndim)
    if isinstance(operator, operators.Identity):
        tol = 1e-4 * y.square().sum((1, 2, 3))
        return denoise(differences, norm, y, torch.zeros_like(differences.A(y)), 1.0, tol, cap=steps)[0]
    start = operator.A_adjoint(y) if task.fill is None else task.fill(y, operator)
    stopping = convex.Stopping(tol=1e-4, max_iter=steps, every=50)
    misfit, box = Misfit(operator, y), convex.Box(0.0, 1.0)
    return convex.condat_vu(misfit, differences, norm, start, constraint=box, stopping=stopping).x


def quality(pairs: Sequence[Pair]) -> dict[str, list[float]]:
    """PSNR and SSIM of (estimate, truth), image by image."""
    return {
        "psnr": [float(inversion.psnr(estimate, x)) for estimate, x in pairs],
        "ssim": [float(inversion.ssim(estimate, x)) for estimate, x in pairs],
    }
