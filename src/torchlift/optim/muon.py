"""Muon: W ← (1 − α λ) W − α·0.2·√max(m, n)·NS(B), the momentum B of a matrix made nearly orthogonal.

B ← μ B + (1 − μ) G, and Nesterov's (1 − μ) G + μ B goes into NS: five rounds of X ← a X + (b A + c A²) X with
A = X Xᵀ, which drive all singular values of X = B/‖B‖ towards one. Jordan et al., "Muon: an optimizer for
hidden layers in neural networks" (2024). The factor 0.2·√max(m, n) gives steps the size of AdamW's, so that
one rate serves matrices and the rest: Liu et al., "Muon is scalable for LLM training" (2025).
"""
# The foreach operations are what torch's own optimizers are written in; torch has no public name for them.
# pyright: reportPrivateUsage=false

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .matrices import Group, MatrixOptimizer, gradients, stacked, unstacked

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b, c of the published iteration: steep at zero, within [0.7, 1.2] at the end."""


class Muon(MatrixOptimizer):
    """Muon for matrices and kernels, AdamW with ``betas`` and ``eps`` for the rest; decay is decoupled.

    Like ``torch.optim.Muon(adjust_lr_fn="match_rms_adamw")``, which takes matrices alone, one by one.
    On the CPU the iteration runs in the weights' own precision, on
    other devices in bfloat16, as published.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        *,
        rounds: int = 5,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
    ) -> None:
        if not 0 <= momentum < 1 or rounds < 1:
            raise ValueError(f"Muon: momentum={momentum} must lie in [0, 1), rounds={rounds} be at least 1")
        options = {
            "lr": lr, "momentum": momentum, "weight_decay": weight_decay, "rounds": rounds, "betas": betas,
            "eps": eps,
        }  # fmt: skip
        super().__init__(params, options)

    def advance(self, group: Group, params: list[Tensor]) -> None:
        """Momentum, orthogonalization, step."""
        for param in params:
            if not self.state[param]:
                self.state[param]["momentum_buffer"] = torch.zeros_like(param)
        buffers: list[Tensor] = [self.state[param]["momentum_buffer"] for param in params]
        grads = gradients(params)
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        looked_ahead = torch._foreach_lerp(grads, buffers, group["momentum"])
        update = orthogonalized(stacked(looked_ahead), group["rounds"])
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        size = 0.2 * max(update.shape[1:]) ** 0.5
        torch._foreach_add_(params, unstacked(update, params), alpha=-group["lr"] * size)


def orthogonalized(matrices: Tensor, rounds: int) -> Tensor:
    """Newton–Schulz on a batch: U diag(p(…p(s/‖s‖))) Vᵀ of U diag(s) Vᵀ with p(s) = a s + b s³ + c s⁵."""
    a, b, c = COEFFICIENTS
    x = matrices if matrices.device.type == "cpu" else matrices.bfloat16()
    x = x.mT if x.shape[1] > x.shape[2] else x
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7).view(-1, 1, 1)
    for _ in range(rounds):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.mT if matrices.shape[1] > matrices.shape[2] else x
    return x.to(matrices.dtype)
