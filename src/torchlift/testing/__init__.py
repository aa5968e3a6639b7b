"""The laws every lift obeys, ours or yours (:func:`check`), and those of convex analysis."""

from torchlift.testing.compiled import compiles_once
from torchlift.testing.convexity import adjoint, fenchel_young, moreau
from torchlift.testing.laws import LAWS, check, descend, fitter, lands
from torchlift.testing.processes import agrees_across_processes

__all__ = [
    "LAWS",
    "adjoint",
    "agrees_across_processes",
    "check",
    "compiles_once",
    "descend",
    "fenchel_young",
    "fitter",
    "lands",
    "moreau",
]
