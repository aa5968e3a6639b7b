"""Looking at what was learnt: functions, layers, phases."""

from torchlift.analyze.energy import Arithmetic, arithmetic
from torchlift.analyze.phases import Cycle, cycles
from torchlift.analyze.sharing import reuse, route, similarity
from torchlift.analyze.smoothness import complexity, critical_sample_ratio, rkhs_norm

__all__ = [
    "Arithmetic",
    "Cycle",
    "arithmetic",
    "complexity",
    "critical_sample_ratio",
    "cycles",
    "reuse",
    "rkhs_norm",
    "route",
    "similarity",
]
