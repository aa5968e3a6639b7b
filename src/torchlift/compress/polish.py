"""Polishing: distillation from the original on the same inputs, on the grid and mask that were chosen.

min E ‖ŷ(x') − y(x')‖² / E ‖y − ȳ‖²   over the weights left;   w = step · clamp(round(v / step)), straight
through;  x': variations of the inputs (:mod:`torchlift.compress.variations`).
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchlift.compress.calibration import distributed, inputs_of
from torchlift.compress.distance import prediction, rows
from torchlift.compress.grid import nearest
from torchlift.compress.running import run
from torchlift.compress.sweep import Sweep
from torchlift.compress.variations import Variations
from torchlift.core import Node, Problem, Task, WeightLift
from torchlift.core.stored import Stored, spread_step, stored
from torchlift.loss import call
from torchlift.tree import move


class OnSteps(Node):
    """w = kept · step · clamp(round(v / step)), ∂w/∂v = 1."""

    step: Tensor
    kept: Tensor

    def __init__(self, weight: Tensor, record: Stored) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        step = (
            torch.zeros_like(weight)
            if record.step is None
            else spread_step(record.step, weight.shape).to(weight)
        )
        self.register_buffer("step", step.clone())
        self.register_buffer(
            "kept", torch.ones_like(weight, dtype=torch.bool) if record.kept is None else record.kept
        )
        self.top = 0.0 if record.levels is None else float(record.levels.abs().max())

    def hard(self) -> Tensor:
        """The value on the grid and under the mask."""
        v = self.weight.detach()
        value = (
            v
            if not self.top
            else (self.step.double() * nearest(v.double(), self.step.double(), self.top)).to(v)
        )
        return torch.where(self.kept, value, 0.0) + 0.0

    def forward(self) -> Tensor:
        """The hard value, with the gradient of v."""
        return self.hard() + (self.weight - self.weight.detach()) * self.kept

    def project(self) -> Tensor:
        """The hard value."""
        return self.hard()


@dataclasses.dataclass(frozen=True)
class HoldRecords(WeightLift):
    """Weights with a storage record stay on their grid and under their mask."""

    where: str = "*"
    prunes: ClassVar[bool] = False

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """The weights with a record."""
        records = stored(problem)
        return {name: w for name, w in super().eligible(problem).items() if name in records}

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """See :func:`polished`, which knows the records."""
        return {name: OnSteps(weight, self.records()[name]) for name, weight in weights.items()}

    records_of: Any = dataclasses.field(default=None, repr=False, compare=False)

    def records(self) -> dict[str, Stored]:
        """The records by the problem's names."""
        return {f"model.{name}": record for name, record in stored(self.records_of).items()}


def polished(sweep: Sweep, work: nn.Module, data: Any, epochs: float) -> nn.Module:
    """The network after so many epochs of distillation, at the epoch whose outputs on inputs held out are
    nearest; kept where outputs on all inputs, which the layers before were solved for, are nearer."""
    from torchlift.train.run import fit

    pairs = pairs_of(sweep)
    distance = OutputDistance.of(sweep, pairs)
    train, unseen = (data, None) if pairs is None else split_off(pairs)
    student = copy.deepcopy(work)
    for parameter in student.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    recipe = HoldRecords(records_of=student) if stored(student) else None
    before = sweep.output_error(work)
    rate: dict[str, Any] = {
        "optimizer": relative_adam(rate_for(before), recipe is not None),
        "schedule": warm_cosine,
    }
    result = fit(
        Task(student, distance),
        train,
        unseen,
        recipe=recipe,
        epochs=epochs,
        batch_size=BATCH,
        keep="last" if unseen is None else "best",
        progress=False,
        device=str(sweep.calibration.device),
        **rate,
    )
    after = result.model.eval()
    if pairs is None:
        return after if sweep.output_error(after) < before else work
    return after if distance.mean(after, pairs) < distance.mean(work, pairs) else work


