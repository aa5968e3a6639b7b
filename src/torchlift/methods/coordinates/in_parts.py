"""Training with fused weights in parts."""

import dataclasses

from torchlift.methods.coordinates.split import Split
from torchlift.methods.recipe import OneLift, made


@dataclasses.dataclass(frozen=True)
class InParts(OneLift):
    """min over V₁ … V_k of f([V₁; …; V_k]), then the one matrix again: for Muon and SOAP.

    For an attention whose queries, keys and values are one layer, ``parts`` is three times its heads. The
    fields are those of :class:`~torchlift.lifts.Split`.
    """

    where: str = "*qkv.weight"
    parts: int = 3

    @property
    def lift(self) -> Split:  # pyright: ignore[reportIncompatibleVariableOverride]  (made from the fields)
        """The lift with these fields."""
        return made(Split, self)
