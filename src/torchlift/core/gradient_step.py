"""One gradient step: the same in ``fit``, in the integrations and in a loop of one's own."""

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchlift.core.node import anneal, constrained
from torchlift.core.problem import Problem
from torchlift.core.stored import masked_weights
from torchlift.errors import DivergedError
from torchlift.loss import Batch


class GradientStep:
    """u ← P(optimizer(u, m ⊙ ∇F(u))): the objective and its penalties, their gradient without pruned entries,
    clipped to a norm, the optimizer's step, and P, which brings masks and constraints back."""

    def __init__(
        self, problem: Problem, optimizer: Optimizer | None = None, clip: float | None = None
    ) -> None:
        self.problem, self.optimizer, self.clip = problem, optimizer, clip
        self.masked, self.constrained = masked_weights(problem), constrained(problem)

    def __call__(self, batch: Batch, t: float | None = None) -> float:
        """One step, at progress t of the annealing; the objective before it."""
        if t is not None:
            anneal(self.problem, t)
        value = self.gradients(batch)
        if not math.isfinite(value):
            raise DivergedError(f"the objective is {value}: lower the learning rate or clip gradients.")
        self.update()
        return value

    def gradients(self, *batch: Batch | float, scale: float = 1.0) -> float:
        """Add ``scale`` times the gradient of the objective with its penalties; the value."""
        loss = self.objective(*batch)
        loss = loss if scale == 1.0 else scale * loss
        self.backward(loss)
        return loss.item()

    def update(self) -> None:
        """The rest of a step, once gradients are there."""
        assert self.optimizer is not None
        for parameter, mask in self.masked:
            if parameter.grad is not None:
                parameter.grad.mul_(mask)
        if self.clip is not None:
            self.clip_gradients(self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.constrain()

    @torch.no_grad()
    def constrain(self) -> None:
        """Momentum and weight decay do not bring back what was cut; coordinates stay in their range."""
        for parameter, mask in self.masked:
            parameter.mul_(mask)
        for node in self.constrained:
            node.constrain()

    def objective(self, *batch: Batch | float) -> Tensor:
        """F of a batch; a number behind it weighs the objective against the penalties."""
        return self.problem(*batch)

    def backward(self, loss: Tensor) -> None:
        """Gradients of all coordinates."""
        loss.backward()

    def clip_gradients(self, norm: float) -> None:
        """Scale all gradients together to at most this norm."""
        nn.utils.clip_grad_norm_(self.problem.parameters(), norm)


def step(
    problem: Problem, batch: Batch, optimizer: Optimizer, t: float | None = None, clip: float | None = None
) -> float:
    """One gradient step on a lifted or plain problem, in a loop of one's own; the objective before it.

    ``t``: the progress of training in [0, 1], which annealed lifts follow; ``clip``: the largest norm of the
    gradient. Zeros and grids that a projection made stay, and coordinates stay where they may be.
    """
    return GradientStep(problem, optimizer, clip)(batch, t)
