"""Training in the eigenbasis of the gradients, renewed a few times."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

from torchlift.core import Batch, Fit, Problem, Task
from torchlift.flops import count_flops
from torchlift.methods.coordinates.rotate import Rotate, gradient_batches, gradient_moments
from torchlift.methods.coordinates.standardize import Standardize
from torchlift.methods.recipe import Recipe, Started, lift_from_fields

CENTER = Standardize()
PARTS, SHORT = 8, 10
"""Gradients whose moments give a basis; steps of a stage that is too short to take a basis for."""


@dataclasses.dataclass(frozen=True)
class Rotated(Recipe):
    """min over V of f(L V Rᵀ), with L and R turned to the gradients' eigenvectors before every stage.

    Stage i gets ``stages[i]`` of the budget and a fresh optimizer, whose rate rises over the first
    ``warmup`` of the stage; together the stages follow the run's schedule once. The gradients are those of
    the first ``samples`` training samples, in eight parts. Nothing is left of it in the end: W = L V Rᵀ.
    ``where`` and ``largest`` as in :class:`~torchlift.lifts.Rotate`. With ``centered`` layers are in centered
    coordinates too (:class:`~torchlift.lifts.Standardize`), with new means before every stage. At equal cost
    a basis takes at most a tenth of its stage: fewer parts where the stage is short, and where not even one
    is paid for, the basis stays what it was.
    """

    where: str = "*"
    stages: tuple[float, ...] = (1 / 16, 3 / 16, 1 / 4, 1 / 2)
    samples: int = 128
    warmup: float = 0.1
    largest: int = 512
    centered: bool = False

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lifts say."""
        reason = CENTER.accepts(task, fit) if self.centered else None
        return reason or lift_from_fields(Rotate, self).accepts(task)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, turn, fit, turn back; again for every stage."""
        rotate, ends = lift_from_fields(Rotate, self), list(itertools.accumulate(self.stages))
        for stage, (share, end) in enumerate(zip(self.stages, ends, strict=True), 1):
            lifted = rotate.lift(fit.lift(CENTER, task) if self.centered else task)
            batches = self.affordable(lifted, fit, 0.1 * share / sum(self.stages[stage - 1 :]))
            if batches:
                lifted.load_state_dict(fit.remember(f"basis {stage}", turned_by(rotate, lifted, batches)))
            fit(
                lifted,
                name=f"lifted {stage}",
                share=share / ends[-1],
                span=((end - share) / ends[-1], end / ends[-1]),
                warmup=self.warmup,
                keep=None if stage == len(ends) else "last",
            )
            projected = rotate.project(lifted)
            projected = CENTER.project(projected) if self.centered else projected
            assert isinstance(projected, Task)
            task = projected
        return task

    def trained_problems(self, task: Task, fit: Fit) -> list[tuple[Problem, float]]:
        """The rotated problem."""
        return [(lift_from_fields(Rotate, self).lift(CENTER.lift(task, fit) if self.centered else task), 1.0)]

    def start(self, task: Task, fit: Fit) -> Started:
        """The first stage; what comes after are the others."""
        return super(Rotated, dataclasses.replace(self, stages=(1.0,))).resume(Started(task, task), fit)

    def resume(self, started: Started, fit: Fit) -> Started:
        """The stages after the first; one alone where the next would have fewer than ten steps."""
        rest = dataclasses.replace(self, stages=self.stages[1:] or self.stages)
        following = rest.stages[0] / sum(rest.stages) * fit.epochs * fit.steps
        return (
            super(Rotated, rest).resume(started, fit) if following >= SHORT else self.start(started.task, fit)
        )

    def affordable(self, lifted: Problem, fit: Fit, share: float) -> list[Batch]:
        """The first samples in eight parts, or as many of these as ``share`` of what is left pays for."""
        batches = gradient_batches(next(iter(fit.batches())), self.samples, PARTS)
        if not math.isfinite(fit.left()):
            return batches
        price = count_flops(lambda: gradient_moments(lifted, batches[:1]))
        return batches[: math.floor(max(0.0, share * fit.left()) / max(price, 1))]


def turned_by(rotate: Rotate, lifted: Problem, batches: list[Batch]) -> Callable[[], dict[str, Any]]:
    """Turns the lifted problem's bases to its gradients on the batches; its state then."""

    def turn() -> dict[str, Any]:
        rotate.turn(lifted, batches)
        return lifted.state_dict()

    return turn
