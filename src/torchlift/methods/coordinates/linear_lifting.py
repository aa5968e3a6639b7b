"""Linear over-parameterization: more coordinates for the same functions, merged back exactly."""

import dataclasses

from torchlift.methods.coordinates.expand import Expand, Side
from torchlift.methods.recipe import OneLift, made


@dataclasses.dataclass(frozen=True)
class LinearLifting(OneLift):
    """min over V, A, B of f((I + B A) V), then W = (I + B A) V: one fit, one exact projection.

    Neural lifting with a linear lifter after every layer of ``where``, in weight space: the network runs at
    its own size, so that a step costs little more than a plain one. The fields are those of
    :class:`~torchlift.lifts.Expand`.
    """

    where: str = "*weight"
    rank: float = 1.0
    side: Side = "out"

    @property
    def lift(self) -> Expand:  # pyright: ignore[reportIncompatibleVariableOverride]  (made from the fields)
        """The lift with these fields."""
        return made(Expand, self)
