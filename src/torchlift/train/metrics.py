"""Metrics people bring: functions of all predictions and targets, scikit-learn's and torchmetrics' too."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from torchlift.core import Batch, Problem, Supervised
from torchlift.errors import TorchliftError
from torchlift.loss import inputs_and_target, output

PerBatch = Callable[[Problem, Batch], float | Tensor]
"""``metric(problem, batch) -> number``, averaged over samples."""
LOWER = ("_loss", "_error")
"""How names of metrics end of which less is better."""
SCORES = ("roc_auc_score", "average_precision_score", "log_loss", "top_k_accuracy_score", "brier_score_loss")
"""Metrics of scikit-learn that take probabilities, not classes."""


@dataclasses.dataclass(frozen=True)
class OverAll:
    """metric(predictions, targets) of all samples at once: means over batches would be another number."""

    function: Any
    higher_is_better: bool = True

    @property
    def name(self) -> str:
        """What it is called."""
        return function_name(self.function)

    def __call__(self, predictions: Tensor, targets: Tensor, classes: bool) -> float:
        """The number; ``classes``: whether predictions are scores of classes."""
        if hasattr(self.function, "compute"):
            return self.computed(predictions, targets)
        if from_sklearn(self.function):
            return self.by_sklearn(predictions, targets, classes)
        return float(self.function(predictions, targets))

    def computed(self, predictions: Tensor, targets: Tensor) -> float:
        """By an object with ``update`` and ``compute``, as torchmetrics has them."""
        metric = self.function.to(predictions.device) if hasattr(self.function, "to") else self.function
        metric.reset()
        metric.update(predictions, targets)
        return float(metric.compute())

    def by_sklearn(self, predictions: Tensor, targets: Tensor, classes: bool) -> float:
        """function(y_true, y_pred) on arrays: classes for scores of classes, or their probabilities."""
        if classes and self.name in SCORES:
            predictions = predictions.softmax(-1)
            predictions = predictions[:, 1] if predictions.shape[-1] == 2 else predictions
        elif classes:
            predictions = predictions.argmax(-1)
        return float(self.function(targets.numpy(force=True), predictions.numpy(force=True)))


Metric = PerBatch | OverAll


def as_metric(metric: Any) -> Metric | None:
    """What was given for ``metric``: by the problem and a batch, or by predictions and targets."""
    if metric is None or isinstance(metric, OverAll):
        return metric
    if not callable(metric):
        raise TorchliftError(
            f"metric is a function, called as metric(problem, batch) or metric(predictions, targets); "
            f"got {metric!r}."
        )
    if hasattr(metric, "compute"):
        return OverAll(metric, getattr(metric, "higher_is_better", True) is not False)
    name = function_name(metric)
    if from_sklearn(metric):
        return OverAll(metric, not name.endswith(LOWER))
    first = next(iter(inspect.signature(metric).parameters), "")
    by_problem = first in ("problem", "task", "self")
    return cast(PerBatch, metric) if by_problem else OverAll(metric, not name.endswith(LOWER))


def function_name(metric: Any) -> str:
    """The name of a function, also of one with some arguments given."""
    function = without_arguments(metric)
    return str(getattr(function, "__name__", type(function).__name__))


def from_sklearn(metric: Any) -> bool:
    """Whether a function is one of scikit-learn's, which take the targets first."""
    return str(getattr(without_arguments(metric), "__module__", "")).startswith("sklearn.")


def without_arguments(metric: Any) -> Any:
    """``f1_score`` of ``partial(f1_score, average="macro")``."""
    return without_arguments(metric.func) if isinstance(metric, functools.partial) else metric


class Collected:
    """Predictions and targets of all batches."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.predictions: list[Tensor] = []
        self.targets: list[Tensor] = []

    def add(self, batch: Batch) -> None:
        """Of one more batch."""
        loss = self.problem.loss
        x, y = loss.split(batch) if isinstance(loss, Supervised) else inputs_and_target(batch)
        self.predictions.append(output(self.problem.predict(x)).detach())
        self.targets.append(y)

    def measure(self, metric: OverAll) -> float:
        """The metric of them all."""
        predictions, targets = torch.cat(self.predictions), torch.cat(self.targets)
        classes = predictions.ndim == targets.ndim + 1 and not targets.is_floating_point()
        return metric(predictions, targets, classes)
