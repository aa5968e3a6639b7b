"""The options of a soft mask as fields of a recipe."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from torchlift.core import Fit, Lift, Task
from torchlift.lifts import SoftMask
from torchlift.methods.recipe import Recipe, lift_from_fields
from torchlift.methods.sparsity.gates import GateShape
from torchlift.methods.sparsity.soft_mask import MaskGranularity, Variant


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masking(Recipe):
    """What :class:`~torchlift.lifts.SoftMask` takes, for recipes that lift with one."""

    where: str = "*weight"
    granularity: MaskGranularity = "weight"
    s_init: float = 0.0
    beta_final: float = 200.0
    strength: float = 1e-8
    gate: GateShape = "sigmoid"
    variant: Variant = "thesis"
    size: int = 1
    skip: str | None = None
    rescale: bool | None = None
    round_to: int = 1
    ramp: float = 0.75
    eps: float | None = 1e-3

    def soft_mask(self, **more: Any) -> SoftMask:
        """The mask, with some options replaced."""
        return lift_from_fields(SoftMask, self, **more)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the mask says."""
        return self.soft_mask().accepts(task, fit)

    def lifts(self) -> Iterable[Lift]:
        """The mask."""
        return (self.soft_mask(),)

    def schedule(self, fit: Fit, share: float) -> dict[str, Any]:
        """The options that make β in step k of a fit of T steps β_final^(k/T); as published, by E epochs.

        A fit ends at progress 1, in its last step: there the thesis has β_final^((T − 1)/T).
        """
        if self.variant == "published":
            return {"levels": max(1, round(share * fit.epochs))}
        steps = max(1, round(share * fit.epochs * fit.steps))
        return {"beta_final": self.beta_final ** (1 - 1 / steps)}
