"""Looking at what was learnt: functions, layers, phases, curvature."""

from typing import TYPE_CHECKING

from torchlift.analyze.alignment import cka
from torchlift.analyze.curvature import Inertia, Spectrum, inertia, spectrum
from torchlift.analyze.energy import Arithmetic, arithmetic
from torchlift.analyze.lifting import LiftingConditions, is_lifted, lifting
from torchlift.analyze.neighborhood import radius
from torchlift.analyze.neurons import Neurons, linearity, neurons
from torchlift.analyze.phases import Cycle, cycles
from torchlift.analyze.sharing import reuse, route, similarity
from torchlift.analyze.smoothness import complexity, critical_sample_ratio, rkhs_norm
from torchlift.analyze.tracking import Depth
from torchlift.lazy import lazy

if TYPE_CHECKING:
    from torchlift.methods.depth.criticality import Criticality as Criticality
    from torchlift.methods.depth.criticality import critical as critical
    from torchlift.methods.depth.criticality import stalls as stalls

__all__ = [
    "Arithmetic",
    "Criticality",
    "Cycle",
    "Depth",
    "Inertia",
    "LiftingConditions",
    "Neurons",
    "Spectrum",
    "arithmetic",
    "cka",
    "complexity",
    "critical",
    "critical_sample_ratio",
    "cycles",
    "inertia",
    "is_lifted",
    "lifting",
    "linearity",
    "neurons",
    "radius",
    "reuse",
    "rkhs_norm",
    "route",
    "similarity",
    "spectrum",
    "stalls",
]

HOMES: dict[str, str] = {
    "Criticality": "methods.depth.criticality",
    "critical": "methods.depth.criticality",
    "stalls": "methods.depth.criticality",
}
"""What merges layers to judge a point lives with the method, and is imported when first used."""

__getattr__, _ = lazy(__name__, HOMES)
