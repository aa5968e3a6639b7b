"""The laws every lift obeys, ours or yours (:func:`check`), and those of convex analysis."""

from torchlift.testing.compiled import compiles_once
from torchlift.testing.convexity import adjoint, fenchel_young, moreau
from torchlift.testing.laws import LAWS, check, lands
from torchlift.testing.processes import agrees_across_processes
from torchlift.testing.steps import Steps, descend

__all__ = [
    "LAWS",
    "Steps",
    "adjoint",
    "agrees_across_processes",
    "check",
    "compiles_once",
    "descend",
    "fenchel_young",
    "lands",
    "moreau",
]
