"""Lifted outputs: the last state, between the labels and its pre-activation (Askari et al. 2018)."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torchlift.convex.activations import Activation
from torchlift.convex.activations import get as get_activation

_STEPS = 100


def as_targets(y: Tensor, like: Tensor) -> Tensor:
    """Class indices become one-hot rows of the shape and type of ``like``; anything else is cast."""
    if not y.is_floating_point() and y.ndim == like.ndim - 1:
        classes = like.shape[-1]
        if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < classes:
            raise ValueError(
                f"labels run from {int(y.min())} to {int(y.max())}, the model has {classes} outputs"
            )
        y = one_hot(y.long(), classes)
    y = y.to(like)
    if y.ndim == 1 and like.ndim == 2 and like.shape[1] == 1:
        y = y[:, None]
    if y.shape != like.shape:
        raise ValueError(f"targets of shape {tuple(y.shape)} do not fit outputs of shape {tuple(like.shape)}")
    return y


def squared_output(v: Tensor, y: Tensor, lam: float, activation: str | Activation = "linear") -> Tensor:
    """argmin over z of ‖z − y‖² + λ‖z − v‖² on the activation's domain: P((y + λv)/(1 + λ))."""
    return get_activation(activation).project((y + lam * v) / (1 + lam))


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
