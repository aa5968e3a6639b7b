"""Linear over-parameterisation: more coordinates for the same functions, merged back exactly."""

import dataclasses

from torchlift.core import Task
from torchlift.lifts.expand import Expand, Side
from torchlift.train import Fit


@dataclasses.dataclass(frozen=True)
class LinearLifting:
    """min over V, A, B of f((I + B A) V), then W = (I + B A) V: one fit, one exact projection.

    Neural lifting with a linear lifter after every layer of ``where``, in weight space: the network runs at
    its own size, so that a step costs little more than a plain one. The fields are those of
    :class:`~torchlift.lifts.Expand`.
    """

    where: str = "*weight"
    rank: float = 1.0
    side: Side = "out"

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, fit, merge."""
        expand = Expand(self.where, self.rank, self.side)
        lifted = expand.lift(task)
        fit(lifted, name="lifted")
        merged = expand.project(lifted)
        assert isinstance(merged, Task)
        return merged
