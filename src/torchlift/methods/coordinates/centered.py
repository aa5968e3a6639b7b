"""Plain training in centered coordinates."""

import dataclasses

from torchlift.core import Fit, Task
from torchlift.methods.begun import Begun
from torchlift.methods.coordinates.standardize import Scaled, Standardize
from torchlift.methods.recipe import OneLift, made


@dataclasses.dataclass(frozen=True)
class Centered(OneLift):
    """min over V, c of f with W x + b = V(x − μ) + c in every layer, then W = V, b = c − V μ.

    The means μ are those of the first training samples at the initial weights. No step costs more than a
    plain one, and nothing is lost at the end. The fields are those of :class:`~torchlift.lifts.Standardize`.
    """

    where: str = "*"
    scaled: Scaled = False

    @property
    def lift(self) -> Standardize:  # pyright: ignore[reportIncompatibleVariableOverride]  (made from the fields)
        """The lift with these fields, its statistics from the training data."""
        return made(Standardize, self)

    def begin(self, task: Task, fit: Fit) -> Begun:
        """The first part."""
        return self.carry_on(Begun(task, task), fit)

    def carry_on(self, begun: Begun, fit: Fit) -> Begun:
        """On from the weights reached, with the means that inputs have there."""
        return super().carry_on(Begun(begun.task, fit.lift(self.lift, begun.task)), fit)
