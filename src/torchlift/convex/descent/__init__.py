"""Solvers that say whether they converged: FISTA and Condat–Vũ, with gaps where there are any."""

from torchlift.convex.descent.fista import fista
from torchlift.convex.descent.primal_dual import condat_vu
from torchlift.convex.descent.quasi_newton import lbfgs
from torchlift.convex.descent.stopping import Certificate, Descent, Gap, Smooth, Stopping

__all__ = ["Certificate", "Descent", "Gap", "Smooth", "Stopping", "condat_vu", "fista", "lbfgs"]
