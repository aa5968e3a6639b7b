"""Optimisers and tuners: AvaGrad, Delayed Adam, Adam with growing ε, gradientless descent, line searches."""

from .avagrad import AvaGrad, AvaGradW
from .delayed import DelayedAdam
from .epsilon import AdamEps
from .separable import line_searches
from .zeroth_order import Search, gld

__all__ = ["AdamEps", "AvaGrad", "AvaGradW", "DelayedAdam", "Search", "gld", "line_searches"]
