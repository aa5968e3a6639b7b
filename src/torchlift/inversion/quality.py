"""How near two images are: PSNR = 10 log₁₀(range²/MSE), and SSIM (Wang, Bovik, Sheikh & Simoncelli 2004)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlift.convex.functions import samples
from torchlift.convex.operators import gaussian_kernel
from torchlift.inversion.result import InversionError


def psnr(x: Tensor, truth: Tensor, peak: float = 1.0) -> Tensor:
    """One number per sample, in dB; +inf for equal images."""
    _same("psnr", x, truth)
    return 10 * torch.log10(peak**2 / samples(x - truth).square().mean(1))


def ssim(x: Tensor, truth: Tensor, peak: float = 1.0) -> Tensor:
    """The mean over all 11 × 11 Gaussian windows (σ = 1.5) inside the frame, one number per sample."""
    _same("ssim", x, truth)
    if x.ndim < 3 or min(x.shape[-2:]) < 11:
        raise InversionError(f"ssim: images of at least 11 × 11 are needed, got shape {tuple(x.shape)}")
    window = gaussian_kernel(1.5, 5).to(x)[None, None]

    def mean(a: Tensor) -> Tensor:
        return F.conv2d(a.reshape(-1, 1, *a.shape[-2:]), window)

    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    mx, mt = mean(x), mean(truth)
    vx, vt, both = mean(x * x) - mx * mx, mean(truth * truth) - mt * mt, mean(x * truth) - mx * mt
    index = (2 * mx * mt + c1) * (2 * both + c2) / ((mx * mx + mt * mt + c1) * (vx + vt + c2))
    return samples(index.reshape(len(x), -1)).mean(1)


def _same(name: str, x: Tensor, truth: Tensor) -> None:
    if x.shape != truth.shape:
        raise InversionError(f"{name}: shapes {tuple(x.shape)} and {tuple(truth.shape)} differ")
