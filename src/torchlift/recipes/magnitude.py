"""Magnitude pruning: at once, gradually, or in rounds with rewinding."""

import copy
import dataclasses
from collections.abc import Callable

from torchlift.core import Task, TorchliftError
from torchlift.recipes.pruning import Scope, dropped, logger, magnitudes, rewound, sparsity, weights
from torchlift.train import Fit


@dataclasses.dataclass(frozen=True)
class MagnitudePruning:
    """Train; drop the smallest weights; train on what is left.

    ``steps=1``: one-shot (Han et al. 2015). ``steps=n``: gradual (GMP; Zhu and Gupta 2017), with
    sparsity · (1 − (1 − k/n)³) after the k-th of n stages. ``share`` of the budget goes to the stages, the
    rest trains what is left. ``schedule`` spans the whole recipe.
    """

    sparsity: float = 0.9
    where: str = "*weight"
    scope: Scope = "global"
    steps: int = 1
    share: float = 0.5
    skip: str | None = None
    schedule: Callable[[float], float] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.sparsity < 1:
            raise TorchliftError(
                f"sparsity must lie in [0, 1), got {self.sparsity}: 0.95 leaves 5 % of the weights."
            )
        if self.steps < 1:
            raise TorchliftError(f"steps must be at least 1, got {self.steps}.")

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Stages of training, each followed by a cut; then the rest of the budget."""
        log = logger(self.where, self.skip, sparsity=self.sparsity)
        part = self.share / self.steps
        for k in range(self.steps):
            fit(task, name=f"prune {k + 1}", share=part, schedule=self.piece(k * part, part), log=log)
            goal = self.sparsity * (1 - (1 - (k + 1) / self.steps) ** 3)
            task = dropped(task, magnitudes(weights(task, self.where, self.skip)), goal, self.scope)
        fit(
            task,
            name="finetune",
            share=1 - self.share,
            schedule=self.piece(self.share, 1 - self.share),
            log=log,
        )
        return task

    def piece(self, start: float, length: float) -> Callable[[float], float] | None:
        """The part of the schedule that a fit runs through."""
        whole = self.schedule
        return None if whole is None else lambda t: whole(start + length * t)


@dataclasses.dataclass(frozen=True)
class IterativeMagnitude:
    """IMP: for each round train, drop the fraction τ of the remaining weights that is smallest, rewind.

    Frankle et al. (2019); thesis Algorithm 3. ``rewind=k``: back to the weights and norm statistics of the
    end of epoch k of the first round (0: the initial ones); ``None`` trains on (IMP-C). After the last round
    the ticket is trained once more, so that there are ``rounds`` + 1 fits of equal length.
    """

    rounds: int = 5
    fraction: float = 0.2
    rewind: int | None = None
    where: str = "*weight"
    scope: Scope = "global"
    skip: str | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 < self.fraction < 1:
            raise TorchliftError(
                f"IMP needs rounds ≥ 1 and 0 < fraction < 1, got {self.rounds}, {self.fraction}."
            )

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The rounds, then the ticket's training."""
        log = logger(self.where, self.skip, sparsity=1 - (1 - self.fraction) ** self.rounds)
        early = copy.deepcopy(task.state_dict())
        share = 1 / (self.rounds + 1)
        for number in range(1, self.rounds + 1):
            remember = (self.rewind,) if number == 1 and self.rewind else ()
            fitted = fit(task, name=f"round {number}", share=share, remember=remember, log=log)
            early = remembered(fitted.remembered, self.rewind) if remember else early
            found = weights(task, self.where, self.skip)
            goal = 1 - (1 - self.fraction) * (1 - sparsity(found))
            task = dropped(task, magnitudes(found), goal, self.scope)
            task = task if self.rewind is None else rewound(task, early)
        fit(task, name="ticket", share=share, log=log)
        return task


def remembered(kept: dict[int, dict[str, object]], epoch: int | None) -> dict[str, object]:
    """The state of an epoch, or an error: rewinding must not silently do nothing."""
    if epoch is None or epoch not in kept:
        raise TorchliftError(
            f"rewind={epoch} lies beyond the first round: give it more epochs, or rewind to fewer."
        )
    return kept[epoch]
