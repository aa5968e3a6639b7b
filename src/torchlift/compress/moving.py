"""Targets that move, from the second sweep on: the X-step between two sweeps of W-steps.

    z = arg min ‖z − y‖² / E + ‖z − p‖² / E + D(z),    D(z) ≈ D + g · (z − p) + ½ κ ‖z − p‖²

y is what the original layer gave, p what the compressed one gave in the sweep before, E the energy of y
about its mean, D the relative error of the network's output, g its slope at p. κ is that of a parabola that
reaches 0 along −g: ‖g‖² / 2D, as in Polyak's step.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.compress.distance import prediction
from torchlift.compress.running import Hook, listening, run
from torchlift.loss import call, plain_attention


@dataclasses.dataclass(frozen=True, eq=False)
class Pull:
    """What a layer of the compressed network gave at a batch, and where the rest of the network wants it."""

    output: Tensor
    slope: Tensor
    curvature: float

    def moved(self, target: Tensor, dim: int, left: Tensor | None) -> Tensor:
        """The target z of a layer's output y, along whose dimension ``dim`` the outputs ``left`` are left."""
        own = target if left is None else target.index_select(dim, left.to(target.device))
        energy = float((own - own.mean()).square().sum()) or 1.0
        pulled = 2 / energy * (own + self.output) + self.curvature * self.output - self.slope
        z = pulled / (4 / energy + self.curvature)
        return z if left is None else target.index_copy(dim, left.to(target.device), z)


def pulls_of(
    original: nn.Module, compressed: nn.Module, modules: Sequence[str], inputs: Any
) -> dict[str, Pull]:
    """The pull on the output of each module at one batch; of those that run once."""
    outputs: dict[str, list[Tensor]] = {}

    def hook(name: str) -> Hook:
        def seen(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            del layer, args, kwargs
            outputs.setdefault(name, []).append(output)

        return seen

    wanted = prediction(run(original, inputs)).detach()
    with torch.enable_grad(), plain_attention(), listening(compressed, {n: hook(n) for n in modules}):
        error = (prediction(call(compressed, inputs)) - wanted).square().sum()
    error = error / (wanted - wanted.mean(0)).square().sum().clamp(min=1e-30)
    height = float(error.detach())
    once = {n: own[0] for n, own in outputs.items() if len(own) == 1 and own[0].requires_grad}
    slopes = (
        torch.autograd.grad(error, list(once.values()), allow_unused=True, materialize_grads=True)
        if once
        else ()
    )
    pulls: dict[str, Pull] = {}
    for (name, output), slope in zip(once.items(), slopes, strict=True):
        steep = float(slope.square().sum())
        if steep > 0 and height > 0:
            pulls[name] = Pull(output.detach(), slope, steep / (2 * height))
    return pulls
