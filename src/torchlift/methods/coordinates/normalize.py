"""Batch normalization for the time of training: folded exactly into the layer before it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from torchlift.core import Fit, ModuleLift, Node, Problem, merge, nodes
from torchlift.core.outputs import OutputShape, own_shape
from torchlift.methods.neural_lifting.residual import feature_axis


class Normed(Node):
    """z ↦ γ (z − μ) / √(σ² + ε) + β over the batch while training, with the running μ, σ² otherwise.

    The running moments are means over the batches seen, weighted (1 − momentum)^age and divided by the sum of
    the weights (``seen``), as Adam does with its own: after few steps too they are those of the batches.
    """

    mean: Tensor
    variance: Tensor
    seen: Tensor
    options: Mapping[str, Mapping[str, Any]] = {"gamma": {}, "beta": {}}

    def __init__(self, inner: nn.Module, shape: OutputShape, momentum: float, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.inner, self.shape = inner, shape
        self.momentum, self.epsilon = momentum, epsilon
        like = inner.get_parameter("weight").new_ones(shape.features)
        self.gamma = nn.Parameter(like * (1 + epsilon) ** 0.5)
        self.beta = nn.Parameter(torch.zeros_like(like))
        self.register_buffer("mean", torch.zeros_like(like))
        self.register_buffer("variance", torch.zeros_like(like))
        exact = torch.promote_types(like.dtype, torch.float32)  # in bfloat16 the sum would stop short of 1
        self.register_buffer("seen", like.new_zeros((), dtype=exact))

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, normalized."""
        z = self.inner(x)
        last = z.ndim > 2 and feature_axis(z, self.shape.layout) == -1
        rows = z.flatten(0, -2) if last else z
        settings = (self.gamma, self.beta, self.training, self.momentum, self.epsilon)
        moments = (self.mean, self.variance) if self.training else self.moments()
        if self.training:
            self.seen.lerp_(torch.ones_like(self.seen), self.momentum)
        return batch_norm(rows, *moments, *settings).view_as(z)

    def moments(self) -> tuple[Tensor, Tensor]:
        """μ and σ² of the batches seen; of none, 0 and 1."""
        some = self.seen > 0
        total = torch.where(some, self.seen, 1.0)
        return self.mean / total, torch.where(some, self.variance / total, 1.0)

    def project(self) -> nn.Module:
        """The layer with the running normalization folded in; of a weight on a grid, into the steps."""
        scale, shift = norm_as_affine(self.gamma, self.beta, *self.moments(), self.epsilon)
        return merge.scale(self.inner, scale.detach(), shift.detach())


def norm_as_affine(
    gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """γ (z − μ) / √(σ² + ε) + β as scale · z + shift."""
    scale = gamma / (variance + epsilon).sqrt()
    return scale, beta - scale * mean


@dataclasses.dataclass(frozen=True)
class Normalize(ModuleLift):
    """z ↦ γ (z − μ_B) / σ_B + β after each Linear and Conv of ``where`` while training, then folded in.

    Ioffe and Szegedy, 2015, as a lift: the network trained is the normalized one, the network kept is
    the given one, to rounding. At first the identity in evaluation mode. Layers need a bias (β goes there)
    and a weight of their own; others that ``where`` picks are passed over. The model's last layer, its
    output, is normalized only with ``output=True``, or if nothing else is.
    """

    where: str = "*"
    momentum: float = 0.1
    output: bool = False

    rewrites: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with normalized layers."""
        lifted = super().lift(problem, fit)
        body = self.body(lifted)
        layers = [module for module in body.modules() if type(module) in merge.LAYERS]
        mine = [(name, node) for name, node in nodes(body) if node.way_back == self]
        for name, node in mine if not self.output and len(mine) > 1 else []:
            if node.inner is layers[-1]:
                body.set_submodule(name, node.inner)
        return lifted

    def nodes(self, modules: Mapping[str, nn.Module]) -> Mapping[str, Node]:
        """A node around every layer."""
        return {name: self.node(module) for name, module in modules.items()}

    def accepts_module(self, module: nn.Module) -> str | None:
        """Only layers with a bias can take the fold."""
        if type(module) not in merge.LAYERS:
            return "not a Linear or Conv layer"
        return None if isinstance(module.bias, Tensor) else "without a bias to fold the shift into"

    def node(self, module: nn.Module) -> Node:
        """The normalized layer."""
        shape = own_shape(module)
        assert shape is not None
        return Normed(module, shape, self.momentum)
