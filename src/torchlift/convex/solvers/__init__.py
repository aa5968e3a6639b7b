"""Exact solvers for convex blocks, batched; samples are rows, and each says whether it is done."""

from torchlift.convex.solvers.bounds import Bounds
from torchlift.convex.solvers.fixed import Pulled, newton_states
from torchlift.convex.solvers.quadratic import quadratic
from torchlift.convex.solvers.ridge import Ridge, ridge
from torchlift.convex.solvers.solved import Solved, StoppedShortWarning, tell
from torchlift.convex.solvers.units import newton_units

__all__ = [
    "Bounds",
    "Pulled",
    "Ridge",
    "Solved",
    "StoppedShortWarning",
    "newton_states",
    "newton_units",
    "quadratic",
    "ridge",
    "tell",
]
