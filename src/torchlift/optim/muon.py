"""Muon: W ← (1 − α λ) W − α·0.2·√max(m, n)·NS(B), the momentum B of a matrix made nearly orthogonal.

B ← μ B + (1 − μ) G, and Nesterov's (1 − μ) G + μ B goes into NS: five rounds of X ← (a + b A + c A²) X with
A = X Xᵀ, which drive all singular values of X = B/‖B‖ towards one. Jordan et al., "Muon: an optimizer for
hidden layers in neural networks" (2024). The factor 0.2·√max(m, n) gives steps the size of AdamW's, so that
one rate serves matrices and the rest: Liu et al., "Muon is scalable for LLM training" (2025).

All rounds are polynomials of the first A: NS(B) = q(A) X with q(A) computed on A alone. On the CPU the Gram
matrices of weights of many shapes, in a frame of zeros, are one batch of small products.
"""
# The foreach operations are what torch's own optimizers are written in; torch has no public name for them.
# pyright: reportPrivateUsage=false

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .matrices import MatrixOptimizer, ParamGroup, blocks_of, weight_gradients

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b, c of the published iteration: steep at zero, within [0.7, 1.2] at the end."""
SMALL = 64
"""Sides up to this share a frame: their products take less time than the calls."""


class Muon(MatrixOptimizer):
    """Muon for matrices and kernels, AdamW with ``betas`` and ``eps`` for the rest; decay is decoupled.

    Like ``torch.optim.Muon(adjust_lr_fn="match_rms_adamw")``, which takes matrices alone, one by one. A group
    with ``blocks`` steps the row blocks of its weights as matrices of their own: 3 · heads for the fused
    queries, keys and values of an attention. On the CPU the iteration runs in the weights' own precision, on
    other devices in bfloat16, as published.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
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

    def advance(self, group: ParamGroup, params: list[Tensor]) -> None:
        """Momentum, orthogonalization, step."""
        for param in params:
            if not self.state[param]:
                self.state[param]["momentum_buffer"] = torch.zeros_like(param)
        buffers: list[Tensor] = [self.state[param]["momentum_buffer"] for param in params]
        grads = weight_gradients(params)
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        looked_ahead = torch._foreach_lerp(grads, buffers, group["momentum"])
        matrices = [blocks_of(tensor, group["blocks"]) for tensor in looked_ahead]
        updates = orthogonalized(matrices, group["rounds"], 0.2)
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        steps = [update.reshape(param.shape) for update, param in zip(updates, params, strict=True)]
        torch._foreach_add_(params, steps, alpha=-group["lr"])


def orthogonalized(batches: Sequence[Tensor], rounds: int, size: float | None = None) -> list[Tensor]:
    """Newton–Schulz on batches of matrices: U diag(p(…p(s/‖s‖))) Vᵀ of U diag(s) Vᵀ.

    p(s) = a s + b s³ + c s⁵. With ``size``, times size · √max(m, n).
    """
    done: dict[int, Tensor] = {}
    frames: dict[Any, list[int]] = defaultdict(list)
    for number, batch in enumerate(batches):
        frames[frame(*sorted(batch.shape[1:])), batch.dtype, batch.device].append(number)
    for (side, _, device), numbers in frames.items():
        wide = [lying(batches[number]) for number in numbers]
        scales = [1.0 if size is None else size * batch.shape[2] ** 0.5 for batch in wide]
        if device.type != "cpu" or side is None:
            updates = [scale * iterated(batch, rounds) for batch, scale in zip(wide, scales, strict=True)]
        else:
            updates = through_grams(wide, scales, rounds)
        done |= dict(zip(numbers, updates, strict=True))
    return [
        done[number] if lying(batch) is batch else done[number].mT for number, batch in enumerate(batches)
    ]


def lying(batch: Tensor) -> Tensor:
    """Matrices with no more rows than columns: themselves, or turned."""
    return batch if batch.shape[1] <= batch.shape[2] else batch.mT


def frame(rows: int, columns: int) -> int | None:
    """Which matrices go through Gram matrices of one frame; None where whole products are cheaper."""
    if rows <= SMALL:
        return SMALL
    return rows if columns >= 2 * rows or rows <= 2 * SMALL else None


def through_grams(batches: Sequence[Tensor], scales: Sequence[float], rounds: int) -> list[Tensor]:
    """scale · q(X Xᵀ) X of wide matrices, the polynomials of all as one batch."""
    side = max(batch.shape[1] for batch in batches)
    counts = [len(batch) for batch in batches]
    grams = batches[0].new_zeros(sum(counts), side, side)
    for batch, gram in zip(batches, grams.split(counts), strict=True):
        gram[:, : batch.shape[1], : batch.shape[1]] = batch @ batch.mT
    factors = polynomial(grams, rounds).split(counts)
    products = zip(batches, factors, scales, strict=True)
    return [
        torch.baddbmm(batch, factor[:, : batch.shape[1], : batch.shape[1]], batch, beta=0, alpha=scale)
        for batch, factor, scale in products
    ]


def polynomial(grams: Tensor, rounds: int) -> Tensor:
    """q(A/‖X‖²)/‖X‖ of Gram matrices A = X Xᵀ: the product over rounds of p = a + b A + c A², A ← p A p."""
    a, b, c = COEFFICIENTS
    squares = grams.diagonal(dim1=1, dim2=2).sum(1).clamp_(min=1e-14).view(-1, 1, 1)
    grams = grams / squares
    product = None
    for number in range(rounds):
        factor = torch.baddbmm(grams, grams, grams, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if product is None else factor @ product
        if number < rounds - 1:
            grams = factor @ grams @ factor
    assert product is not None, "rounds is at least 1"
    return product.div_(squares.sqrt_())


def iterated(matrices: Tensor, rounds: int) -> Tensor:
    """The iteration as published, on a batch of wide matrices."""
    a, b, c = COEFFICIENTS
    x = matrices if matrices.device.type == "cpu" else matrices.bfloat16()
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7).view(-1, 1, 1)
    for _ in range(rounds):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)
