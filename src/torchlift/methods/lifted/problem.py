"""min over weights and states of loss(y, v_{L+1}) + Σ_l μ_l P_l(u_l, v_l), as a problem of the one loop."""

import abc
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from torch import Tensor, nn

from torchlift.convex.activations import Activation, Channelwise, Softmax
from torchlift.core import Batch, Problem, Task
from torchlift.loss import inputs_and_target
from torchlift.methods.lifted.shard import Alone, Sharded
from torchlift.methods.lifted.solvers.output import as_targets
from torchlift.tree import like

T = TypeVar("T")


class CachedReading(Generic[T]):
    """What was read from a model: read once, and again in a copy (``read``, a partial, is copied too)."""

    def __init__(self, read: Callable[[], T]) -> None:
        self.read, self.cached = read, list[T]()

    def __call__(self) -> T:
        """The reading."""
        if not self.cached:
            self.cached.append(self.read())
        return self.cached[0]

    def __deepcopy__(self, memo: dict[int, Any]) -> "CachedReading[T]":
        return CachedReading(copy.deepcopy(self.read, memo))


class LiftedProblem(Problem):
    """A task whose states are variables. Its model stays in evaluation mode: what is read is affine."""

    def __init__(self, task: Task, loss: Activation) -> None:
        super().__init__()
        self.task, self.output, self.loss = task, loss, task.loss
        self.author: object = None
        """The lift that made it."""
        self.several = False
        """Whether the batches are parts of those of several processes."""

    def forward(self, batch: Batch, weight: float | None = None) -> Tensor:
        """weight · objective; only one of several processes is given a weight."""
        self.several = weight is not None
        return super().forward(batch, 1.0 if weight is None else weight)

    def train(self, mode: bool = True) -> Self:
        """Evaluation mode, whatever ``mode`` says."""
        del mode
        return super().train(False)

    def task_loss(self, batch: Batch) -> Tensor:
        """The task's."""
        return self.task.task_loss(batch)

    def predict(self, x: Any) -> Any:
        """The network's forward pass."""
        return self.task.predict(x)

    def body(self) -> None:
        """None: the weights belong to the blocks."""

    def penalty(self) -> float:
        """None beside the energies."""
        return 0.0

    def label(self, name: str) -> str:
        """The task's."""
        return self.task.label(name.removeprefix("task."))

    def pair(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Inputs in the model's precision, and targets."""
        x, y = inputs_and_target(batch)
        return like(x, next(self.task.parameters())), y

    @abc.abstractmethod
    def row(self) -> Mapping[str, float]:
        """Every layer's energy per sample, and the objective, for the history."""

    def means(self, sums: Tensor) -> list[float]:
        """Sums over samples, the last of which counts them, as means over those of all processes."""
        sums = (Sharded() if self.several else Alone()).sum(sums)
        return (sums[:-1] / sums[-1]).tolist()


def energies(problem: Problem) -> Mapping[str, float]:
    """The problem's energies, as numbers for the history."""
    return problem.row() if isinstance(problem, LiftedProblem) else {}


def energy_row(
    names: Sequence[str], penalties: Sequence[float], loss: float, mus: Sequence[float], extra: float = 0.0
) -> dict[str, float]:
    """Means over samples: the objective with its ρ‖W‖² (``extra``), the loss, energy and μ of each layer."""
    objective = loss + extra + sum(mu * value for mu, value in zip(mus, penalties, strict=True))
    row = {"objective": objective, "lifted_loss": loss}
    row |= {f"energy {name}": value for name, value in zip(names, penalties, strict=True)}
    return row | {f"mu {name}": mu for name, mu in zip(names, mus, strict=True)}


def mean_loss(loss: Activation, y: Tensor, out: Tensor) -> Tensor:
    """loss(y, v), the mean over samples and the sum over outputs."""
    indices = not y.is_floating_point() and (y.ndim, out.ndim) == (1, 2) and out.shape[1] > 1
    if isinstance(loss, Softmax) and indices and 0 <= int(y.min()) <= int(y.max()) < out.shape[1]:
        return nn.functional.cross_entropy(out, y)
    loss = Channelwise(loss) if loss.vector and out.ndim > 2 else loss
    return loss.penalty(as_targets(y, out, loss), out).sum() / len(out)
