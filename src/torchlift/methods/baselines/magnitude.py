"""Magnitude pruning: at once, gradually, or in rounds with rewinding."""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping

from torch import nn

from torchlift.core import Fit, Task, matches
from torchlift.errors import TorchliftError
from torchlift.methods.recipe import Recipe
from torchlift.methods.sparsity.pruned_weights import (
    Scope,
    dropped,
    logger,
    magnitudes,
    prunable_weights,
    rewound,
    sparsity,
    why_not,
)


@dataclasses.dataclass(frozen=True)
class MagnitudePruning(Recipe):
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

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Whether ``where`` reaches what it means."""
        del fit
        return why_not(task, self.where, self.skip)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Stages of training, each followed by a cut; then the rest of the budget."""
        log = logger(self.where, self.skip, sparsity=self.sparsity)
        stage_share = self.share / self.steps
        for k in range(self.steps):
            fit(
                task,
                name=f"prune {k + 1}",
                share=stage_share,
                schedule=self.piece(k * stage_share, stage_share),
                log=log,
            )
            goal = self.sparsity * (1 - (1 - (k + 1) / self.steps) ** 3)
            task = dropped(task, magnitudes(prunable_weights(task, self.where, self.skip)), goal, self.scope)
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
class IterativeMagnitude(Recipe):
    """IMP: for each round train, drop the fraction τ of the remaining weights that is smallest, rewind.

    Frankle et al. (2019); thesis Algorithm 3. τ is ``fraction``, or given by glob, as in
    ``{"*conv*": 0.15, "*": 0.2}``: each pattern then loses its own part. ``rewind=k``: back to the weights
    and norm statistics of the end of epoch k of the first round (0: the initial ones); ``None`` trains on
    (IMP-C). After the last round the ticket is trained once more, so that there are ``rounds`` + 1 fits of
    equal length.
    """

    rounds: int = 5
    fraction: float | Mapping[str, float] = 0.2
    rewind: int | None = None
    where: str = "*weight"
    scope: Scope = "global"
    skip: str | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1 or not all(0 < rate < 1 for rate in self.rates().values()):
            raise TorchliftError(
                f"IMP needs rounds ≥ 1 and 0 < fraction < 1, got {self.rounds}, {self.fraction}."
            )

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """Whether ``where`` reaches what it means."""
        del fit
        return why_not(task, self.where, self.skip)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """The rounds, then the ticket's training."""
        log = logger(self.where, self.skip, sparsity=self.total_sparsity(task))
        early = copy.deepcopy(task.state_dict())
        share = 1 / (self.rounds + 1)
        for number in range(1, self.rounds + 1):
            remember = (self.rewind,) if number == 1 and self.rewind else ()
            fitted = fit(task, name=f"round {number}", share=share, remember=remember, log=log)
            early = remembered(fitted.remembered, self.rewind) if remember else early
            task = self.cut(task)
            task = task if self.rewind is None else rewound(task, early)
        fit(task, name="ticket", share=share, log=log)
        return task

    def rates(self) -> Mapping[str, float]:
        """What goes each round, by glob."""
        return self.fraction if isinstance(self.fraction, Mapping) else {"*": self.fraction}

    def by_rate(self, task: Task) -> list[tuple[float, dict[str, nn.Parameter]]]:
        """The weights of every glob, each with the first that fits, and their rate."""
        rates, every = self.rates(), prunable_weights(task, self.where, self.skip)
        first = {name: next((glob for glob in rates if matches(name, glob)), None) for name in every}
        return [
            (rate, chosen)
            for glob, rate in rates.items()
            if (chosen := {name: w for name, w in every.items() if first[name] == glob})
        ]

    def cut(self, task: Task) -> Task:
        """The task after one round's cut: of n weights left ⌈τ n⌉ go."""
        for rate, chosen in self.by_rate(task):
            alone = [{name: w} for name, w in chosen.items()]
            for some in [chosen] if self.scope == "global" else alone:
                total = sum(w.numel() for w in some.values())
                left = round(total * (1 - sparsity(some)))
                goal = (total - left + math.ceil(rate * left - 1e-9)) / total
                task = dropped(task, magnitudes(some), goal, self.scope)
        return task

    def total_sparsity(self, task: Task) -> float:
        """The sparsity that all rounds together make."""
        sizes = [(rate, sum(w.numel() for w in chosen.values())) for rate, chosen in self.by_rate(task)]
        total = sum(w.numel() for w in prunable_weights(task, self.where, self.skip).values())
        return sum(size * (1 - (1 - rate) ** self.rounds) for rate, size in sizes) / total


def remembered(kept: dict[int, dict[str, object]], epoch: int | None) -> dict[str, object]:
    """The state of an epoch, or an error: rewinding must not silently do nothing."""
    if epoch is None or epoch not in kept:
        raise TorchliftError(
            f"rewind={epoch} lies beyond the first round: give it more epochs, or rewind to fewer."
        )
    return kept[epoch]
