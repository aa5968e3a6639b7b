"""Linear operators with tested adjoints: A, A_adjoint, norm."""

from torchlift.convex.operators.base import Composition, Identity, Operator, Reshape, compose, power_norm
from torchlift.convex.operators.differences import Differences
from torchlift.convex.operators.imaging import (
    Blur,
    Mask,
    box_mask,
    gaussian_kernel,
    motion_kernel,
    random_mask,
)
from torchlift.convex.operators.layers import AveragePool, Convolution, Dense, Scale
from torchlift.convex.operators.modules import Affine, Mapped, affine

__all__ = [
    "Affine",
    "AveragePool",
    "Blur",
    "Composition",
    "Convolution",
    "Dense",
    "Differences",
    "Identity",
    "Mapped",
    "Mask",
    "Operator",
    "Reshape",
    "Scale",
    "affine",
    "box_mask",
    "compose",
    "gaussian_kernel",
    "motion_kernel",
    "power_norm",
    "random_mask",
]
