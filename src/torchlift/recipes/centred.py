"""Plain training in centred coordinates."""

import dataclasses

from torchlift.core import Task
from torchlift.core.loss import split
from torchlift.lifts.standardise import Standardise
from torchlift.train import Fit


@dataclasses.dataclass(frozen=True)
class Centred:
    """min over V, c of f with W x + b = V(x − μ) + c in every layer, then W = V, b = c − V μ.

    The means μ are those of the first training samples at the initial weights. No step costs more than a
    plain one, and nothing is lost at the end. The fields are those of :class:`~torchlift.lifts.Standardise`.
    """

    where: str = "*"
    scaled: bool = False

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, fit, change back."""
        inputs, _ = split(next(iter(fit.batches())))
        standardise = Standardise(self.where, inputs, self.scaled)
        lifted = standardise.lift(task)
        fit(lifted, name="lifted")
        plain = standardise.project(lifted)
        assert isinstance(plain, Task)
        return plain
