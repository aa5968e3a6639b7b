"""AvaGrad: w ← w − α·η/RMS(η) ⊙ m with η = 1/(√v + ε), so that ε no longer changes the size of a step.

Savarese, "Principled Approximation Methods", Algorithm 7; Savarese, McAllester, Babu and Maire,
"Domain-independent Dominance of Adaptive Methods" (2021), https://arxiv.org/abs/1912.01823.
"""
# pyright: reportPrivateUsage=false

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .blocks import Block, gather
from .moments import Group, MomentOptimizer, correction, decoupled_decay

Rule = Literal["published", "thesis"]


class AvaGrad(MomentOptimizer):
    r"""Adam whose rates are divided by their root mean square over a parameter group.

    ``rule="published"`` is the authors' program: with t counted per parameter, no move at t = 1, and then
    w ← w − α·γ_{t−1}·m_t / [(1 − β1^t)·(√v_{t−1}/√(1 − β2^{t−1}) + ε)], where
    1/γ_t = RMS(1/(√v_{t−1}/√(1 − β2^t) + ε)) over the weights of the group that have a gradient.
    ``rule="thesis"`` is Algorithm 7: no bias corrections, the norm of the same step, and a move at t = 1.

    An entry that never receives a gradient has v = 0 and a rate of 1/ε, which would drown all others in the
    norm. With ``skip_dead=True`` such entries count for nothing: they are left out of the norm, their first
    gradient only fills the moments, and coupled decay leaves them alone. ``False`` is the rule to the letter;
    both agree where no entry is dead. ``decoupled=True`` multiplies the weights by 1 − α·λ (AvaGradW).

    ``foreach=False`` takes the tensors one by one, which needs less memory and more time.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 0.1,
        weight_decay: float = 0.0,
        *,
        decoupled: bool = False,
        rule: Rule = "published",
        skip_dead: bool = True,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        if rule not in ("published", "thesis"):
            raise ValueError(f'AvaGrad: rule={rule!r} is unknown; "published" and "thesis" exist')
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "decoupled": decoupled,
            "rule": rule, "skip_dead": skip_dead, "foreach": foreach, "maximize": maximize,
            "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, options)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, and a place for its γ."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        double = any(param.dtype in (torch.float64, torch.complex128) for param in group["params"])
        dtype = torch.float64 if double else torch.float32
        group["gamma"] = torch.ones(
            (), dtype=dtype, device=group["params"][0].device if group["params"] else None
        )

    def state_dict(self) -> dict[str, Any]:
        """The state as torch's optimisers give it; γ is a plain number there."""
        state = super().state_dict()
        for group in state["param_groups"]:
            group["gamma"] = group["gamma"].item()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; what follows is bit for bit what would have followed."""
        places = [group["gamma"] for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, place in zip(self.param_groups, places, strict=True):
            group["gamma"] = torch.full_like(place, group["gamma"])

    def coupled(
        self, group: Group, params: list[Tensor], grads: list[Tensor], seconds: list[Tensor]
    ) -> list[Tensor]:
        """g + λ·w; with ``skip_dead`` only where g or v says that the entry is alive."""
        if not group["skip_dead"]:
            return super().coupled(group, params, grads, seconds)
        alive = torch._foreach_mul(grads, grads)
        torch._foreach_add_(alive, seconds)
        torch._foreach_sign_(alive)
        return list(torch._foreach_addcmul(grads, alive, params, value=group["weight_decay"]))

    def advance(self, group: Group, parts: Sequence[Block]) -> None:
        """One step by the group's rule."""
        step = published_step if group["rule"] == "published" else thesis_step
        gamma = step(group, parts)
        group["gamma"] = gamma if group["differentiable"] else group["gamma"].copy_(gamma)


AvaGradW = partial(AvaGrad, decoupled=True)
"""AvaGrad with decoupled weight decay, under the name it was published with."""


def published_step(group: Group, parts: Sequence[Block]) -> Tensor:
    """Move with the γ of the step before; return the γ of this one."""
    (beta1, beta2), eps, lr = group["betas"], group["eps"], group["lr"]
    norm = Norm(group)
    for part in parts:
        root = second_root(part, group)
        now, before = (correction(beta2, part.step - lag) ** 0.5 for lag in (0, 1))
        alpha = group["gamma"].to(part.device) * (lr * before / correction(beta1, part.step))
        part.accumulate_first(beta1)
        part.shrink(lr * decoupled_decay(group) * part.started)
        part.move((at_first(part, math.inf, root) + eps * before).div_(alpha))
        norm.add(part, root, now)
        part.accumulate_second(beta2)
    return norm.gamma()


def thesis_step(group: Group, parts: Sequence[Block]) -> Tensor:
    """Algorithm 7: the norm over all blocks first, then the moves; return γ = 1/RMS(η)."""
    (beta1, beta2), eps, lr = group["betas"], group["eps"], group["lr"]
    norm = Norm(group)
    for part in parts:
        norm.add(part, second_root(part, group), 1.0)
    gamma = norm.gamma()
    for part in parts:
        root = at_first(part, 0.0, second_root(part, group))
        part.accumulate_first(beta1)
        part.shrink(lr * decoupled_decay(group))
        part.move((root + eps).div_(gamma.to(part.device) * lr))
        part.accumulate_second(beta2)
    return gamma


def second_root(part: Block, group: Group) -> Tensor:
    """√v_{t−1}; with ``skip_dead`` infinite where v = 0, so that the rate there is 0."""
    second = gather(part.seconds)
    if group["skip_dead"]:
        torch.threshold_(second, 0.0, math.inf)
    return second.sqrt_()


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


class Norm:
    """1/γ = RMS(η) over the blocks of a group, where η = 1/(√v_{t−1}/c + ε)."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.norms: list[Tensor] = []
        self.counts: list[Tensor] = []

    def add(self, part: Block, root: Tensor, corrected: float | Tensor) -> None:
        """Take in the rates of a block, with c = ``corrected``; uses up ``root``."""
        gamma, intact = self.group["gamma"], self.group["differentiable"]
        if (part.step == 1) is not False:
            root = at_first(part, first_root(part, self.group), root)
        eta = (root.clone() if intact else root).add_(self.group["eps"] * corrected).reciprocal_()
        norm = torch.linalg.vector_norm(eta, dtype=gamma.dtype) * corrected
        self.norms.append(norm.to(gamma.device))
        alive = (eta.detach().clone() if intact else eta).sign_().sum(dtype=gamma.dtype)
        self.counts.append(alive.to(gamma.device))

    def gamma(self) -> Tensor:
        """γ = 1/RMS(η), or γ as it was while nothing is alive."""
        norm, count = torch.stack(self.norms).norm(), torch.stack(self.counts).sum()
        return torch.where(norm > 0, count.sqrt() / norm, self.group["gamma"])
