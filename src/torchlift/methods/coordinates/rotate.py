"""Weights in the eigenbasis of their gradients: there a diagonal optimizer is at its best."""

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchlift.core import Batch, Fit, Node, Problem, Reparametrized, WeightLift, nodes
from torchlift.core.weights import weights_in_place
from torchlift.errors import DivergedError, SelectionError, TorchliftError
from torchlift.tree import leaves, like, select_rows


def rotated_weight(weight: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Lᵀ W R of the weight as a matrix: outputs by everything else."""
    matrix = weight.flatten(1)
    matrix = left.T @ matrix if left.numel() else matrix
    matrix = matrix @ right if right.numel() else matrix
    return matrix.view_as(weight)


def eigenbasis(moment: Tensor) -> Tensor:
    """The eigenvectors of a symmetric matrix, as columns; of an empty one, nothing."""
    if not moment.numel():
        return moment
    if not moment.isfinite().all():
        raise DivergedError("the gradients to rotate by are not finite: lower the learning rate.")
    return torch.linalg.eigh(moment.double())[1].to(moment)


def turning(weight: Tensor, largest: int) -> tuple[bool, bool]:
    """Whether the outputs, and the inputs, of a weight are few enough to turn (and more than one)."""
    return 1 < len(weight) <= largest, 1 < weight[0].numel() <= largest


class RotatedWeight(Node):
    """W = L V Rᵀ with orthogonal L, R, fixed while V is trained; a side without basis stays as it is."""

    def __init__(self, weight: Tensor, largest: int) -> None:
        super().__init__()
        self.coordinates = nn.Parameter(weight.clone())
        sizes = {"left": len(weight), "right": weight[0].numel()}
        for (side, size), turns in zip(sizes.items(), turning(weight, largest), strict=True):
            self.register_buffer(side, (torch.eye(size) if turns else torch.empty(0, 0)).to(weight))

    def forward(self) -> Tensor:
        """The weight."""
        left, right = self.bases()
        return rotated_weight(self.coordinates, left.T, right.T)

    def project(self) -> Tensor:
        """The weight, for good."""
        return self()

    def bases(self) -> tuple[Tensor, Tensor]:
        """L and R."""
        return self.get_buffer("left"), self.get_buffer("right")

    def moments(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """G Gᵀ and Gᵀ G, for the sides that turn."""
        left, right = self.bases()
        matrix = gradient.flatten(1)
        return (
            matrix @ matrix.T if left.numel() else left,
            matrix.T @ matrix if right.numel() else right,
        )

    @torch.no_grad()
    def turn(self, left: Tensor, right: Tensor) -> None:
        """Take new bases; the weight stays what it was."""
        weight = self()
        for mine, new in zip(self.bases(), (left, right), strict=True):
            mine.copy_(new)
        self.coordinates.copy_(rotated_weight(weight, left, right))


@dataclasses.dataclass(frozen=True)
class Rotate(WeightLift):
    """W = L V Rᵀ, L and R the eigenvectors of E[G Gᵀ] and E[Gᵀ G], G the gradient of a batch.

    Adam scales every coordinate on its own, so it depends on the coordinates; in these, its diagonal is
    closest to the curvature (Gupta et al., 2018; George et al., 2018; Vyas et al., 2024, run Adam there
    inside the optimizer). Here it is a lift: any optimizer, any model, the same function, undone exactly.
    The gradients are those of ``batches`` at the weights the lift finds, or of the first training batch of
    ``fit``. A side with more than ``largest`` entries keeps its coordinates, and so does a weight without
    another side. Methods that do not see rotations, such as SGD, gain nothing.
    """

    where: str = "*"
    batches: tuple[Batch, ...] = dataclasses.field(default=(), repr=False, compare=False)
    largest: int = 512

    exact: ClassVar[bool] = True
    measures: ClassVar[bool] = True

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """One node per weight that can turn."""
        able = {name: weight for name, weight in weights.items() if any(turning(weight, self.largest))}
        if not able:
            raise SelectionError(
                f"{self!r} can turn nothing: sides have one entry, or more than {self.largest}."
            )
        return {name: RotatedWeight(weight, self.largest) for name, weight in able.items()}

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem in the new coordinates; in its own ones where there are no batches."""
        lifted = super().lift(problem)
        batches = self.batches or (gradient_batches(next(iter(fit.batches()))) if fit is not None else ())
        if batches:
            self.turn(lifted, batches)
        return lifted

    def turn(self, problem: Problem, batches: Iterable[Batch]) -> None:
        """Change the bases of a lifted problem to those of its gradients now."""
        moments = gradient_moments(problem, batches)
        if not moments:
            raise TorchliftError(f"{self!r} needs batches to take gradients on, and has none.")
        for name, node in rotated(problem).items():
            left, right = moments[name]
            node.turn(eigenbasis(left), eigenbasis(right))


def gradient_batches(batch: Batch, samples: int = 128, count: int = 8) -> list[Batch]:
    """The first samples of a batch, in ``count`` parts of two or more: each gives one gradient."""
    first = next(leaves(batch))
    index = torch.arange(min(samples, len(first)), device=first.device)
    return [select_rows(batch, some) for some in index.tensor_split(max(1, min(count, len(index) // 2)))]


def rotated(problem: Problem) -> dict[str, RotatedWeight]:
    """The rotated weights of a problem; not those of a lift underneath it."""
    searched = problem.nodes if isinstance(problem, Reparametrized) else problem
    return {name: node for name, node in nodes(searched) if isinstance(node, RotatedWeight)}


def gradient_moments(problem: Problem, batches: Iterable[Batch]) -> dict[str, tuple[Tensor, Tensor]]:
    """Σ G Gᵀ and Σ Gᵀ G of every rotated weight over the batches, in plain coordinates; changes nothing."""
    trial = copy.deepcopy(problem).train()  # normalization layers take these batches into their statistics
    turning_weights = rotated(trial)
    sums: dict[str, tuple[Tensor, Tensor]] = {}
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        for batch in batches:
            wanted = [node.coordinates for node in turning_weights.values()]
            with weights_in_place():
                value = trial(like(batch, wanted[0]))
                gradients = torch.autograd.grad(value, wanted, materialize_grads=True)
            for (name, node), gradient in zip(turning_weights.items(), gradients, strict=True):
                left, right = node.bases()
                new = node.moments(rotated_weight(gradient, left.T, right.T))
                old = sums.get(name, (0.0, 0.0))
                sums[name] = (old[0] + new[0], old[1] + new[1])
    return sums
