"""Weights in coordinates in which a layer's inputs have mean zero and, with ``scaled``, variance one."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import linear

from torchlift.core import Fit, ModuleLift, Node, Problem, masks_of, needs_fit, nodes
from torchlift.flow.affine import through
from torchlift.loss import evaluating, inputs_and_target
from torchlift.tree import like

LINEAR = (nn.Linear,)
Scaled = bool | Literal["whitened"]
CONVOLUTION = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def to_plain(v: Tensor, c: Tensor | None, mean: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """W = V T, b = c − W mean: the layer V T (x − mean) + c as W x + b, T = ``scale`` or its diagonal."""
    weight = v if scale is None else transformed(v, scale)
    return weight, None if c is None else c - through(weight, mean)


def from_plain(weight: Tensor, b: Tensor | None, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor | None]:
    """The coordinates V, c of a given W, b: the inverse of :func:`to_plain`."""
    v = transformed(weight, 1 / scale if scale.ndim == 1 else torch.linalg.inv(scale.double()).to(scale))
    return v, None if b is None else b + through(weight, mean)


def transformed(weight: Tensor, scale: Tensor) -> Tensor:
    """W T over the inputs (or input channels) of a weight, T a matrix or the diagonal of one."""
    if scale.ndim == 1:
        return weight * scale.view(-1, *[1] * (weight.ndim - 2))
    if weight.ndim == 2:
        return weight @ scale
    return (scale.T @ weight.flatten(2)).view_as(weight)


def relative_scale(deviation: Tensor) -> Tensor:
    """1 / σ over its mean, so that learning rates keep their meaning; σ² raised by 1 % of its mean."""
    inverse = 1 / (deviation.square() + 0.01 * deviation.square().mean()).sqrt()
    return torch.where(inverse.isfinite(), inverse / inverse.mean(), torch.ones_like(inverse))


def whitening(inputs: Tensor, damping: float = 0.01) -> Tensor:
    """T = Λ^(−1/2) Uᵀ of the covariance U Λ Uᵀ of rows, Λ raised by 1 % of its mean.

    T (x − μ) is uncorrelated and of one variance; T is divided so that Λ^(−1/2) has mean one, and learning
    rates keep their meaning.
    """
    centered = (inputs - inputs.mean(0)).double()
    values, vectors = torch.linalg.eigh(centered.T @ centered / len(inputs))
    inverse = 1 / (values.clamp(min=0) + damping * values.mean()).sqrt()
    inverse = torch.where(inverse.isfinite(), inverse / inverse.mean(), torch.ones_like(inverse))
    return (inverse[:, None] * vectors.T).to(inputs)


class Standardized(Node):
    """y = V T (x − μ) + c with μ, T fixed; trained in V and c, computed as W x + b."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inner: nn.Module, scaled: Scaled) -> None:
        super().__init__()
        self.inner, self.scaled = inner, scaled
        weight = inner.get_parameter("weight")
        size = weight.shape[1]
        self.register_buffer("mean", weight.new_zeros(size))
        self.register_buffer(
            "scale", torch.eye(size).to(weight) if scaled == "whitened" else weight.new_ones(size)
        )
        self.collected: list[Tensor] | None = None

    def plain(self) -> tuple[Tensor, Tensor | None]:
        """The layer's weight and bias."""
        weight, bias = (
            self.inner.weight,
            self.inner.bias,
        )  # tensors, not parameters, where a lift computes them
        assert isinstance(weight, Tensor)
        scale = None if self.scaled is False else self.scale
        return to_plain(weight, bias if isinstance(bias, Tensor) else None, self.mean, scale)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output."""
        if self.collected is not None:
            self.collected.append(input_rows(self.inner, x))
        if type(self.inner) is nn.Linear:  # on small layers the fewest calls are the fastest
            weight, bias = self.inner.weight, self.inner.bias
            return linear(
                x - self.mean, weight if self.scaled is False else transformed(weight, self.scale), bias
            )
        weight, bias = self.plain()
        tensors = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        return functional_call(self.inner, tensors, (x,))

    @torch.no_grad()
    def take_statistics(self) -> None:
        """Take the statistics of the inputs seen; the function stays what it was."""
        collected, self.collected = self.collected, None
        if not collected:
            return
        inputs = torch.cat(collected)
        centered = isinstance(self.inner.bias, Tensor)
        mean = inputs.mean(0) if centered else self.mean
        scale = whitening(inputs) if self.scaled == "whitened" else self.scale
        scale = relative_scale(inputs.std(0)) if self.scaled is True else scale
        weight, bias = self.plain()
        v, c = from_plain(weight, bias, mean, scale)
        self.mean.copy_(mean)
        self.scale.copy_(scale)
        self.inner.get_parameter("weight").copy_(v)
        if c is not None:
            self.inner.get_parameter("bias").copy_(c)

    def project(self) -> nn.Module:
        """The layer in its own coordinates."""
        layer = copy.deepcopy(self.inner)
        weight, bias = self.plain()
        with torch.no_grad():
            layer.get_parameter("weight").copy_(weight)
            if bias is not None:
                layer.get_parameter("bias").copy_(bias)
        return layer


@dataclasses.dataclass(frozen=True)
class Standardize(ModuleLift):
    """W x + b = V((x − μ) / σ) + c: the same layer, trained in coordinates in which its inputs are centered.

    A linear change of coordinates, so it preserves the function, costs nothing per step, adds no parameters
    and is undone exactly. What changes is the geometry that gradients see: with inputs of mean μ ≠ 0, as
    after every ReLU, one direction of W is far steeper than all others (LeCun et al., 1998, section 4.3;
    Schraudolph, 1998; Desjardins et al., 2015). ``x`` are inputs of the model on which μ and σ are taken,
    at the weights the lift finds; without them, the first training batch of ``fit``. Without ``scaled`` σ is
    one; with it, σ relative to its mean over the inputs of a layer; ``"whitened"`` takes the whole
    covariance: W = V T with T (x − μ) uncorrelated and of one variance. Layers without bias are not centered,
    and those whose weights others share are left alone.
    """

    rewrites: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    measures: ClassVar[bool] = True

    where: str = "*"
    x: Any = dataclasses.field(default=None, repr=False, compare=False)
    scaled: Scaled = False

    def nodes(self, modules: Mapping[str, nn.Module]) -> Mapping[str, Node]:
        """A node around every layer."""
        return {name: Standardized(module, self.scaled) for name, module in modules.items()}

    def accepts_module(self, module: nn.Module) -> str | None:
        """Only layers linear in all of their inputs have such coordinates."""
        if not takes(module):
            return "not a Linear, or a convolution of one group"
        if not self.scaled and not isinstance(module.bias, Tensor):
            return "without a bias there is nothing to center"
        if self.scaled == "whitened" and masks_of(module):
            return "pruned, and zeros of the weight are none of its whitened coordinates"
        return None

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem in the new coordinates."""
        lifted = super().lift(problem)
        if self.x is None and fit is None:
            raise needs_fit(self, "takes statistics of inputs: pass x=, or")
        x = inputs_and_target(next(iter(fit.batches())))[0] if self.x is None and fit is not None else self.x
        mine = [node for _, node in nodes(lifted) if isinstance(node, Standardized) and node.way_back == self]
        for node in mine:
            node.collected = []
        with evaluating(lifted), torch.no_grad():
            lifted.predict(like(x, mine[0].mean))
        for node in mine:
            node.take_statistics()
        return lifted


def takes(module: nn.Module) -> bool:
    """Whether the coordinates of a layer can be changed: it is linear in all of its inputs."""
    return type(module) in LINEAR or (isinstance(module, CONVOLUTION) and module.groups == 1)


def input_rows(layer: nn.Module, x: Tensor) -> Tensor:
    """A layer's inputs as rows of features."""
    moved = x if type(layer) in LINEAR else x.movedim(1, -1)
    return moved.reshape(-1, moved.shape[-1])
