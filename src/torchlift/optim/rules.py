"""The two rules of AvaGrad on blocks: γ = 1/RMS(η) with η = 1/(√v_{t−1} + ε), and the moves it scales.

``published_step`` is the authors' program, ``thesis_step`` Algorithm 7 of Savarese, "Principled Approximation
Methods".
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .blocks import TensorBlock
from .moments import ParamGroup, correction, decoupled_decay, direct, plus_number


def published_step(group: ParamGroup, blocks: Sequence[TensorBlock]) -> Tensor:
    """Move with the γ of the step before; return the γ of this one. γ lags, so one pass does it all."""
    (beta1, beta2), eps, lr = group["betas"], group["eps"], group["lr"]
    norm, gamma = GammaNorm(group), gamma_number(group["gamma"], group)
    for block in blocks:
        now, before = (correction(beta2, block.step - lag) ** 0.5 for lag in (0, 1))
        rate = gamma * lr * before / correction(beta1, block.step)
        direct(block, group, alive_only=group["skip_dead"])
        shifted = plus_number(
            at_first(block, math.inf, block.second_root(skip_dead=some_dead(group))), eps * before, group
        )
        block.accumulate_first(beta1)
        block.shrink(lr * decoupled_decay(group) * block.started)
        block.move(shifted, rate)
        norm.add(block, shifted, now, shift=before)
        block.accumulate_second(beta2)
    return norm.gamma()


def thesis_step(group: ParamGroup, blocks: Sequence[TensorBlock]) -> Tensor:
    """Algorithm 7: the norm over all blocks first, then the moves; return γ = 1/RMS(η)."""
    (beta1, beta2), eps, lr = group["betas"], group["eps"], group["lr"]
    norm = GammaNorm(group)
    for block in blocks:
        direct(block, group, alive_only=group["skip_dead"])
        block.accumulate_first(beta1)
        norm.add(block, block.second_root(skip_dead=some_dead(group)))
    gamma = gamma_number(norm.gamma(), group)
    for block in blocks:
        root = at_first(block, 0.0, block.second_root(skip_dead=some_dead(group)))
        block.shrink(lr * decoupled_decay(group))
        block.move(plus_number(root, eps, group), gamma * lr)
        block.accumulate_second(beta2)
    return norm.gamma()


def at_first(block: TensorBlock, value: float | Tensor, root: Tensor) -> Tensor:
    """``value`` at a tensor's first step, when v_0 = 0 says nothing yet, else ``root``."""
    first = block.step == 1
    if first is False:
        return root
    return torch.where(torch.as_tensor(first, device=root.device), value, root)


def gamma_number(gamma: Tensor, group: ParamGroup) -> float | Tensor:
    """γ as a number where reading it costs nothing, which saves a pass over the block."""
    return gamma if in_graph(group) or gamma.device.type != "cpu" else gamma.item()


def in_graph(group: ParamGroup) -> bool:
    """Whether numbers must stay tensors."""
    return group["capturable"] or group["differentiable"]


def ratio(scratch: Tensor, root: Tensor, group: ParamGroup) -> Tensor:
    """A scratch tensor over another, in place unless a graph needs what was there."""
    return scratch / root if group["differentiable"] else scratch.div_(root)


def some_dead(group: ParamGroup) -> bool:
    """Whether entries with v = 0 must be looked for."""
    return group["skip_dead"] and (group["dead"] or in_graph(group))


def count_nonzero(eta: Tensor, dtype: torch.dtype, group: ParamGroup) -> Tensor:
    """How many entries of η are not zero; it is used up."""
    if not (in_graph(group) or group["dead"] or group["idle"]):
        return torch.tensor(eta.numel(), dtype=dtype)
    signs = eta.detach().sign() if group["differentiable"] else eta.sign_()
    return signs.abs_().sum(dtype=dtype)


class GammaNorm:
    """1/γ = RMS(η) over the blocks of a group, where η = 1/(√v_{t−1}/c + ε)."""

    def __init__(self, group: ParamGroup) -> None:
        self.group = group
        self.norms: list[Tensor] = []
        self.counts: list[Tensor] = []

    def add(
        self,
        block: TensorBlock,
        root: Tensor,
        corrected: float | Tensor = 1.0,
        *,
        shift: float | Tensor = 0.0,
    ) -> None:
        """Take in a block with c = ``corrected``; ``root`` holds √v_{t−1} + ε·``shift`` and is used up.

        With ``skip_dead`` entries whose m_t is zero, which do not move, count for nothing.
        """
        group, gamma = self.group, self.group["gamma"]
        first = (block.step == 1) is not False
        if first:
            root = at_first(block, torch.zeros_like(root), root)
        root = plus_number(root, group["eps"] * (corrected - shift), group)
        signed = group["skip_dead"] and (first or group["idle"] or in_graph(group))
        eta = ratio(block.first_sign(), root, group) if signed else root.reciprocal_()
        norm = torch.linalg.vector_norm(eta, dtype=gamma.dtype) * corrected
        alive = count_nonzero(eta, gamma.dtype, group)
        self.norms.append(norm.to(gamma.device))
        self.counts.append(alive.to(gamma.device))

    def gamma(self) -> Tensor:
        """γ = 1/RMS(η), or γ as it was while nothing is alive."""
        was = self.group["gamma"]
        if not self.norms:
            return was
        norm, count = torch.stack(self.norms).norm(), torch.stack(self.counts).sum()
        return torch.where(norm > 0, count.sqrt() / norm, was)
