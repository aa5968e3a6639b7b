"""Solvers for the blocks of lifted training: samples are rows, sums are plain sums."""

from torchlift.convex.solvers import Bounds as Bounds
from torchlift.convex.solvers import Ridge as Ridge
from torchlift.convex.solvers import StoppedShortWarning as StoppedShortWarning
from torchlift.convex.solvers import quadratic, ridge
from torchlift.lifted.solvers.conv import Convolution
from torchlift.lifted.solvers.descent import Accelerated, Adaptive, Block, Exact, HeavyBall, Linearised, Rule
from torchlift.lifted.solvers.glm import WeightBlock, glm
from torchlift.lifted.solvers.joint import joint_states, joint_x
from torchlift.lifted.solvers.output import simplex_cross_entropy
from torchlift.lifted.solvers.regularisers import (
    L1,
    GroupLasso,
    Nuclear,
    Orthogonal,
    Regulariser,
    SquaredNorm,
    regularised_weights,
)
from torchlift.lifted.solvers.robust import leaky_slope, robust_weights
from torchlift.lifted.solvers.states import Above, StateBlock
from torchlift.lifted.solvers.xstep import nnls

__all__ = [
    "L1",
    "Above",
    "Accelerated",
    "Adaptive",
    "Block",
    "Convolution",
    "Exact",
    "GroupLasso",
    "HeavyBall",
    "Linearised",
    "Nuclear",
    "Orthogonal",
    "Regulariser",
    "Rule",
    "SquaredNorm",
    "StateBlock",
    "WeightBlock",
    "glm",
    "joint_states",
    "joint_x",
    "leaky_slope",
    "nnls",
    "quadratic",
    "regularised_weights",
    "ridge",
    "robust_weights",
    "simplex_cross_entropy",
]
