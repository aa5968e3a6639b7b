"""What is minimized: a problem is a module whose forward is its objective."""

import abc
import copy
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from torchlift import loss as losses
from torchlift.core.node import Declares, Node, penalty
from torchlift.loss import Batch, Loss


class Problem(Declares, nn.Module, abc.ABC):
    """min over the parameters of ``objective(batch) + penalty()``."""

    loss: Loss
    """The loss of the user's task underneath."""

    indexed: bool = False
    """Whether batches carry, as their last element, the positions of their samples in the data."""

    solves: bool = False
    """Whether it finds its weights by solving for them: they have no other coordinates."""

    @abc.abstractmethod
    def objective(self, batch: Batch) -> Tensor:
        """The mean over the batch, without penalties."""

    @abc.abstractmethod
    def penalty(self) -> Tensor | float:
        """What lifts have added to the objective."""

    @abc.abstractmethod
    def task_loss(self, batch: Batch) -> Tensor:
        """The user's loss of the network as it is now: what evaluation and ``keep="best"`` go by."""

    @abc.abstractmethod
    def predict(self, x: Any) -> Any:
        """The network's output at x."""

    @abc.abstractmethod
    def body(self) -> nn.Module | None:
        """The model whose layers may be replaced; None once its weights are lifted."""

    def label(self, name: str) -> str:
        """What the user calls the parameter or module that has this name in the problem."""
        return name

    def prepare(self, batches: Iterable[Batch]) -> None:
        """Called by ``fit`` before the first step, with one pass over fixed, in-order data."""

    def forward(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """weight · objective + penalty; the weight is a process's share of the global batch."""
        objective = self.objective(batch)
        if weight != 1.0:
            objective = weight * objective
        extra = self.penalty()
        return objective if isinstance(extra, float | int) and extra == 0 else objective + extra

    def __deepcopy__(self, memo: dict[int, Any]) -> "Problem":
        """A copy; results of calls that modules keep (old ``weight_norm``) are copied without history."""
        kept = (value for module in self.modules() for value in vars(module).values())
        results = [value for value in kept if isinstance(value, Tensor) and not value.is_leaf]
        memo.update({id(value): value.detach().clone() for value in results})
        new = memo[id(self)] = type(self).__new__(type(self))
        new.__setstate__(copy.deepcopy(self.__dict__, memo))
        return new


class Task(Problem):
    """The user's problem: a model and a loss.

    ``loss``: ``"cross_entropy"``, ``"mse"``, ``"bce"``, or ``callable(model, batch) -> scalar``. A language
    model that generates from left to right (a causal model of ``transformers``) is trained to predict the
    next token: position t is compared with label t + 1, as its own loss does.
    """

    def __init__(self, model: nn.Module, loss: str | Loss = "cross_entropy") -> None:
        super().__init__()
        self.model = model
        self.loss = losses.as_loss(loss, model)

    def objective(self, batch: Batch) -> Tensor:
        """``loss(model, batch)``."""
        return self.loss(self.model, batch)

    def task_loss(self, batch: Batch) -> Tensor:
        """The objective itself."""
        return self.objective(batch)

    def penalty(self) -> Tensor | float:
        """The penalties of nodes in the model."""
        return penalty(self.model)

    def predict(self, x: Any) -> Any:
        """``model(x)``."""
        return losses.call(self.model, x)

    def body(self) -> nn.Module:
        """The model."""
        return self.model

    def label(self, name: str) -> str:
        """The name without ``model.``, and without the nodes around modules."""
        return label_in(self.model, name.removeprefix("model."))


def label_in(model: nn.Module, name: str) -> str:
    """A dotted name without the steps from a node to the module it stands for."""
    module, kept = model, list[str]()
    for step in name.split("."):
        if not (isinstance(module, Node) and step == "inner"):
            kept.append(step)
        module = module._modules.get(step) or nn.Module()  # pyright: ignore[reportPrivateUsage]  (the leaf is none)
    return ".".join(kept)
