"""The options of a soft mask as fields of a recipe."""

import abc
import dataclasses
from typing import Any

from torchlift.lifts import SoftMask
from torchlift.lifts.gates import Shape
from torchlift.lifts.mask import Granularity, Variant


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masking(abc.ABC):
    """What :class:`~torchlift.lifts.SoftMask` takes, for recipes that lift with one."""

    where: str = "*weight"
    granularity: Granularity = "weight"
    s_init: float = 0.0
    beta_final: float = 200.0
    strength: float = 1e-8
    gate: Shape = "sigmoid"
    variant: Variant = "thesis"
    size: int = 1
    skip: str | None = None
    rescale: bool | None = None

    def soft_mask(self, **more: Any) -> SoftMask:
        """The mask, with some options replaced."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(Masking)}
        return SoftMask(**own | more)

    @abc.abstractmethod
    def __call__(self, task: Any, fit: Any) -> Any:
        """Run the recipe."""
