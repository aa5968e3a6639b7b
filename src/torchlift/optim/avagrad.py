"""AvaGrad: w ← w − α·η/RMS(η) ⊙ m with η = 1/(√v + ε), so that ε no longer changes the size of a step.

Savarese, "Principled Approximation Methods", Algorithm 7; Savarese, McAllester, Babu and Maire,
"Domain-independent Dominance of Adaptive Methods" (2021), https://arxiv.org/abs/1912.01823.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .blocks import TensorBlock
from .moments import MomentOptimizer, ParamGroup
from .rules import in_graph, published_step, thesis_step

AvaGradRule = Literal["published", "thesis"]


LOOK = 64
"""Steps between two looks for entries that came to rest: m takes hundreds of steps to fade to zero."""


RESTING = {"dead": True, "idle": False}
"""Whether a group may have entries with v = 0, and with m = 0 though v > 0, as last seen."""


class AvaGrad(MomentOptimizer):
    r"""Adam whose rates are divided by their root mean square over a parameter group.

    ``rule="published"`` is the authors' program: with t counted per parameter, no move at t = 1, and then
    w ← w − α·γ_{t−1}·m_t / [(1 − β1^t)·(√v_{t−1}/√(1 − β2^{t−1}) + ε)], where
    1/γ_t = RMS(1/(√v_{t−1}/√(1 − β2^t) + ε)) over the weights of the group that have a gradient.
    ``rule="thesis"`` is Algorithm 7: no bias corrections, the norm of the same step, and a move at t = 1.

    An entry that never receives a gradient has v = 0 and a rate of 1/ε, which would drown all others in the
    norm; so has one that was masked after it lived, once v has faded. With ``skip_dead=True`` entries with
    v = 0 or m = 0 count for nothing: they are left out of the norm, their first gradient only fills the
    moments, and coupled decay leaves them alone. ``False`` is the rule to the letter; both agree where no
    entry is dead. ``decoupled=True`` multiplies the weights by 1 − α·λ (AvaGradW).

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
        rule: AvaGradRule = "published",
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
            "rule": rule, "skip_dead": skip_dead, "foreach": foreach,
            "maximize": maximize, "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, options)

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add a group, and a place for its γ."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group |= RESTING
        double = any(param.dtype in (torch.float64, torch.complex128) for param in group["params"])
        dtype = torch.float64 if double else torch.float32
        group["gamma"] = torch.ones(
            (), dtype=dtype, device=group["params"][0].device if group["params"] else None
        )

    def state_dict(self) -> dict[str, Any]:
        """The state as torch's optimizers give it; γ is a plain number there."""
        state = super().state_dict()
        for group in state["param_groups"]:
            group["gamma"] = group["gamma"].item()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; what follows is bit for bit what would have followed."""
        gammas = [group["gamma"] for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, template in zip(self.param_groups, gammas, strict=True):
            group["gamma"] = torch.full_like(template, group["gamma"])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A state, perhaps of a time when groups knew less."""
        super().__setstate__(state)
        for group in self.param_groups:
            for key, value in RESTING.items():
                group.setdefault(key, value)

    def advance(self, group: ParamGroup, blocks: Sequence[TensorBlock]) -> None:
        """One step by the group's rule; whether entries came to rest is looked up now and then."""
        if not in_graph(group) and any(block.step % LOOK == 1 for block in blocks):
            group["dead"] = any(block.dead() for block in blocks)
            group["idle"] = any(block.idle() for block in blocks)
        step = published_step if group["rule"] == "published" else thesis_step
        gamma = step(group, blocks)
        group["gamma"] = gamma if group["differentiable"] else group["gamma"].copy_(gamma)


AvaGradW = partial(AvaGrad, decoupled=True)
"""AvaGrad with decoupled weight decay, under the name it was published with."""
