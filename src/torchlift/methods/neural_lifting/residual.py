"""Modules e(z) near the identity: z + r(z), with r zero or small at first."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from torchlift.core import Dial
from torchlift.core.outputs import Layout, OutputShape
from torchlift.errors import TorchliftError

LifterInit = Literal["zeros", "xavier", "kaiming"]
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NEGATIVE = (
    "a block ends in a ReLU and is the identity only on non-negative input, which {} does not give; "
    "lift after an activation, or pass activation='none'."
)


class Fading(nn.Module):
    """max(v, s v) with s from 0 to 1: a ReLU that turns into the identity as the fit goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = Dial(0.0, 1.0, "linear")

    def forward(self, v: Tensor) -> Tensor:
        """v where positive, s v elsewhere."""
        return torch.where(v > 0, v, self.slope().to(v.dtype) * v)


class Residual(nn.Module):
    """e(z) = a(z + W₂ φ(W₁ z + b₁) + b₂) with φ: ReLU, fading or nothing, a: ReLU or nothing.

    Neural lifting, section 5.1 (two linear layers and a residual connection), appendix B.2 (a block, which
    ends in a ReLU) and appendix C (two 3×3 convolutions).
    """

    def __init__(
        self, up: nn.Module, down: nn.Module, shape: OutputShape, bend: nn.Module, last: bool
    ) -> None:
        super().__init__()
        self.up, self.bend, self.down = up, bend, down
        self.shape, self.last = shape, last

    def forward(self, z: Tensor) -> Tensor:
        """e(z), of z's shape."""
        pointwise = isinstance(self.up, nn.Linear) and feature_axis(z, self.shape.layout) == 1
        change = self.down(self.bend(self.up(z.movedim(1, -1) if pointwise else z)))
        moved = z + (change.movedim(-1, 1) if pointwise else change)
        return relu(moved) if self.last else moved

    def check(self, z: Tensor, who: str) -> None:
        """An error if z has another width than the module, or signs a final ReLU would cut."""
        features = z.shape[feature_axis(z, self.shape.layout)]
        if features != self.shape.features:
            raise TorchliftError(
                f"{who}: made for {self.shape.features} features, but the output is {tuple(z.shape)}; "
                f"pass features={features} or name another module."
            )
        if self.last and bool((z < 0).any()):
            raise TorchliftError(f"{who}: {NEGATIVE.format('this module')}")

    @property
    def straight(self) -> bool:
        """Whether nothing in it bends, or will at the end of the fit."""
        return isinstance(self.bend, nn.Identity | Fading)

    def affine(self) -> tuple[Tensor, Tensor | None]:
        """I + W₂ W₁ and W₂ b₁ + b₂: what the module does where nothing in it bends."""
        up, down = self.up.get_parameter("weight"), self.down.get_parameter("weight")
        inside, outside = self.up.bias, self.down.bias
        matrix = torch.eye(len(down), dtype=down.dtype, device=down.device) + down @ up
        if not isinstance(outside, Tensor):
            return matrix, None
        return matrix, outside + (down @ inside if isinstance(inside, Tensor) else 0)


def feature_axis(z: Tensor, layout: Layout) -> int:
    """Where the features run: by the layer's kind, else along axis 1 of images and the last of all others."""
    return 1 if z.ndim > 2 and (layout == "maps" or (layout == "unknown" and z.ndim > 3)) else -1


def build_residual(
    kind: str, shape: OutputShape, width: int | None, activation: str, bias: bool = True
) -> Residual:
    """The residual module of the named kind for an output of the given shape; ``bias``: of what merges."""
    features = shape.features
    if kind == "conv":
        conv, wide = CONVOLUTIONS[shape.spatial], width or 2 * features
        up, down = conv(features, wide, 3, padding=1), conv(wide, features, 3, padding=1)
        return Residual(up, down, OutputShape(features, "maps", shape.spatial), nn.ReLU(), last=False)
    wide = width or (4 if kind == "mlp" else 1) * features
    up, down = nn.Linear(features, wide, bias=bias and kind != "linear"), nn.Linear(wide, features, bias=bias)
    bend = {"linear": nn.Identity, "fading": Fading}.get(kind, nn.ReLU)()
    return Residual(up, down, shape, bend, last=kind == "block" and activation == "relu")


def initialize_residual(module: Residual, init: LifterInit, scale: float, sparsity: float) -> None:
    """Masked Xavier or Kaiming in both layers, or zero in the last one alone; all biases zero.

    Each weight survives with probability 1 − sparsity (section 5.1). With ``"zeros"`` the first layer is
    drawn all the same: were both zero, neither would ever get a gradient.
    """
    if init not in ("zeros", "xavier", "kaiming"):
        raise TorchliftError(f"Lifter's init {init!r} is not known: 'zeros', 'xavier' or 'kaiming'.")
    draw = nn.init.kaiming_uniform_ if init == "kaiming" else nn.init.xavier_uniform_
    for layer in (module.up, module.down):
        weight = draw(layer.get_parameter("weight"))
        with torch.no_grad():
            if init != "zeros":
                weight.mul_(scale * torch.bernoulli(torch.full_like(weight, 1 - sparsity)))
            if isinstance(layer.bias, nn.Parameter):
                layer.bias.zero_()
    if init == "zeros":
        nn.init.zeros_(module.down.get_parameter("weight"))
