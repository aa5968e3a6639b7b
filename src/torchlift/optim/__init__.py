"""Optimizers and tuners: AvaGrad, Delayed Adam, growing ε, Muon, SOAP, gradientless descent."""

from .avagrad import AvaGrad, AvaGradW
from .delayed import DelayedAdam
from .epsilon import AdamEps
from .muon import Muon
from .separable import line_searches
from .soap import Soap
from .zeroth_order import Search, gld

__all__ = [
    "AdamEps",
    "AvaGrad",
    "AvaGradW",
    "DelayedAdam",
    "Muon",
    "Search",
    "Soap",
    "gld",
    "line_searches",
]
