"""SMOL: noise finds each weight's precision; the weights are fine-tuned on the grid that leaves."""

import dataclasses
from collections.abc import Iterable
from typing import Literal

from torchlift.core import Fit, Lift, Problem, Task
from torchlift.deploy.measuring import file_size
from torchlift.errors import TorchliftError
from torchlift.lifts import KeepGrid, Precision
from torchlift.methods.inside import delivered
from torchlift.methods.precision.bit_targets import (
    allocated_bits,
    meet_bits,
    noisy,
    reachable_bits,
    steer,
    trim,
    zeroes,
)
from torchlift.methods.precision.keep_grid import OnGrid, finalize
from torchlift.methods.precision.moving_grid import OnMovingGrid
from torchlift.methods.precision.precision import Granularity
from torchlift.methods.recipe import Recipe, lift_from_fields
from torchlift.targets import Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Smol(Recipe):
    """min over v, s of E f(v + σ(s) ⊙ ε) + λ Σ p(s); whole bits p; min over v of f(Q(v, p)) straight through.

    Savarese et al. (2022); thesis Algorithm 5. Options of :class:`~torchlift.lifts.Precision`. At most one
    target: ``bits``, the average over the weights ``where`` picks, zeros counting nothing, or ``bytes`` of
    the packed file; λ is then steered, and the last step of the way shifts all precisions. Without one,
    ``strength`` decides. ``finetune``: the part of the budget for fine-tuning on the grid, through the run's
    schedule once more at ``finetune_rate`` times its rates. ``logit_rate``: that of Adam for s; 1e-3 as in
    the source, more in runs too short for that. The weights are projected at the very end.

    ``zeros``: while fine-tuning, weights at zero bits are ``"held"`` as in the source, or ``"moving"``: as
    many of each tensor are zero as were, always the smallest, and the scale of its grid follows its weights
    (``OnMovingGrid``). What was pruned before is held in any case.
    In the coordinates of :class:`Inside`, a norm that is folded at the end scales rows, so that each row has
    a grid of its own.

    More than eight fields: those of the lift, the targets, and what fine-tuning may do.
    """

    bits: float | None = None
    bytes: float | None = None
    where: str = "*weight"
    granularity: Granularity = "weight"
    p_init: float = 8
    strength: float = 1e-7
    rounding: Literal["floor", "round"] = "floor"
    zero: bool = True
    scale: Literal["auto"] | float = "auto"
    activations: bool = False
    size: int = 16
    levels: tuple[int, ...] | None = None
    skip: str | None = None
    finetune: float = 0.5
    finetune_rate: float = 1.0
    logit_rate: float | None = None
    zeros: Literal["held", "moving"] = "held"

    def __post_init__(self) -> None:
        _ = self.target
        if self.bits is not None and not 0 < self.bits <= self.p_init:
            raise TorchliftError(f"bits lies in (0, p_init = {self.p_init:g}], got {self.bits}.")
        if not 0 <= self.finetune < 1:
            raise TorchliftError(f"finetune is a fraction of the budget in [0, 1), got {self.finetune}.")
        if self.zeros not in ("held", "moving"):
            raise TorchliftError(f"zeros {self.zeros!r} is not known: 'held' or 'moving'.")
        if self.zeros == "moving" and (self.levels is not None or not self.zero):
            raise TorchliftError('zeros="moving" moves single zeros: leave levels= out, and zero=True.')
        _ = lift_from_fields(Precision, self)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Noise, whole bits, fine-tuning."""
        lift = lift_from_fields(Precision, self)
        lifted = fit.lift(lift, task)
        target = self.target
        if target is not None:
            goal = reachable_bits(lifted, lift, target)
            steer(lifted, self.strength, goal)
        groups = {"*logit": {"lr_factor": self.rate(fit) / 1e-3}}
        share = 1 - self.finetune
        fit(
            lifted,
            name="noise",
            share=share,
            groups=groups,
            keep="last",  # the best network of this phase is that with the most bits
            preview=lift.project,
            log=self.account,
        )
        if target is not None:
            meet_bits(lifted, lift, target)
        on_grid = finalize(lifted, lift, moving=self.zeros == "moving")
        if self.finetune:
            fit(on_grid, name="finetune", share=self.finetune, rate=self.finetune_rate, log=self.account)
        if target is not None and target.name == "bytes" and zeroes(lift):
            trim(on_grid, target)
        small = KeepGrid().project(on_grid)
        assert isinstance(small, Task)
        return small

    @property
    def target(self) -> Target | None:
        """The one that was given."""
        return Target.one_of(bits=self.bits, bytes=self.bytes)

    def rate(self, fit: Fit) -> float:
        """Adam moves s by about its rate: from 8 bits to 1 are five units, in a quarter of the phase."""
        if self.logit_rate is not None:
            return self.logit_rate
        return min(0.1, max(1e-3, 24 / max(1.0, (1 - self.finetune) * fit.epochs * fit.steps)))

    def account(self, problem: Problem) -> dict[str, float]:
        """For the history: bits per weight, and the bytes if they are the target."""
        row = {} if self.target is None else self.target.row()
        nodes = noisy(problem)
        if nodes:
            return {"bits": allocated_bits(nodes), **row}
        gridded = [module for module in problem.modules() if isinstance(module, OnGrid | OnMovingGrid)]
        total = sum(node.weight.numel() for node in gridded)
        numbers = {"bits": sum(float(node.bits().sum()) for node in gridded) / total}
        if self.bytes is not None:
            numbers["bytes"] = float(file_size(delivered(KeepGrid().project(problem)).model))
        return numbers | row

    def lifts(self) -> Iterable[Lift]:
        """The noise."""
        return (lift_from_fields(Precision, self),)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says, and whether the target can be reached."""
        lift = lift_from_fields(Precision, self)
        reason = lift.accepts(task, fit)
        if reason is not None or self.target is None:
            return reason
        try:
            reachable_bits(lift.lift(task, fit), lift, self.target)
        except TorchliftError as error:
            return str(error)
        return None
