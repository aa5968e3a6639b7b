"""When a fit ends. Every rule has a cap: no phase can keep the next one waiting for ever."""

import abc
import math
from typing import Any, ClassVar, Literal

from torchlift.errors import TorchliftError


class Rule(abc.ABC):
    """Told one number per epoch, says when to stop. Plain Python; its attributes are its whole state."""

    watches: ClassVar[Literal["loss", "grad_norm"]] = "loss"
    """What :meth:`update` is told: the validation loss, or the norm of the full gradient."""

    def __init__(self, cap: float) -> None:
        self.cap = positive(f"{type(self).__name__}'s cap", cap)
        self.epochs = 0

    @abc.abstractmethod
    def scaled(self, factor: float) -> "Rule":
        """The rule before its first update, with ``factor`` times the cap (steps of another price)."""

    @abc.abstractmethod
    def satisfied(self, value: float) -> bool:
        """Whether to stop before the cap."""

    def update(self, value: float) -> bool:
        """Count one epoch that ended with ``value``; True means stop."""
        self.epochs += 1
        return self.satisfied(value) or self.epochs >= self.cap

    def state(self) -> dict[str, Any]:
        """All attributes, for a checkpoint."""
        return dict(vars(self))

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        vars(self).update(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.settings().items())})"

    def settings(self) -> dict[str, Any]:
        """What the rule was made from."""
        return {"cap": self.cap}


class Epochs(Rule):
    """Stop after n epochs; a fraction counts as that part of an epoch's steps."""

    def __init__(self, n: float) -> None:
        super().__init__(n)

    def scaled(self, factor: float) -> "Epochs":
        """n · factor epochs."""
        return Epochs(self.cap * factor)

    def satisfied(self, value: float) -> bool:
        """Never before the cap."""
        return False


class Plateau(Rule):
    """Stop after ``patience`` epochs in a row without a loss below best − min_delta."""

    def __init__(self, patience: int, cap: float, min_delta: float = 0.0) -> None:
        super().__init__(cap)
        self.patience, self.min_delta = positive("Plateau's patience", patience), min_delta
        self.best, self.since = math.inf, 0

    def scaled(self, factor: float) -> "Plateau":
        """The same patience, ``factor`` times the cap."""
        return Plateau(int(self.patience), self.cap * factor, self.min_delta)

    def satisfied(self, value: float) -> bool:
        """Whether the loss has not improved for ``patience`` epochs."""
        improved = value < self.best - self.min_delta
        self.best = value if improved else self.best
        self.since = 0 if improved else self.since + 1
        return self.since >= self.patience

    def settings(self) -> dict[str, Any]:
        """What the rule was made from."""
        return {"patience": self.patience, "cap": self.cap, "min_delta": self.min_delta}


class Stationary(Rule):
    """Stop once ‖∇F‖ over all data is at most ``grad_norm``."""

    watches: ClassVar[Literal["loss", "grad_norm"]] = "grad_norm"

    def __init__(self, grad_norm: float, cap: float) -> None:
        super().__init__(cap)
        self.grad_norm = positive("Stationary's grad_norm", grad_norm)

    def scaled(self, factor: float) -> "Stationary":
        """The same norm, ``factor`` times the cap."""
        return Stationary(self.grad_norm, self.cap * factor)

    def satisfied(self, value: float) -> bool:
        """Whether the gradient is small enough."""
        return value <= self.grad_norm

    def settings(self) -> dict[str, Any]:
        """What the rule was made from."""
        return {"grad_norm": self.grad_norm, "cap": self.cap}


def positive(what: str, value: float) -> float:
    """The value, if it could begin and end."""
    if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise TorchliftError(f"{what} must be a positive finite number, got {value!r}.")
    return value
