"""Train with batch normalisation, keep the network without it."""

import dataclasses

from torchlift.core import Task
from torchlift.lifts.normalise import Normalise
from torchlift.train import Fit


@dataclasses.dataclass(frozen=True)
class FoldedNorm:
    """z ↦ γ (z − μ) / σ + β behind the layers of ``where`` while training, then folded into them exactly.

    The fields are those of :class:`~torchlift.lifts.Normalise`.
    """

    where: str = "*"
    momentum: float = 0.1
    output: bool = False

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, fit, fold."""
        normalise = Normalise(self.where, self.momentum, self.output)
        lifted = normalise.lift(task)
        fit(lifted, name="lifted")
        folded = normalise.project(lifted)
        assert isinstance(folded, Task)
        return folded
