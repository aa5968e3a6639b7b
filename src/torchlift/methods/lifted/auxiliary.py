"""Lifting the objective: activations become free variables, one row per sample."""

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from torchlift.core import Batch, Dial, Fit, Lift, Problem, Task, needs_fit, penalty
from torchlift.core.problem import label_in
from torchlift.errors import DataError, OrderError, TorchliftError
from torchlift.loss import call, evaluating, inputs_and_target


class AuxiliaryProblem(Problem):
    """loss(head(z_L), y) + μ Σ_l |z_l − block_l(z_{l−1})|², z_0 = x, means over the batch."""

    indexed = True
    options: Mapping[str, Mapping[str, Any]] = {"z": {}}

    def __init__(self, task: Task, inputs: Tensor, mu: tuple[float, float]) -> None:
        super().__init__()
        self.model, self.loss = copy.deepcopy(task.model), task.loss
        self.mu = Dial(*mu)
        like = next(self.model.parameters())
        inputs = inputs.to(like) if inputs.is_floating_point() else inputs.to(like.device)
        self.z = nn.ParameterList(nn.Parameter(z) for z in activations(self.blocks(), inputs))

    def blocks(self) -> list[nn.Module]:
        """The layers; the last is the head."""
        return list(self.model.children())

    def objective(self, batch: Batch) -> Tensor:
        """The head's loss at the last activation, and how far each activation is from its layer's output."""
        if len(batch) != 3:
            raise DataError("auxiliary variables need batches (x, y, index); fit adds the index itself.")
        h, _, index = batch
        *trunk, head = self.blocks()
        gap = h.new_zeros(())
        for block, z in zip(trunk, self.z, strict=True):
            free = z[index]
            gap, h = gap + mse_loss(free, block(h)), free
        return self.loss(Behind(head, h), batch[:2]) + self.mu().to(gap.dtype) * gap

    def task_loss(self, batch: Batch) -> Tensor:
        """The user's loss of the network run forward."""
        return self.loss(self.model, batch[:2])

    def penalty(self) -> Tensor | float:
        """The penalties of nodes in the layers."""
        return penalty(self.model)

    def predict(self, x: Any) -> Any:
        """The network run forward."""
        return call(self.model, x)

    def body(self) -> nn.Module:
        """The layers: they may be lifted further."""
        return self.model

    def label(self, name: str) -> str:
        """The name without ``model.``."""
        return label_in(self.model, name.removeprefix("model."))


class Behind(nn.Module):
    """The head at a latent z, in the place of a model at x: any loss(model, batch) takes it, once."""

    def __init__(self, head: nn.Module, z: Tensor) -> None:
        super().__init__()
        self.head, self.z = head, [z]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """head(z), whatever the input."""
        del inputs, named
        if not self.z:
            raise TorchliftError("Auxiliary cannot split a loss that calls the model twice for a batch.")
        return self.head(self.z.pop())


@dataclasses.dataclass(frozen=True)
class Auxiliary(Lift):
    """min over w and z of the split objective: layers train on their own, μ ties them together (MAC).

    Carreira-Perpiñán and Wang, Distributed optimization of deeply nested systems, 2014, eq. 3, with means
    for sums. ``inputs``: all training inputs, in the order in which batches are indexed (those of ``fit``,
    unless given); the activations start where the network puts them. ``mu`` grows geometrically from its
    first value to its second. Cuts an ``nn.Sequential`` between its children. Projection drops the
    activations.
    """

    inputs: Tensor | None = dataclasses.field(default=None, repr=False, compare=False)
    mu: tuple[float, float] = (0.1, 100.0)

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The split problem."""
        if type(problem) is not Task or not isinstance(problem.model, nn.Sequential):
            kind = type(problem.model).__name__ if isinstance(problem, Task) else type(problem).__name__
            raise OrderError(
                f"{self!r} cuts an nn.Sequential between its children, first in a chain; got {kind}."
            )
        if self.inputs is None and fit is None:
            raise needs_fit(self, "keeps a latent for every sample: pass inputs=, or")
        inputs = self.inputs
        if inputs is None and fit is not None:
            inputs = torch.cat([inputs_and_target(batch)[0] for batch in fit.batches()])
        assert inputs is not None
        return AuxiliaryProblem(problem, inputs, self.mu)

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The network alone."""
        del fit
        if not isinstance(problem, AuxiliaryProblem):
            raise OrderError(f"{self!r} was not the last lift of this problem: project in reverse order.")
        return Task(copy.deepcopy(problem.model), problem.loss)


def activations(blocks: list[nn.Module], x: Tensor) -> Iterable[Tensor]:
    """The outputs of all but the last block, in evaluation mode."""
    outputs: list[Tensor] = []
    with torch.no_grad():
        for block in blocks[:-1]:
            with evaluating(block):
                x = block(x)
            outputs.append(x.clone())
    return outputs
