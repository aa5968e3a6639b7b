"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner, W ← (1 − α λ) W − α L [m / (√v + ε)] Rᵀ.

P ← β P + (1 − β) G Gᵀ and Q ← β Q + (1 − β) Gᵀ G; L and R are their eigenvectors, m and v are Adam's moments
of Lᵀ G R. Every ``every`` steps the bases follow by one round of power iteration, L ← qr(P L). Vyas et al.,
"SOAP: improving and stabilizing Shampoo using Adam" (2025), Algorithms 3 and 4.
"""
# The foreach operations are what torch's own optimizers are written in; torch has no public name for them.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .matrices import (
    MatrixOptimizer,
    ParamGroup,
    blocks_of,
    by_shape,
    matrix_sides,
    stacked,
    unstacked,
    weight_gradients,
)

SIDES = ("left", "right")
SMALL = 128
"""Matrices with sides up to this are stepped as a batch; copies of larger bases cost more than that saves."""


class Soap(MatrixOptimizer):
    """SOAP for matrices and kernels, AdamW for the rest; decay is decoupled.

    ``basis_beta`` is the β of the preconditioners, β₂ unless given. A side of more than ``largest`` entries
    is not turned. A group with ``blocks`` turns the row blocks of its weights each by itself. The first
    step of a weight only takes its bases, as in the authors' code.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        every: int = 10,
        basis_beta: float | None = None,
        largest: int = 512,
    ) -> None:
        if every < 1 or largest < 1:
            raise ValueError(f"Soap: every={every} and largest={largest} must be at least 1")
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "every": every,
            "basis_beta": betas[1] if basis_beta is None else basis_beta, "largest": largest,
        }  # fmt: skip
        super().__init__(params, options)

    def advance(self, group: ParamGroup, params: list[Tensor]) -> None:
        """The weights that have bases take a step in them; the others get theirs."""
        for alike in by_shape(params):
            for some in [alike] if max(matrix_sides(alike[0])) <= SMALL else [[param] for param in alike]:
                self.advance_alike(group, some)

    def advance_alike(self, group: ParamGroup, params: list[Tensor]) -> None:
        """One step of weights of one shape."""
        ages: dict[float, list[Tensor]] = {}
        for param in params:
            if self.state[param]:
                ages.setdefault(self.state[param]["step"].item(), []).append(param)
            else:
                self.start(group, param, weight_gradients([param])[0])
        for age, some in ages.items():
            self.move(group, some, weight_gradients(some), round(age) + 1)

    def start(self, group: ParamGroup, param: Tensor, grad: Tensor) -> None:
        """The first moments of the gradient, and their eigenvectors."""
        state = self.state[param]
        state["step"] = torch.zeros((), dtype=torch.float32)
        state |= {name: torch.zeros_like(param) for name in ("exp_avg", "exp_avg_sq")}
        matrix = blocks_of(grad, group["blocks"])
        for side, own in zip(SIDES, (matrix, matrix.mT), strict=True):
            if own.shape[1] <= group["largest"]:
                moment = own @ own.mT
                state[f"{side}_moment"] = (1 - group["basis_beta"]) * moment
                vectors = torch.linalg.eigh(steadied(moment.double()))[1].to(param)
                state[side] = vectors.contiguous()  # as a checkpoint holds it: strides are part of the bits

    def move(self, group: ParamGroup, params: list[Tensor], grads: Sequence[Tensor], count: int) -> None:
        """One step of Adam in the present bases; then, now and then, new bases."""
        states = [self.state[param] for param in params]
        beta1, beta2 = group["betas"]
        bases = [stacked_bases(states, side) for side in SIDES]
        blocks = group["blocks"]
        gradient = stacked(grads, blocks)
        turned = unstacked(turn(gradient, *bases), params)
        firsts, seconds = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        torch._foreach_lerp_(firsts, turned, 1 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, turned, turned, 1 - beta2)
        root = stacked(seconds, blocks).sqrt().div_((1 - beta2**count) ** 0.5).add_(group["eps"])
        update = turn(stacked(firsts, blocks) / root, *transposed(bases))
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(params, unstacked(update, params), alpha=-group["lr"] / (1 - beta1**count))
        for state in states:
            state["step"] += 1
        self.follow(group, states, gradient)
        if count % group["every"] == 0:
            self.renew(blocks, states, firsts, bases)

    def follow(self, group: ParamGroup, states: Sequence[ParamGroup], gradient: Tensor) -> None:
        """Update the preconditioners."""
        beta = group["basis_beta"]
        for side, matrix in zip(SIDES, (gradient, gradient.mT), strict=True):
            moments = [state[f"{side}_moment"] for state in states if side in state]
            if len(moments) == 1:
                own = moments[0]
                torch.baddbmm(own, matrix, matrix.mT, beta=beta, alpha=1 - beta, out=own)
            elif moments:
                products = (matrix @ matrix.mT).split(group["blocks"])
                torch._foreach_lerp_(moments, list(products), 1 - beta)

    def renew(
        self, blocks: int, states: Sequence[ParamGroup], firsts: list[Tensor], old: list[Tensor | None]
    ) -> None:
        """One round of power iteration for the bases; m goes along."""
        unturned = turn(stacked(firsts, blocks), *transposed(old))
        for side, basis in zip(SIDES, old, strict=True):
            if basis is not None:
                moments = torch.cat([state[f"{side}_moment"] for state in states])
                new = torch.linalg.qr(steadied(moments) @ basis)[0]
                torch._foreach_copy_([state[side] for state in states], list(new.split(blocks)))
        turned = turn(unturned, *(stacked_bases(states, side) for side in SIDES))
        torch._foreach_copy_(firsts, unstacked(turned, firsts))


def stacked_bases(states: Sequence[ParamGroup], side: str) -> Tensor | None:
    """The bases of one side as a batch, of a single weight as they are; None where it does not turn."""
    if side not in states[0]:
        return None
    return states[0][side] if len(states) == 1 else torch.cat([state[side] for state in states])


def transposed(bases: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The bases of the way back."""
    return [None if basis is None else basis.mT for basis in bases]


def steadied(moments: Tensor) -> Tensor:
    """P + 10⁻⁶ t diag(0 … 1), t its mean diagonal: where P is zero, rounding does not choose the basis."""
    ramp = torch.linspace(0, 1e-6, moments.shape[-1], dtype=moments.dtype, device=moments.device)
    mean = moments.diagonal(dim1=-2, dim2=-1).mean(-1)
    return moments + torch.diag_embed(mean[..., None] * ramp)


def turn(matrices: Tensor, left: Tensor | None, right: Tensor | None) -> Tensor:
    """Lᵀ M R of a batch; a side without basis stays."""
    matrices = matrices if left is None else left.mT @ matrices
    return matrices if right is None else matrices @ right
