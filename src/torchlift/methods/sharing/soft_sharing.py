"""Soft sharing as a recipe: train shared, look, fold, fine-tune."""

import dataclasses
import functools
import logging
from collections.abc import Iterable
from typing import Any, cast

import torch

from torchlift.analyze import similarity
from torchlift.core import Fit, Lift, Problem, Task
from torchlift.deploy.measuring import file_size
from torchlift.errors import TorchliftError
from torchlift.lifts import Templates
from torchlift.methods.recipe import Recipe, lift_from_fields
from torchlift.methods.sharing.banks import banks
from torchlift.methods.sharing.folding import Fold
from torchlift.methods.sharing.mixing import joins
from torchlift.methods.sharing.templates import SharingGroups, StoredForm
from torchlift.targets import Target, solve_for_target

LOG = logging.getLogger("torchlift")


@dataclasses.dataclass(frozen=True)
class SoftSharing(Recipe):
    """min over T, α of f(W) − λ Σ S(α), W⁽ˡ⁾ = Σᵢ αᵢ⁽ˡ⁾ T⁽ⁱ⁾; one weight for layers alike in α; fine-tune.

    Savarese and Maire (2019); thesis, chapter 3. Options of :class:`~torchlift.lifts.Templates`. Layers whose
    coefficients reach |cosine| ``fold`` are folded; with a target, ``parameters`` or ``bytes`` of the packed
    file, as few as meet it, the most alike first. ``finetune`` is the part of the budget for the folded
    network, at ``finetune_rate`` times the run's rates. ``store="templates"`` (default) keeps the templates
    of a group that would be left with more weights than those: what training saved stays saved.
    """

    k: int | None = 2
    where: str = "*weight"
    groups: SharingGroups = "auto"
    recurrence: float = 0.0
    fold: float | None = 0.95
    parameters: int | None = None
    bytes: int | None = None
    store: StoredForm = "templates"
    finetune: float = 0.25
    finetune_rate: float = 1.0

    def __post_init__(self) -> None:
        _ = self.target
        if not 0 <= self.finetune < 1:
            raise TorchliftError(f"finetune is a fraction of the budget in [0, 1), got {self.finetune}.")
        _ = self.lift

    @property
    def lift(self) -> Templates:
        """The lift with these fields."""
        return lift_from_fields(Templates, self)

    def lifts(self) -> Iterable[Lift]:
        """The templates."""
        return (self.lift,)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says, and whether the target can be reached."""
        reason = self.lift.accepts(task, fit)
        if reason is not None or self.target is None:
            return reason
        with torch.random.fork_rng(devices=[]):
            return self.beyond(self.lift.lift(task))

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, fit, fold, fine-tune."""
        lifted = fit.lift(self.lift, task)
        reason = self.beyond(lifted)
        if reason is not None:
            raise TorchliftError(reason)
        preview = self.lift.project if self.target is None else None
        fit(lifted, name="shared", share=1 - self.finetune, preview=preview, log=cast(Any, self.seen))
        small, rows = self.way(lifted).folded(lifted)
        assert isinstance(small, Task)
        log_folds(rows)
        if self.finetune:
            fit(small, name="finetune", share=self.finetune, rate=self.finetune_rate, log=self.account)
        return small

    @property
    def target(self) -> Target | None:
        """The one that was given."""
        return Target.one_of(parameters=self.parameters, bytes=self.bytes)

    def size(self, problem: Problem) -> int:
        """What the target counts, of a plain task."""
        assert isinstance(problem, Task)
        if self.bytes is not None:
            return file_size(problem.model)
        return sum(p.numel() for p in problem.parameters())

    def beyond(self, lifted: Problem) -> str | None:
        """Why the target cannot be met by folding, or None."""
        if self.target is None:
            return None
        least = self.size(dataclasses.replace(self.lift, fold=0.0).project(lifted))
        if self.target.value < least:
            return f"{self.target} is out of reach: one weight for every group leaves {least}."
        return None

    def way(self, lifted: Problem) -> Templates:
        """The lift with the threshold to fold at: the given one, or the highest that meets the target."""
        if self.target is None:
            return self.lift
        levels = {level for bank in banks(lifted).values() for level in joins(bank.alpha)}
        ways = [dataclasses.replace(self.lift, fold=f) for f in (None, *sorted(levels, reverse=True), 0.0)]
        size = functools.cache(lambda number: float(self.size(ways[number].project(lifted))))
        last = len(ways) - 1  # sizes fall along the list
        steps = 2 * last.bit_length() + 2
        solution = solve_for_target(
            lambda x: size(round(x)), self.target.value, 0.0, last, steps=steps, at_most=True
        )
        return ways[round(solution.at)]

    def seen(self, problem: Problem) -> dict[str, Any]:
        """For the history: how alike the layers are; without fine-tuning also the size as it would be now."""
        similarities = similarity(problem)
        pairs = [float((s.sum() - s.trace()) / (s.numel() - len(s))) for s in similarities.values()]
        rows = {name: [[round(v, 3) for v in row] for row in s.tolist()] for name, s in similarities.items()}
        size = {} if self.finetune else self.account(self.way(problem).project(problem))
        return {"mean_similarity": sum(pairs) / len(pairs), "similarity": rows, **size}

    def account(self, problem: Problem) -> dict[str, float]:
        """For the history: parameters or bytes, the target and what is achieved."""
        row = {} if self.target is None else self.target.row()
        return {"parameters" if self.bytes is None else "bytes": float(self.size(problem)), **row}


def log_folds(rows: list[Fold]) -> None:
    """What was folded, and what was not although it could have been."""
    for row in rows:
        if row.why:
            LOG.warning("%s was not folded: %s.", row.layer, row.why)
        elif row.stored != row.layer:
            LOG.info("%s uses %s times %.4g, off by %.2g.", row.layer, row.stored, row.scale, row.error)
