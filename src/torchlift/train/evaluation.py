"""Validation: the task's loss and the number people read, without touching the problem."""

import dataclasses
import math

import torch

from torchlift.core import Batch, Problem, Supervised
from torchlift.loss import evaluating, output
from torchlift.train.batches import Source
from torchlift.train.engines import Engine
from torchlift.train.metrics import Collected, Metric, OverAll, PerBatch
from torchlift.tree import leaves, move


@dataclasses.dataclass(frozen=True)
class Score:
    """How good a problem's network is on some data."""

    loss: float
    metric: float
    higher_is_better: bool = True

    def better_than(self, other: "Score | None") -> bool:
        """By the metric, then by the loss."""
        if other is None:
            return True
        sign = -1.0 if self.higher_is_better else 1.0
        return (sign * self.metric, self.loss) < (sign * other.metric, other.loss)


def evaluate(problem: Problem, data: Source, engine: Engine, metric: Metric | None = None) -> Score:
    """Means over all samples; several processes share the batches between them."""
    loss, collected = problem.loss, Collected(problem) if isinstance(metric, OverAll) else None
    per_batch = None if isinstance(metric, OverAll) else metric
    sums = torch.zeros(3, dtype=torch.float64)
    with evaluating(problem), torch.no_grad():
        for number, batch in enumerate(data.ordered()):
            if collected is not None:
                collected.add(move(batch, engine.device))
            if number % engine.world != engine.rank:
                continue
            batch = move(batch, engine.device)
            size = len(next(leaves(batch)))
            sums += size * torch.tensor(
                [*loss_and_metric(problem, batch, per_batch), 1.0], dtype=torch.float64
            )
    mean_loss, mean_metric, _ = (engine.total(sums) / engine.total(sums)[2]).tolist()
    if isinstance(metric, OverAll) and collected is not None:
        return Score(mean_loss, collected.measure(metric), metric.higher_is_better)
    higher = metric is not None or (isinstance(loss, Supervised) and loss.higher_is_better)
    return Score(mean_loss, mean_metric, higher)


def loss_and_metric(problem: Problem, batch: Batch, metric: PerBatch | None) -> tuple[float, float]:
    """Loss and metric of one batch; without a metric of its own, the loss is the metric."""
    loss = problem.loss
    if isinstance(loss, Supervised):
        x, y = loss.split(batch)
        prediction = output(problem.predict(x))
        value = float(loss.criterion(prediction, y))
        return value, float(loss.score(prediction, y) if metric is None else metric(problem, batch))
    value = float(problem.task_loss(batch))
    return value, value if metric is None else float(metric(problem, batch))


def gradient_norm(problem: Problem, data: Source, engine: Engine) -> float:
    """‖∇F‖ of the mean objective and the penalties over all samples, in evaluation mode."""
    parameters = [p for p in problem.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    samples = 0
    with evaluating(problem), torch.enable_grad():
        for batch in data.ordered():
            batch = move(batch, engine.device)
            size = len(next(leaves(batch)))
            gradients = torch.autograd.grad(
                problem(batch), parameters, materialize_grads=True, allow_unused=True
            )
            for sum_, gradient in zip(total, gradients, strict=True):
                sum_.add_(gradient, alpha=size)
            samples += size
    return math.sqrt(sum(float(g.square().sum()) for g in total)) / samples
