"""Exact solvers for the convex blocks of lifted training: samples are rows, sums are plain sums."""

from torchlift.lifted.solvers.bounds import Bounds
from torchlift.lifted.solvers.conv import Convolution, conjugate_gradient, conv_ridge
from torchlift.lifted.solvers.descent import Accelerated, Adaptive, Block, Exact, HeavyBall, Linearised, Rule
from torchlift.lifted.solvers.glm import WeightBlock, glm
from torchlift.lifted.solvers.joint import joint_x
from torchlift.lifted.solvers.output import simplex_cross_entropy, squared_output
from torchlift.lifted.solvers.quadratic import quadratic
from torchlift.lifted.solvers.regularisers import (
    L1,
    GroupLasso,
    Nuclear,
    Orthogonal,
    Regulariser,
    SquaredNorm,
    regularised_weights,
)
from torchlift.lifted.solvers.ridge import Ridge, ridge
from torchlift.lifted.solvers.robust import leaky_slope, robust_weights
from torchlift.lifted.solvers.sketch import sketched_ridge
from torchlift.lifted.solvers.states import Above, StateBlock
from torchlift.lifted.solvers.xstep import nnls

__all__ = [
    "L1",
    "Above",
    "Accelerated",
    "Adaptive",
    "Block",
    "Bounds",
    "Convolution",
    "Exact",
    "GroupLasso",
    "HeavyBall",
    "Linearised",
    "Nuclear",
    "Orthogonal",
    "Regulariser",
    "Ridge",
    "Rule",
    "SquaredNorm",
    "StateBlock",
    "WeightBlock",
    "conjugate_gradient",
    "conv_ridge",
    "glm",
    "joint_x",
    "leaky_slope",
    "nnls",
    "quadratic",
    "regularised_weights",
    "ridge",
    "robust_weights",
    "simplex_cross_entropy",
    "sketched_ridge",
    "squared_output",
]
