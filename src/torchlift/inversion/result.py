"""What an inversion found, and how sure it is of it."""

import dataclasses
import math
from pathlib import Path

import torch
from torch import Tensor

from torchlift.errors import TorchliftError


class InversionError(TorchliftError):
    """A network, an observation or a setting that cannot be inverted; the line says what would work."""


class RangeWarning(UserWarning):
    """Values outside the range of the last activation were projected onto it."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
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
    y: Tensor | None = None
    output: Tensor | None = None
    """N(x)."""

    def __repr__(self) -> str:
        ended = "converged" if self.converged else "not converged"
        sure = "no certificate" if self.gap is None else f"at most {self.gap:.3g} above the minimum"
        chosen = "" if self.alpha is None else f", alpha {self.alpha:.3g}"
        return (
            f"Inversion: x of shape {tuple(self.x.shape)} by {self.method}, {ended} after {self.iterations} "
            f"iterations in {self.seconds:.3g} s; residual {self.residual:.3g}, "
            f"objective {self.objective:.4g} ({sure}){chosen}"
        )

    def report(self, path: str | Path, truth: Tensor | None = None) -> Path:
        """A page with the first sample's pictures (its true input too, where that is known), the numbers, and
        objective and gap over the iterations."""
        from torchlift import report

        names = ("objective", "fidelity", "residual", "iterations", "alpha", "gap", "seconds", "method")
        facts = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        facts["converged"] = "yes" if self.converged else "no"
        page = report.inversion_page(
            "Inversion", facts, {}, self.pictures(truth), {self.method: self.history}
        )
        return report.write(page, Path(path))

    def pictures(self, truth: Tensor | None = None) -> list[tuple[str, bytes]]:
        """Captions and PNG files of the first sample: input, observation, reconstruction, what is left."""
        from torchlift.report.pictures import png

        low, high = (None, None) if truth is None else (float(truth.min()), float(truth.max()))
        drawn = [("input", truth[0], low, high)] if truth is not None else []
        drawn += [("observation", self.y[0], None, None)] if self.y is not None else []
        drawn.append(("reconstruction", self.x[0], low, high))
        if truth is not None:
            drawn.append(("error", (self.x[0] - truth[0]).abs(), 0.0, None))
        if self.y is not None and self.output is not None:
            drawn.append(("residual", (self.output[0] - self.y[0]).abs(), 0.0, None))
        files = [(name, png(as_square(image), least, most)) for name, image, least, most in drawn]
        return [(name, file) for name, file in files if file is not None]


def as_square(image: Tensor) -> Tensor:
    """Channels of a feature map side by side; a vector as a picture where its length is a square."""
    if image.ndim == 3 and len(image) not in (1, 3):
        return torch.cat(list(image), 1)
    side = math.isqrt(image.numel())
    return image.reshape(side, side) if image.ndim == 1 and side * side == len(image) else image
