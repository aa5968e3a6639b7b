"""The implicit W-step on a mini-batch: a GLM tied to the last weights (Wang and Benning 2022).

min over θ of (μ/|S|) ΣP(U, A₁θᵀ) + ρ‖W‖² + (1/2τ)‖θ − θᵏ‖², A₁ = [A 1].
"""

import torch
from torch import Tensor

from torchlift.methods.lifted.penalties import Penalty


def proximal_weights(
    rows: Tensor,
    target: Tensor,
    penalty: Penalty,
    mu: float,
    theta: Tensor,
    *,
    tau: float,
    rho: float = 0.0,
    samples: int | None = None,
    steps: int = 5,
    bias: bool = True,
) -> Tensor:
    """Majorised steps v ← v⁰ + K(K + κ)⁻¹(T − v⁰), T = v − ∇P/ℓ, κ = |S|/(μℓ), in whichever space is smaller.

    K = A₁DA₁ᵀ with D = τ/(1 + 2ρτ) for weights and τ for biases, v⁰ = A₁θ⁰ with θ⁰ the shrunk last weights.
    For batches smaller than the layer everything but the last product is m × m.
    """
    samples = samples or len(rows)
    shrink = 1 / (1 + 2 * rho * tau)
    ones = rows.new_full((len(rows), 1), tau**0.5 if bias else 0.0)
    a = torch.cat([rows * (tau * shrink) ** 0.5, ones], 1)
    center = torch.cat([theta[:, :-1] * shrink, theta[:, -1:]], 1)
    v0 = torch.addmm(center[:, -1], rows, center[:, :-1].mT)
    kappa = samples / (mu * penalty.lipschitz_v)
    wide = a.shape[1] > a.shape[0]
    gram = a @ a.mT if wide else a.mT @ a
    inner = gram.clone()
    inner.diagonal().add_(kappa)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(inner))
    pull, v = torch.zeros_like(v0), v0
    for _ in range(steps):
        right = v - penalty.grad_v(target, v) / penalty.lipschitz_v - v0
        if wide:
            pull = inverse @ right
            v = torch.addmm(v0, gram, pull)
        else:
            pull = inverse @ (a.mT @ right)
            v = torch.addmm(v0, a, pull)
    change = (a.mT @ pull if wide else pull).mT
    scale = torch.full_like(change[0], (tau * shrink) ** 0.5)
    scale[-1] = tau**0.5 if bias else 0.0
    return center + change * scale
