"""Rate and distortion: weights on learned steps that pay for the length of their code."""

import dataclasses
import math
import warnings
from collections.abc import Iterable
from functools import partial
from typing import cast

from torchlift.core import Fit, Lift, Problem, Task
from torchlift.errors import TorchliftError
from torchlift.methods.precision.bit_targets import packed_bytes
from torchlift.methods.precision.code_length import CodeLength, RateControl, code_bits_per_weight, priced
from torchlift.methods.recipe import Recipe
from torchlift.targets import Target, solve_for_target

LEAST = 0.02
"""Bits per weight below which a code is mostly its own table."""
AIM = 0.99
"""What a code is steered to, as a part of what it may take."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateDistortion(Recipe):
    """min over w of f(w); then min over v, s of f(s [v/s]) + λ Σ ℓ(v/s), λ steered until the code is short.

    :class:`~torchlift.lifts.CodeLength` with a target: ``bits`` per weight of an ideal code of the levels
    (any number, below one too), or ``bytes`` of the packed file. The code shrinks over the first three fifths
    of the second fit, which goes through the run's schedule once more at ``rate`` times its rates; at the end
    the weights nearest to zero are zeroed until nothing exceeds the target. ``pretrain``: the part of the
    budget in which the float network is trained before; 0 for one that is trained already. ``levels``: the
    bits of the largest level, by default one more than the code is to have, 4 to 8.
    """

    bits: float | None = None
    bytes: float | None = None
    where: str = "*weight"
    pretrain: float = 0.5
    rate: float = 1.0
    levels: int | None = None

    def __post_init__(self) -> None:
        if self.target is None:
            raise TorchliftError(
                "RateDistortion needs a target: bits= of the code per weight, or bytes= of the file."
            )
        if not 0 < self.target.value < math.inf:
            raise TorchliftError(f"a target is a positive number, got {self.target}.")
        if self.bits is not None and not LEAST <= self.bits <= 10:
            raise TorchliftError(f"bits of a code lie in [{LEAST}, 10] per weight, got {self.bits}.")
        if not 0 <= self.pretrain < 1:
            raise TorchliftError(f"pretrain is a fraction of the budget in [0, 1), got {self.pretrain}.")
        _ = self.lift(4.0)

    @property
    def target(self) -> Target | None:
        """The one that was given."""
        return Target.one_of(bits=self.bits, bytes=self.bytes)

    def lift(self, goal: float) -> CodeLength:
        """The lift for a goal of so many bits."""
        return CodeLength(self.where, self.levels or min(8, max(4, math.ceil(goal) + 1)))

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Train, code, meet the target."""
        if self.pretrain:
            fit(task, name="float", share=self.pretrain)
        lift = self.lift(self.goal(task))
        lifted = fit.lift(lift, task)
        nodes = priced(lifted)
        control = RateControl(nodes, partial(steered_bits, lifted, lift, self.wanted))
        nodes[0].add_module("control", control)
        for node in nodes:
            node.price = [control]
        fit(
            lifted,
            name="coded",
            share=1 - self.pretrain,
            rate=self.rate,
            groups={"*.log_step": {"lr_factor": self.step_rate(fit, control)}},
            keep="last",  # the best network of this phase is that with the longest code
            preview=lift.project,
            log=partial(account, lift, self.wanted),
        )
        meet(lifted, lift, self.wanted)
        return cast(Task, lift.project(lifted))

    def step_rate(self, fit: Fit, control: RateControl) -> float:
        """Relative to 1e-2: Adam moves log s by its rate, and a bit is ln 2; in a quarter of the fit."""
        steps = (1 - self.pretrain) * fit.epochs * fit.steps
        needed = 4 * math.log(2) * max(0.0, float(control.first - control.goal))
        return min(20.0, max(0.3, 100 * needed / max(1.0, steps)))

    @property
    def wanted(self) -> Target:
        """The target: there always is one."""
        return cast(Target, self.target)

    def goal(self, task: Task) -> float:
        """Bits of the code per weight, from the network as it is."""
        lift = self.lift(self.bits or 4.0)
        return goal_bits(lift.lift(task), lift, self.wanted)

    def lifts(self) -> Iterable[Lift]:
        """The levels, under the price of their code."""
        return (self.lift(self.bits or 4.0),)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says, and whether the target can be met."""
        lift = self.lift(self.bits or 4.0)
        reason = lift.accepts(task, fit)
        if reason is not None:
            return reason
        try:
            _ = self.goal(task)
        except TorchliftError as error:
            return str(error)
        return None


def account(lift: Lift, target: Target, problem: Problem) -> dict[str, float]:
    """For the history: bits per weight, the bytes if they are the target, and the target."""
    numbers = {"bits": code_bits_per_weight(priced(problem))}
    if target.name == "bytes":
        numbers["bytes"] = float(packed_bytes(problem, lift))
    return numbers | target.row()


def goal_bits(problem: Problem, lift: Lift, target: Target) -> float:
    """Bits of the code per weight at which a target is met; raises where that is less than a code takes."""
    if target.name == "bits":
        return target.value
    total, beside = fixed_part(problem, lift)
    goal = (target.value - beside) * 8 / total
    if goal < LEAST:
        least = math.ceil(beside + LEAST * total / 8)
        raise TorchliftError(
            f"{target} is below the file's fixed part: {least} bytes are the least with these weights on "
            "levels; allow more, widen where=, or shrink the model first."
        )
    return min(goal, 10.0)


def fixed_part(problem: Problem, lift: Lift) -> tuple[int, float]:
    """How many weights have levels, and the bytes that the file takes beside their code."""
    nodes = priced(problem)
    total = sum(node.weight.numel() for node in nodes)
    return total, packed_bytes(problem, lift) - code_bits_per_weight(nodes) * total / 8


def steered_bits(problem: Problem, lift: Lift, target: Target) -> float:
    """The goal while training, a little lower: cutting what is too long at its end costs far more."""
    if target.name == "bits":
        return AIM * target.value
    total, beside = fixed_part(problem, lift)
    return min(10.0, max(LEAST, (AIM * target.value - beside) * 8 / total))


def meet(problem: Problem, lift: Lift, target: Target) -> None:
    """Widen the dead zone around zero, in steps, by as much as it takes not to exceed the target."""
    nodes = priced(problem)

    def measure(dead_zone: float) -> float:
        for node in nodes:
            node.dead_zone = dead_zone
        return code_bits_per_weight(nodes) if target.name == "bits" else float(packed_bytes(problem, lift))

    if measure(0.0) <= target.value:
        return
    most = max(node.high for node in nodes) + 0.5
    achieved = measure(solve_for_target(measure, target.value, 0.0, most, steps=16, at_most=True).at)
    if target.missed_by(achieved) and achieved > target.value:
        warnings.warn(
            f"the target is {target}; {achieved:.4g} is the least these weights have.", stacklevel=3
        )
