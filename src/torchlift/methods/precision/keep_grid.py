"""Fine-tuning on the grid: weights that keep their bits."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from torchlift.core import Node, Problem, Reparametrized, Stored, WeightLift, matches, stored
from torchlift.core.stored import from_levels
from torchlift.errors import TorchliftError
from torchlift.methods.precision.grids import odd_levels, units_of
from torchlift.methods.precision.moving_grid import OnMovingGrid, StraightThrough
from torchlift.methods.precision.precision import Noisy, Precision


class OnGrid(StraightThrough):
    """w = step · k, k the odd multiple of u nearest to v / step within ±(2^P − u); ∂w/∂v = 1.

    On SMOL's grid u = 2^(P−p) for p bits, P the most there are, step = 2^(1−P) c: then w = c Q(v/c, p), on
    the grid and straight through (Algorithm 5, lines 10–13). Where p is 0, so is w.
    """

    step: Tensor
    unit: Tensor
    last: Tensor

    def __init__(self, weight: Tensor, bits: Tensor, step: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        unit, last, _ = units_of(bits)
        self.register_buffer("step", step.to(weight))
        self.register_buffer("unit", unit.to(weight.dtype).expand_as(weight).clone())
        self.register_buffer("last", last.to(weight.dtype).expand_as(weight).clone())

    def levels(self) -> Tensor:
        """k."""
        return odd_levels(self.weight.detach(), self.unit, self.last, self.step)

    def stored(self) -> Stored:
        """The grid, and the entries that have bits."""
        return Stored(self.levels().to(torch.int32), self.step, self.unit > 0)

    def project(self) -> Tensor:
        """The value on the grid."""
        return from_levels(self.levels(), self.step, self.weight.dtype)

    def constrain(self) -> None:
        """Beyond the last value of its grid a weight would only get lost."""
        top = self.top()
        self.weight.clamp_(-top, top)

    def top(self) -> Tensor:
        """The largest value of each entry's grid."""
        return from_levels(self.last, self.step.abs(), self.weight.dtype)

    def bits(self) -> Tensor:
        """The bits of every entry."""
        return torch.where(self.unit > 0, torch.log2(self.last / self.unit + 1), 0.0).round()


@dataclasses.dataclass(frozen=True)
class KeepGrid(WeightLift):
    """min f(Q(v)) by the gradient at Q(v): weights on a grid stay there, each with the bits it has.

    The grid is the weight's record (``tl.stored``): its step, per tensor or per row, and of every entry the
    bits that its level says. Weights without one are left alone; where none has one, that is an error.
    Zeros have no bits and stay.
    """

    where: str = "*weight"
    prunes: ClassVar[bool] = True

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """The weights that have a grid."""
        selected = {n: w for n, w in super().eligible(problem).items() if matches(n, self.where)}
        gridded = {name for name, record in stored(problem).items() if record.step is not None}
        if selected and not selected.keys() & gridded:
            raise TorchliftError(
                f"no weight that {self.where!r} picks has a grid (tl.stored): "
                "quantize first (recipes.Smol, lifts.Precision)."
            )
        return {name: weight for name, weight in selected.items() if name in gridded}

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """Needs the records: see :meth:`nodes_in`."""
        raise TorchliftError("KeepGrid reads the records of a problem: use lift(problem).")

    def nodes_in(self, problem: Problem, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """Each weight on its grid."""
        records = stored(problem)
        return {name: self.node(weight, records[name]) for name, weight in weights.items()}

    def node(self, weight: Tensor, record: Stored) -> OnGrid:
        """The weight on the grid its record has."""
        assert record.step is not None
        assert record.precision is not None
        return OnGrid(weight, record.precision, record.step)


def finalize(problem: Problem, lift: Precision, *, moving: bool = False) -> Problem:
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
            replacement = OnMovingGrid(weight, noisy.whole_bits(), int((bits == 0).sum()), scale)
        else:
            replacement = OnGrid(weight, bits, weight.new_tensor(scale) * 2.0 ** (1 - units_of(bits)[2]))
        replacement.way_back = KeepGrid()
        problem.nodes[name] = replacement
    problem.way_back = KeepGrid()
    return problem.train(problem.training)
