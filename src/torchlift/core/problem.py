"""What is minimised: a problem is a module whose forward is its objective."""

import abc
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from torchlift.core import loss as losses
from torchlift.core.loss import Batch, Loss
from torchlift.core.node import penalty


class Problem(nn.Module, abc.ABC):
    """min over the parameters of ``objective(batch) + penalty()``."""

    loss: Loss
    """The loss of the user's task underneath, for evaluation."""

    indexed: bool = False
    """Whether batches carry, as their last element, the positions of their samples in the data."""

    @abc.abstractmethod
    def objective(self, batch: Batch) -> Tensor:
        """The mean over the batch, without penalties."""

    @abc.abstractmethod
    def penalty(self) -> Tensor | float:
        """What lifts have added to the objective."""

    @abc.abstractmethod
    def predict(self, x: Any) -> Any:
        """The network's output at x."""

    @abc.abstractmethod
    def body(self) -> nn.Module | None:
        """The model whose layers may be replaced; None once its weights are lifted."""

    def prepare(self, batches: Iterable[Batch]) -> None:
        """Called by ``fit`` before the first step, with one pass over fixed, in-order data."""

    def forward(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """weight · objective + penalty; the weight is a process's share of the global batch."""
        objective = self.objective(batch)
        if weight != 1.0:
            objective = weight * objective
        extra = self.penalty()
        return objective if isinstance(extra, float | int) and extra == 0 else objective + extra


class Task(Problem):
    """The user's problem: a model and a loss.

    ``loss``: ``"cross_entropy"``, ``"mse"``, ``"bce"``, or ``callable(model, batch) -> scalar``.
    """

    def __init__(self, model: nn.Module, loss: str | Loss = "cross_entropy") -> None:
        super().__init__()
        self.model = model
        self.loss = losses.get(loss)

    def objective(self, batch: Batch) -> Tensor:
        """``loss(model, batch)``."""
        return self.loss(self.model, batch)

    def penalty(self) -> Tensor | float:
        """The penalties of nodes in the model."""
        return penalty(self.model)

    def predict(self, x: Any) -> Any:
        """``model(x)``."""
        return losses.call(self.model, x)

    def body(self) -> nn.Module:
        """The model."""
        return self.model
