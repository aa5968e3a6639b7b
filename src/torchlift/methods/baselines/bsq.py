"""BSQ: bit planes under a group lasso, then fine-tuning at each layer's bits. A rival of SMOL."""

import copy
import dataclasses
from collections.abc import Callable, Iterable
from typing import cast

import torch
from torch import Tensor, nn

from torchlift.core import Fit, Lift, Node, Problem, Reparametrized, Stored, Task
from torchlift.core.stored import weight_of
from torchlift.methods.baselines.bit_planes import BitPlanes, Planes
from torchlift.methods.baselines.learned_step import lsq
from torchlift.methods.recipe import Recipe, lift_from_fields


class Levels(Node):
    """w = s [clip(v/s, −h, h)] with a fixed step; straight through."""

    step: Tensor

    def __init__(self, planes: Planes) -> None:
        super().__init__()
        total = planes.total().detach()
        whole = torch.round(total).abs().long()
        low = int((whole[whole > 0] & -whole[whole > 0]).min()) if bool(whole.any()) else 1
        self.weight = nn.Parameter(total * planes.scale)
        self.high = int(2 ** planes.bits() - 1)
        self.register_buffer("step", planes.scale * low)

    def forward(self) -> Tensor:
        """The quantized weight."""
        return lsq(self.weight, self.step, -self.high, self.high)

    def surrogate(self) -> Callable[[], Tensor]:
        """The identity inside the range, from here."""
        with torch.no_grad():
            inside = (self.weight / self.step).abs() < self.high
            start = self.forward() - torch.where(inside, self.weight, 0.0)
        return lambda: torch.where(inside, self.weight, 0.0) + start

    def stored(self) -> Stored:
        """[clip(v/s)] and s."""
        whole = torch.round((self.weight.detach() / self.step).clamp(-self.high, self.high))
        return Stored(whole.to(torch.int32), self.step)

    def project(self) -> Tensor:
        """The quantized weight."""
        return weight_of(self.stored(), self.weight.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bsq(Recipe):
    """Planes under the lasso (:class:`~torchlift.lifts.BitPlanes`), then weights at the bits that are left.

    Yang et al. (2021). ``strength`` alone decides the bits, as in the source. ``finetune``: the part of the
    budget for the second fit. ``plane_rate``: the planes' rate relative to the run's. A plane is dropped
    after its entries have traveled from one to zero, which takes Adam one over its rate in steps.
    """

    where: str = "*weight"
    bits: int = 8
    strength: float = 5e-3
    rounds: int = 10
    finetune: float = 0.5
    finetune_rate: float = 1.0
    plane_rate: float = 1.0

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Planes, then levels."""
        lift = lift_from_fields(BitPlanes, self)
        lifted = fit.lift(lift, task)
        groups = {f"*{sign}": {"lr_factor": self.plane_rate} for sign in ("positive", "negative")}
        fit(lifted, name="planes", share=1 - self.finetune, groups=groups, log=bits_per_weight)
        levels = at_its_levels(lifted)
        fit(levels, name="finetune", share=self.finetune, rate=self.finetune_rate)
        small = lift.project(levels)
        assert isinstance(small, Task)
        return small

    def lifts(self) -> Iterable[Lift]:
        """The planes."""
        return (lift_from_fields(BitPlanes, self),)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says."""
        return lift_from_fields(BitPlanes, self).accepts(task, fit)


def at_its_levels(problem: Problem) -> Problem:
    """A copy of the problem with every layer's weights on the levels its planes leave."""
    problem = copy.deepcopy(problem)
    assert isinstance(problem, Reparametrized)
    for name, node in list(problem.nodes.items()):
        planes = cast(Planes, node)
        levels = Levels(planes)
        levels.way_back = problem.way_back
        problem.nodes[name] = levels
    return problem.train(problem.training)


def bits_per_weight(problem: Problem) -> dict[str, float]:
    """For the history: bits per weight, signs left out as in the source."""
    planes = [module for module in problem.modules() if isinstance(module, Planes)]
    total = sum(node.positive[0].numel() for node in planes)
    return {"bits": sum(node.bits() * node.positive[0].numel() for node in planes) / total}
