"""The two rules of AvaGrad on blocks: γ = 1/RMS(η) with η = 1/(√v_{t−1} + ε), and the moves it scales.

``published_step`` is the authors' program, ``thesis_step`` Algorithm 7 of Savarese, "Principled Approximation
Methods".
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .blocks import Block, gather
from .moments import Group, correction, decoupled_decay, direct, plus


def published_step(group: Group, parts: Sequence[Block]) -> Tensor:
    """Move with the γ of the step before; return the γ of this one."""
    (beta1, beta2), eps, lr = group["betas"], group["eps"], group["lr"]
    norm, gamma = Norm(group), number(group["gamma"], group)
    for part in parts:
        direct(part, group, alive_only=group["skip_dead"])
        now, before = (correction(beta2, part.step - lag) ** 0.5 for lag in (0, 1))
        shifted = plus(
            at_first(part, math.inf, part.second_root(skip_dead=group["skip_dead"])), eps * before, group
        )
        part.accumulate_first(beta1)
        part.shrink(lr * decoupled_decay(group) * part.started)
        part.move(shifted, gamma * lr * before / correction(beta1, part.step))
        norm.add(part, shifted, now, shift=before)
        part.accumulate_second(beta2)
    return norm.gamma()


def thesis_step(group: Group, parts: Sequence[Block]) -> Tensor:
    """Algorithm 7: the norm over all blocks first, then the moves; return γ = 1/RMS(η)."""
    (beta1, beta2), eps, lr = group["betas"], group["eps"], group["lr"]
    norm = Norm(group)
    for part in parts:
        direct(part, group, alive_only=group["skip_dead"])
        norm.add(part, part.second_root(skip_dead=group["skip_dead"]))
    gamma = number(norm.gamma(), group)
    for part in parts:
        root = at_first(part, 0.0, part.second_root(skip_dead=group["skip_dead"]))
        part.accumulate_first(beta1)
        part.shrink(lr * decoupled_decay(group))
        part.move(plus(root, eps, group), gamma * lr)
        part.accumulate_second(beta2)
    return norm.gamma()


def at_first(part: Block, value: float | Tensor, root: Tensor) -> Tensor:
    """``value`` at a tensor's first step, when v_0 = 0 says nothing yet, else ``root``."""
    first = part.step == 1
    if first is False:
        return root
    return torch.where(torch.as_tensor(first, device=root.device), value, root)


def first_root(part: Block, group: Group) -> Tensor:
    """What stands for √v_0 in the norm: 0, or infinity where a skipped entry has no gradient."""
    grad = gather(part.grads)
    return torch.zeros_like(grad).masked_fill_((grad == 0) & group["skip_dead"], math.inf)


def number(gamma: Tensor, group: Group) -> float | Tensor:
    """γ as a number where reading it costs nothing, which saves a pass over the block."""
    in_graph = group["capturable"] or group["differentiable"]
    return gamma if in_graph or gamma.device.type != "cpu" else gamma.item()


class Norm:
    """1/γ = RMS(η) over the blocks of a group, where η = 1/(√v_{t−1}/c + ε)."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.norms: list[Tensor] = []
        self.counts: list[Tensor] = []

    def add(
        self, part: Block, root: Tensor, corrected: float | Tensor = 1.0, *, shift: float | Tensor = 0.0
    ) -> None:
        """Take in a block with c = ``corrected``; ``root`` holds √v_{t−1} + ε·``shift`` and is used up."""
        group, gamma = self.group, self.group["gamma"]
        if (part.step == 1) is not False:
            root = at_first(part, first_root(part, group), root)
        eta = plus(root, group["eps"] * (corrected - shift), group).reciprocal_()
        norm = torch.linalg.vector_norm(eta, dtype=gamma.dtype) * corrected
        alive = (eta.detach().clone() if group["differentiable"] else eta).sign_().sum(dtype=gamma.dtype)
        self.norms.append(norm.to(gamma.device))
        self.counts.append(alive.to(gamma.device))

    def gamma(self) -> Tensor:
        """γ = 1/RMS(η), or γ as it was while nothing is alive."""
        norm, count = torch.stack(self.norms).norm(), torch.stack(self.counts).sum()
        return torch.where(norm > 0, count.sqrt() / norm, self.group["gamma"])
