"""Convex analysis for networks: operators with adjoints, functions with prox, activations, solvers."""

from torchlift.convex import activations, descent, functions, operators, solvers
from torchlift.convex.descent import Descent, Stopping, condat_vu, fista
from torchlift.convex.functions import L1, L2, TV, Box, ConvexError, Custom, Function, Sum, Wavelets
from torchlift.convex.operators import Operator, compose

__all__ = [
    "L1",
    "L2",
    "TV",
    "Box",
    "ConvexError",
    "Custom",
    "Descent",
    "Function",
    "Operator",
    "Stopping",
    "Sum",
    "Wavelets",
    "activations",
    "compose",
    "condat_vu",
    "descent",
    "fista",
    "functions",
    "operators",
    "solvers",
]
