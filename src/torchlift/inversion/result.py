"""What an inversion found, and how sure it is of it."""

import dataclasses

from torch import Tensor

from torchlift.errors import TorchliftError


class InversionError(TorchliftError):
    """A network, an observation or a setting that cannot be inverted; the line says what would work."""


class RangeWarning(UserWarning):
    """Values outside the range of the last activation were projected onto it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Inversion:
    """x with N(x) ≈ y, and what is known about it.

    ``objective`` = ``fidelity`` + αJ(x), summed over samples; ``residual`` = ‖N(x) − y‖₂ over all of them.
    ``gap`` bounds objective − minimum from above where the problem is convex and a bound has a formula,
    else it is None. ``converged`` says whether the solver's own test was met, not only its limits.
    ``history`` has rows (iteration, objective, gap).
    """

    x: Tensor
    objective: float
    fidelity: float
    residual: float
    iterations: int
    alpha: float | None
    gap: float | None
    converged: bool
    method: str
    seconds: float
    history: tuple[tuple[int, float, float | None], ...] = ()
