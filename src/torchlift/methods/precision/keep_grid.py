"""Fine-tuning on the grid: weights that keep their bits."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from torchlift.core import Fit, Node, Problem, Reparametrized, WeightLift, matches
from torchlift.errors import TorchliftError
from torchlift.methods.precision.grid_reading import grid_of, mark_grids
from torchlift.methods.precision.grids import half_step
from torchlift.methods.precision.moving_grid import OnMovingGrid
from torchlift.methods.precision.precision import Noisy, Precision


def nearest(v: Tensor, half: Tensor, top: Tensor) -> Tensor:
    """The nearest odd multiple of ``half`` within ±top; 0 where ``half`` is 0."""
    inverse = torch.where(half > 0, 0.5 / half, 0.0)
    value = (2 * torch.floor(v * inverse) + 1) * half
    return torch.minimum(torch.maximum(value, -top), top)


class OnGrid(Node):
    """w = c Q(v/c, p), ∂w/∂v = 1: on the grid, and straight through (Algorithm 5, lines 10–13)."""

    settled: ClassVar[tuple[str, ...]] = ("weight",)

    unit: Tensor
    top: Tensor

    def __init__(self, weight: Tensor, bits: Tensor, scale: Tensor | float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        half = torch.where(bits > 0, half_step(bits) * scale, 0.0).to(weight.dtype)
        self.register_buffer("unit", half)
        self.register_buffer("top", torch.where(half > 0, 2 * scale - half, 0.0).to(weight.dtype))

    def forward(self) -> Tensor:
        """The value on the grid, with the gradient of v."""
        return self.project() + (self.weight - self.weight.detach())

    def surrogate(self) -> Callable[[], Tensor]:
        """w₀ + v − v₀: the identity from here."""
        start = self.project() - self.weight.detach()
        return lambda: self.weight + start

    def constrain(self) -> None:
        """Beyond the last value of its grid a weight would only get lost."""
        self.weight.clamp_(-self.top, self.top)

    def bits(self) -> Tensor:
        """The bits of every entry: 1 + log₂(c / half), and 0."""
        full = (self.top + self.unit) / 2
        return torch.where(self.unit > 0, 1 + torch.log2(full / self.unit), 0.0).round()

    def project(self) -> Tensor:
        """The value on the grid."""
        return nearest(self.weight.detach(), self.unit, self.top)


@dataclasses.dataclass(frozen=True)
class KeepGrid(WeightLift):
    """min f(Q(v)) by the gradient at Q(v): weights on a grid stay there, each with the bits it has.

    A value on the grid says its precision: it is an odd multiple of 2^(1−p) c for one p only. So the grid is
    read from the weights, and nothing beside them is stored; where a weight has no common scale c, each of
    its rows may have its own. Weights on no grid are left alone; where none is on one, that is an error.
    Zeros have no bits and stay.
    """

    where: str = "*weight"
    prunes: ClassVar[bool] = True

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """The weights that lie on a grid."""
        known = {n: w for n, w in super().eligible(problem).items() if matches(n, self.where)}
        found = {n: w for n, w in known.items() if grid_of(w) is not None}
        if known and not found:
            raise TorchliftError(
                f"no weight that {self.where!r} picks lies on a grid: "
                "quantize first (recipes.Smol, lifts.Precision)."
            )
        return found

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A weight on its grid each."""
        return {name: self.node(weight) for name, weight in weights.items()}

    def node(self, weight: Tensor) -> OnGrid:
        """The weight on the grid its values show."""
        found = grid_of(weight)
        assert found is not None
        return OnGrid(weight, *found)

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The problem with weights on their grids, marked as such."""
        return mark_grids(super().project(problem, fit), self.own(problem))


def settle(problem: Problem, lift: Precision, *, moving: bool = False) -> Problem:
    """A copy of a problem lifted by ``Precision`` with whole bits: v goes on, on its grid, straight through.

    ``KeepGrid().project`` takes it down. (Lifting the projected weights by ``KeepGrid`` would forget where
    between two values v was.) ``moving``: grids follow their weights, and so do their zeros.
    """
    problem = copy.deepcopy(problem)
    assert isinstance(problem, Reparametrized)
    if lift.activations:
        problem.base = lift.inner.project(problem.base)
    for name, node in list(problem.nodes.items()):
        noisy = cast(Noisy, node)
        weight, bits, scale = noisy.weight.detach(), noisy.precision(), float(noisy.scale)
        if moving:
            made = OnMovingGrid(weight, noisy.whole_bits(), int((bits == 0).sum()), scale)
        else:
            made = OnGrid(weight, bits, scale)
        made.way_back = KeepGrid()
        problem.nodes[name] = made
    problem.way_back = KeepGrid()
    return problem.train(problem.training)
