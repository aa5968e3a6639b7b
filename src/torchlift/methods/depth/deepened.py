"""Train a deeper network for a while, then come back to the one you want."""

import dataclasses

from torchlift.core import Fit, Task
from torchlift.errors import TorchliftError
from torchlift.methods.depth.critical import CriticalLayer
from torchlift.methods.recipe import Recipe, lift_from_fields


@dataclasses.dataclass(frozen=True)
class Deepened(Recipe):
    """min over W′, W″ of f(W″ σ(W′ h + b′) + b″), σ fading to a line; then W = W″ diag(λ) W′ alone.

    A layer is inserted by critical lifting (Bai et al., 2024), so that training starts at the same function
    on the data, and as the activation fades the deeper network becomes the given one: merging loses nothing.
    ``base`` and ``finetune`` are the parts of the budget before and after. The other fields are those of
    :class:`~torchlift.lifts.CriticalLayer`.
    """

    after: str
    width: int | None = None
    residual: bool = False
    seed: int | None = 0
    tolerance: float | None = 1e-2
    margin: float = 0.1
    fade: bool = True
    base: float = 0.0
    finetune: float = 0.25

    def __post_init__(self) -> None:
        if not (self.base >= 0 and self.finetune >= 0 and self.base + self.finetune < 1):
            raise TorchliftError(
                f"base and finetune are fractions of one budget, got {self.base} and {self.finetune}."
            )
        _ = self.lift

    @property
    def lift(self) -> CriticalLayer:
        """The lift with these fields, its inputs from the training data."""
        return lift_from_fields(CriticalLayer, self)

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the lift says."""
        return self.lift.accepts(task, fit)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Plain, deeper, plain."""
        if self.base:
            fit(task, name="base", share=self.base)
        lifted = fit.lift(self.lift, task)
        fit(lifted, name="deeper", share=1 - self.base - self.finetune)
        small = self.lift.project(lifted, fit)
        assert isinstance(small, Task)
        if self.finetune:
            fit(small, name="finetune", share=self.finetune)
        return small
