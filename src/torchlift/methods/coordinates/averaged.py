"""Train as always, keep the mean of the last weights."""

import dataclasses
from typing import ClassVar

from torchlift.methods.coordinates.average import Average
from torchlift.methods.recipe import OneLift, made


@dataclasses.dataclass(frozen=True)
class Averaged(OneLift):
    """w̄_k = (1 − (η + 1)/(k + η)) w̄_{k−1} + (η + 1)/(k + η) w_k beside training; then w̄.

    The fields are those of :class:`~torchlift.lifts.Average`.
    """

    where: str = "*"
    eta: float = 8.0
    previews: ClassVar[bool] = True

    @property
    def lift(self) -> Average:  # pyright: ignore[reportIncompatibleVariableOverride]  (made from the fields)
        """The lift with these fields."""
        return made(Average, self)
