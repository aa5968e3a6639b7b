"""Solvers for the blocks of lifted training: samples are rows, sums are plain sums."""

from torchlift.convex.solvers import Bounds as Bounds
from torchlift.convex.solvers import Ridge as Ridge
from torchlift.convex.solvers import StoppedShortWarning as StoppedShortWarning
from torchlift.convex.solvers import quadratic, ridge
from torchlift.convex.solvers.sketch import sketched_ridge
from torchlift.methods.lifted.solvers.conv import ConvolutionGeometry
from torchlift.methods.lifted.solvers.descent import (
    Accelerated,
    Adaptive,
    ConvexBlock,
    DescentRule,
    Exact,
    HeavyBall,
    Linearized,
)
from torchlift.methods.lifted.solvers.glm import WeightBlock, glm
from torchlift.methods.lifted.solvers.joint import joint_states, joint_x
from torchlift.methods.lifted.solvers.output import simplex_cross_entropy
from torchlift.methods.lifted.solvers.regularizers import (
    GroupLasso,
    Lasso,
    Nuclear,
    Orthogonal,
    Regularizer,
    SquaredNorm,
    regularized_weights,
)
from torchlift.methods.lifted.solvers.robust import leaky_slope, robust_weights
from torchlift.methods.lifted.solvers.states import Above, StateBlock
from torchlift.methods.lifted.solvers.xstep import nnls

__all__ = [
    "Above",
    "Accelerated",
    "Adaptive",
    "ConvexBlock",
    "ConvolutionGeometry",
    "DescentRule",
    "Exact",
    "GroupLasso",
    "HeavyBall",
    "Lasso",
    "Linearized",
    "Nuclear",
    "Orthogonal",
    "Regularizer",
    "SquaredNorm",
    "StateBlock",
    "WeightBlock",
    "glm",
    "joint_states",
    "joint_x",
    "leaky_slope",
    "nnls",
    "quadratic",
    "regularized_weights",
    "ridge",
    "robust_weights",
    "simplex_cross_entropy",
    "sketched_ridge",
]