@dataclasses.dataclass(frozen=True, eq=False)
class OutputDistance:
    """How far a model's outputs are from the original's; while it trains, on variations of the inputs.

    E ‖ŷ − y‖² / E ‖y − ȳ‖²;   for outputs in [0, 1] that of every entry is KL(y, ŷ) / 4 in place of (ŷ − y)²
    """

    sweep: Sweep
    paired: bool
    """Whether batches hold the original's outputs beside the inputs; otherwise perhaps labels."""
    energy: float
    shares: bool
    """Whether outputs lie in [0, 1]."""
    variations: Variations

    @classmethod
    def of(cls, sweep: Sweep, pairs: tuple[Tensor, ...] | None) -> "OutputDistance":
        """For outputs as the original's are on the first batch."""
        outputs = rows(run(sweep.original, sweep.calibration.first()))
        variations = Variations(())
        if pairs is not None and len(pairs) == 2:
            variations = Variations.of(sweep.original, pairs[0])
        shares = bool(((outputs >= 0) & (outputs <= 1)).all())
        return cls(sweep, pairs is not None, float(outputs.var(0).mean()) or 1.0, shares, variations)

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """A loss, as :class:`Task` takes it."""
        model.eval()  # running statistics and dropout as they will be
        inputs, target = self.inputs_and_target(batch)
        output = prediction(call(model, inputs))
        if not self.shares:
            return (output - target).square().mean() / self.energy
        surprise, least = (
            functional.binary_cross_entropy(p.clamp(TINY, 1 - TINY), target) for p in (output, target)
        )
        return (surprise - least) / (4 * self.energy)

    def inputs_and_target(self, batch: Any) -> tuple[Any, Tensor]:
        """Inputs with the original's outputs."""
        batch = move(batch, self.sweep.calibration.device)
        if self.paired and not (self.variations.used and torch.is_grad_enabled()):
            *inputs, target = batch
            return tuple(inputs), target
        inputs = inputs_of(batch, self.sweep.calibration.positional)
        if self.paired:
            inputs = (self.variations(batch[0]),)
        return inputs, prediction(run(self.sweep.original, inputs))

    @torch.no_grad()
    def mean(self, model: nn.Module, pairs: tuple[Tensor, ...]) -> float:
        """Over all samples."""
        batches = zip(*(column.split(BATCH) for column in pairs), strict=True)
        return sum(len(batch[0]) * float(self(model, batch)) for batch in batches) / len(pairs[0])


def split_off(pairs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
    """Samples to train on, and every eighth of them, which is not among them; none where there are few."""
    unseen = torch.arange(len(pairs[0])) % EVERY == EVERY // 2
    if int(unseen.sum()) < FEWEST:
        return pairs, None
    return tuple(column[~unseen] for column in pairs), tuple(column[unseen] for column in pairs)


def pairs_of(sweep: Sweep) -> tuple[Tensor, ...] | None:
    """All inputs with the original's outputs beside them, so that it runs once; None where they are many."""
    taken: list[tuple[Tensor, ...]] = []
    entries = 0
    for inputs in () if distributed() else sweep.calibration:
        if not isinstance(inputs, tuple) or not all(isinstance(t, Tensor) and t.ndim for t in inputs):
            return None
        pair = (*inputs, prediction(run(sweep.original, inputs)))
        entries += sum(t.numel() for t in pair)
        if entries > MOST_ENTRIES or len({len(t) for t in pair}) > 1:
            return None
        taken.append(pair)
    shapes = {tuple(t.shape[1:] for t in pair) for pair in taken}
    return tuple(torch.cat(column) for column in zip(*taken, strict=True)) if len(shapes) == 1 else None


def rate_for(error: float) -> float:
    """A step's size beside that of the weights: as the outputs are off, so are the weights."""
    return min(max(SHARE * math.sqrt(error), LEAST_RATE), MOST_RATE)


def relative_adam(rate: float, gridded: bool) -> Callable[..., torch.optim.Optimizer]:
    """Adam with rates relative to the size of each parameter: the network is near its best already."""

    def adam(groups: Any) -> torch.optim.Optimizer:
        parameters = [
            p for group in groups for p in (group["params"] if isinstance(group, dict) else [group])
        ]
        rates = [ON_GRID if gridded and p.ndim > 1 else rate for p in parameters]
        sizes = [max(float(p.detach().square().mean().sqrt()), 1e-4) for p in parameters]
        every = zip(parameters, rates, sizes, strict=True)
        return torch.optim.Adam([{"params": [p], "lr": own * size} for p, own, size in every])

    return adam


def warm_cosine(t: float) -> float:
    """Up over the first tenth, then down along a cosine: Adam's first steps are its wildest."""
    return min(1.0, 0.05 + t / 0.1) * 0.5 * (1 + math.cos(math.pi * t))


SHARE, LEAST_RATE, MOST_RATE = 0.04, 1e-3, 1e-2
"""rate = SHARE · √error, within its bounds: near the upper one where half of all channels went."""
ON_GRID = 1e-2
"""On a grid a weight has further to go."""

BATCH = 32
EVERY, FEWEST = 8, 4
"""Every eighth sample is held out, where that makes four or more."""

TINY = 1e-6
"""Shares are kept this far from 0 and 1."""

MOST_ENTRIES = 2**26
"""Numbers that inputs and outputs may have together to stay in memory."""
