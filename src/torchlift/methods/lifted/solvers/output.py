"""Lifted outputs: the last state, between the labels and its pre-activation (Askari et al. 2018)."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torchlift.convex.activations import Activation, Channelwise, Simplex, Softmax
from torchlift.errors import DataError

_STEPS = 100


def as_targets(y: Tensor, like: Tensor, loss: Activation | None = None) -> Tensor:
    """Labels in the shape and type of ``like``: class indices become one-hot in dimension 1, values are cast.

    Whole numbers for a single output are values. ``loss`` (its activation) raises for what it cannot mean.
    """
    inner = loss.inner if isinstance(loss, Channelwise) else loss
    if isinstance(inner, Softmax | Simplex) and like.shape[1] == 1:
        raise DataError(
            "lifted: cross-entropy over one output is always 0; use loss='bce', or an output per class"
        )
    missing = y.ndim == like.ndim - 1
    if missing and like.shape[1] == 1:
        y = y.unsqueeze(1)
    elif missing and not y.is_floating_point():
        y = _one_hot(y, like)
    y = y.to(like)
    if y.shape != like.shape:
        raise DataError(f"targets of shape {tuple(y.shape)} do not fit outputs of shape {tuple(like.shape)}")
    if inner is not None and not _within(loss or inner, y):
        raise DataError(f"targets from {float(y.min()):g} to {float(y.max()):g} are not values of {inner}")
    return y


def _one_hot(y: Tensor, like: Tensor) -> Tensor:
    classes = like.shape[1]
    if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise DataError(f"labels run from {int(y.min())} to {int(y.max())}, the model has {classes} outputs")
    return one_hot(y.long(), classes).movedim(-1, 1)


def _within(loss: Activation, y: Tensor) -> bool:
    """Whether the targets lie in the domain of the loss, up to rounding."""
    return bool(((loss.project(y) - y).abs() <= 4 * torch.finfo(y.dtype).eps ** 0.5 * (1 + y.abs())).all())


def simplex_cross_entropy(x0: Tensor, y: Tensor, lam: float) -> Tensor:
    """argmin over the simplex of −Σ yₖ log zₖ + λ‖z − x₀‖² for every row, y ≥ 0 or class indices.

    zₖ(ν) = t + √(t² + c), t = (x₀ₖ + ν)/2, c = yₖ/(2λ), with ν such that Σ zₖ(ν) = 1. The sum is convex
    and increasing and at least 1 at ν = 1 − maxₖ(x₀ₖ + c): Newton descends to the root from there. (The
    lower bracket printed by Askari et al. 2018, appendix A, is wrong and not used.)
    """
    if lam <= 0:
        raise ValueError(f"simplex_cross_entropy: the weight lam must be positive, got {lam}")
    c = as_targets(y, x0) / (2 * lam)
    nu = 1 - (x0 + c).amax(-1, keepdim=True)
    tiny, eps = torch.finfo(x0.dtype).tiny, torch.finfo(x0.dtype).eps
    for _ in range(_STEPS):
        z, root = _state(x0, c, nu, tiny)
        step = (z.sum(-1, keepdim=True) - 1) / (z / (2 * root)).sum(-1, keepdim=True).clamp(min=tiny)
        nu = nu - step
        if bool((step.abs() <= 4 * eps * nu.abs().clamp(min=1)).all()):
            break
    z, _ = _state(x0, c, nu, tiny)
    return z / z.sum(-1, keepdim=True)


def _state(x0: Tensor, c: Tensor, nu: Tensor, tiny: float) -> tuple[Tensor, Tensor]:
    """z and √(t² + c), without cancellation for t < 0."""
    t = (x0 + nu) / 2
    root = (t.square() + c).sqrt().clamp(min=tiny)
    return torch.where(t >= 0, t + root, c / (root - t.clamp(max=0))), root
