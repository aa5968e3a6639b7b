"""Train with batch normalization, keep the network without it."""

import dataclasses

from torchlift.methods.coordinates.normalize import Normalize
from torchlift.methods.recipe import OneLift, made


@dataclasses.dataclass(frozen=True)
class FoldedNorm(OneLift):
    """z ↦ γ (z − μ) / σ + β behind the layers of ``where`` while training, then folded into them exactly.

    The fields are those of :class:`~torchlift.lifts.Normalize`.
    """

    where: str = "*"
    momentum: float = 0.1
    output: bool = False

    @property
    def lift(self) -> Normalize:  # pyright: ignore[reportIncompatibleVariableOverride]  (made from the fields)
        """The lift with these fields."""
        return made(Normalize, self)
