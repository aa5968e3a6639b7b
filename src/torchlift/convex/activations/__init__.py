"""Activations as gradients of conjugates: the table of lifted training, by name."""

from torchlift.convex.activations.base import Activation
from torchlift.convex.activations.channels import Channelwise
from torchlift.convex.activations.modules import Act as Act
from torchlift.convex.activations.modules import is_activation as is_activation
from torchlift.convex.activations.modules import recognize as recognize
from torchlift.convex.activations.piecewise import Clip, Hardsigmoid, LeakyReLU, Linear, PReLU
from torchlift.convex.activations.pooling import max_divergence, max_divergence_gradient
from torchlift.convex.activations.simplex import Simplex, Softmax, project_simplex
from torchlift.convex.activations.smooth import ELU, Sigmoid, Softplus, Tanh
from torchlift.convex.activations.table import get, names
from torchlift.convex.activations.threshold import (
    EntrywiseSoftThreshold,
    GroupSoftThreshold,
    NonnegSoftThreshold,
    Sign,
)

__all__ = [
    "ELU",
    "Activation",
    "Channelwise",
    "Clip",
    "EntrywiseSoftThreshold",
    "GroupSoftThreshold",
    "Hardsigmoid",
    "LeakyReLU",
    "Linear",
    "NonnegSoftThreshold",
    "PReLU",
    "Sigmoid",
    "Sign",
    "Simplex",
    "Softmax",
    "Softplus",
    "Tanh",
    "get",
    "max_divergence",
    "max_divergence_gradient",
    "names",
    "project_simplex",
]
