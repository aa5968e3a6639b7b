"""Convex functions with values and proximal maps: fn, prox."""

from torchlift.convex.functions.base import (
    ConvexError,
    Custom,
    Function,
    Proximable,
    as_function,
    reweighted,
    samples,
)
from torchlift.convex.functions.norms import L1, L2, Box, Boxed, GroupL1, Zero
from torchlift.convex.functions.sums import Sum
from torchlift.convex.functions.variation import TV, denoise
from torchlift.convex.functions.wavelets import Wavelets, WaveletTransform

__all__ = [
    "L1",
    "L2",
    "TV",
    "Box",
    "Boxed",
    "ConvexError",
    "Custom",
    "Function",
    "GroupL1",
    "Proximable",
    "Sum",
    "WaveletTransform",
    "Wavelets",
    "Zero",
    "as_function",
    "denoise",
    "reweighted",
    "samples",
]
